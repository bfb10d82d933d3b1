"""The outer ring around the application.

Every request is named, counted, limited in size and time, and answered with headers that keep browsers strict.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import traceback
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doublefeature.server.limits import Door
from doublefeature.server.logs import LOGGER
from doublefeature.server.metrics import Metrics
from doublefeature.server.problems import internal_problem, problem
from doublefeature.server.settings import API, LOCAL_NAMES, Settings

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_MOST_HEADERS = 32 * 1024
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


class Guards:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._door = Door(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, number = time.perf_counter(), secrets.token_hex(8)
        status, begun = 500, False
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        scope.setdefault("state", {})

        async def respond(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                begun = True
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS, (b"x-request-id", number.encode())]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, respond)
            else:
                await self._answer(scope, receive, respond)
        except Exception as error:
            facts = {"id": number, "kind": type(error).__name__, "trace": _places(error)}
            LOGGER.error("internal error", extra=facts)
            if not begun:
                await internal_problem()(scope, receive, respond)
        finally:
            self._note(scope, number, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, respond: Send) -> None:
        """Read the body, within its limits, before anybody works on it."""
        if scope["method"] in _WITH_BODY:
            try:
                body = await asyncio.wait_for(_read(receive, self._settings.most_body), self._settings.body_seconds)
            except TimeoutError:
                slow = problem(408, "the request's body did not come in time", {"Connection": "close"})
                await slow(scope, receive, respond)
                return
            if body is None:
                await self._too_large()(scope, receive, respond)
                return
            if body and not _is_json(scope):
                await problem(415, "send JSON, with Content-Type: application/json")(scope, receive, respond)
                return
            receive = _again(body, receive)
        await self._app(scope, receive, respond)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return why a request is refused by its head alone."""
        headers = dict(scope["headers"])
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADERS:
            return problem(431, f"a request's headers may have {_MOST_HEADERS} bytes")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._settings.most_body:
            return self._too_large()
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._settings.keys and not self._is_ours(host):
            return problem(421, "without keys the service answers under the names of this machine only")
        origin = headers.get(b"origin")
        if origin is not None and _site(origin.decode("latin-1")) != host:
            return problem(403, "requests from other sites' pages are refused")
        return self._door.refusal(scope)

    def _is_ours(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() else host
        return name.lower() in (*LOCAL_NAMES, *self._settings.hosts)

    def _too_large(self) -> Response:
        text = f"a request's body may have {self._settings.most_body} bytes. Send less at a time."
        return problem(413, text, {"Connection": "close"})

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        route, method = _route_of(scope), scope["method"] if len(scope["method"]) < 10 else "other"
        self._metrics.observe(method, route, status, seconds)
        facts = {"id": number, "method": method, "route": route, "status": status, "ms": round(1000 * seconds, 2)}
        key = scope["state"].get("key")
        LOGGER.info("request", extra=facts if key is None else {**facts, "key": key.name})


def _site(origin: str) -> str | None:
    """Return the name and port in an origin, None when it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _places(error: Exception) -> list[str]:
    """Return where an error came from; what it says is left out, since it may tell about people."""
    return [f"{place.name} in {place.filename}:{place.lineno}" for place in traceback.extract_tb(error.__traceback__)]


def _route_of(scope: MutableMapping[str, Any]) -> str:
    """Return the pattern a request matched, never the ids in its address."""
    route = scope.get("route")
    if route is None:
        return "other"
    pattern = str(getattr(route, "path_format", None) or getattr(route, "path", "other"))
    return API + pattern if scope["path"].startswith(API) and not pattern.startswith(API) else pattern


def _is_json(scope: Scope) -> bool:
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return len(kinds) == 1 and kinds[0].split(b";")[0].strip().lower() == b"application/json"


async def _read(receive: Receive, most: int) -> bytes | None:
    """Return the body, or None when it has more bytes than that."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
        if size > most:
            return None
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives a body that was read before, then goes on."""
    given = False

    async def repeat() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return repeat
