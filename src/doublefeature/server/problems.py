"""What can go wrong with a request, and how it is said: {error, detail} in JSON, short and without secrets."""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, InputError

RETRY_SECONDS = 1
_MOST_TEXT = 500
_NAMES = {
    400: "bad request",
    401: "key needed",
    403: "not allowed",
    404: "not found",
    405: "method not allowed",
    408: "too slow",
    409: "does not fit the model",
    413: "too large",
    415: "not json",
    421: "wrong host",
    422: "invalid",
    429: "too many requests",
    431: "too large",
    500: "internal",
    503: "busy",
}


class Problem(BaseModel):
    """Why a request was not answered."""

    model_config = ConfigDict(extra="forbid")

    error: str = Field(description="A few fixed words for programs.")
    detail: str = Field(description="One line for people: what was given, what is allowed, what to do.")


def responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the failures a route may answer with, for its description."""
    return {code: {"model": Problem, "description": _NAMES[code]} for code in codes}


COMMON = responses(400, 401, 403, 408, 413, 415, 421, 422, 429, 431, 503)
"""Failures that any route under /api may answer with."""


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Return a failure as an answer."""
    text = " ".join(detail.split())
    body = json.dumps({"error": _NAMES.get(status, "failed"), "detail": text[:_MOST_TEXT]})
    more = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
    return Response(body, status, {**more, **(headers or {})}, media_type="application/json")


class NotFoundError(InputError):
    """An id in the address that nobody knows."""


class MisfitError(InputError):
    """An id or level in the body that the loaded model does not have."""


class BusyError(EnvironmentProblem):
    """Too much is waiting already."""


def install(app: FastAPI) -> None:
    """Let every failure leave the application in the same form."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DoubleFeatureError, _ours)
    app.add_exception_handler(Exception, _bug)


def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [
        f"{'.'.join(str(part)[:40] for part in one['loc'])[:120]}: {one['msg'][:120]}" for one in error.errors()[:3]
    ]
    return problem(422, "; ".join(told).encode("utf-8", "replace").decode())


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = _allowed(request, headers.get("Allow", "GET"))
    return problem(error.status_code, str(error.detail), headers)


def _allowed(request: Request, known: str) -> str:
    """Return all methods of an address; a route by itself knows its own only."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    for path, operations in paths.items():
        if re.fullmatch(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(path)), request.scope["path"]):
            return ", ".join(sorted(method.upper() for method in operations))
    return known


def _ours(_: Request, error: Exception) -> Response:
    kinds: tuple[tuple[type[Exception], int], ...] = (
        (NotFoundError, 404),
        (InputError, 409),
        (EnvironmentProblem, 503),
    )
    status = next((code for kind, code in kinds if isinstance(error, kind)), 500)
    return problem(status, str(error).encode("utf-8", "replace").decode())


def internal_problem() -> Response:
    """Return the answer to a request that met a bug of ours."""
    return problem(500, "something went wrong here; the log of the service knows more")


def _bug(_: Request, error: Exception) -> Response:
    return internal_problem()
