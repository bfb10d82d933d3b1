"""Who may ask, and how often."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

from fastapi import HTTPException, Request, Security
from fastapi.security import APIKeyHeader
from starlette.responses import Response
from starlette.types import Scope

from doublefeature.server.keys import Key, find_key
from doublefeature.server.problems import problem
from doublefeature.server.settings import API, DESCRIPTION, Settings

_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, description="Made by `doublefeature new-key`.")
_READING = ("GET", "HEAD")
_MOST_CALLERS = 10_000
_OPEN = ("/health/", DESCRIPTION)
_WRONG_RATE, _WRONG_BURST = 10.0, 200
_NO_KEY = "send a valid key in the header X-API-Key"
_CHALLENGE = {"WWW-Authenticate": "ApiKey"}


class Buckets:
    """A token bucket for every caller: it fills with `rate` tokens a second up to `burst`, and a request takes one."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> bool:
        """Take a token; False when there is none left."""
        now = self._clock()
        level, since = self._levels.pop(caller, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._rate)
        allowed = level >= 1.0
        self._levels[caller] = (level - 1.0 if allowed else level, now)
        if len(self._levels) > _MOST_CALLERS:
            self._levels.popitem(last=False)
        return allowed


class Door:
    """Finds whose key a request has, before anything of its body is read."""

    def __init__(self, settings: Settings) -> None:
        self._keys = settings.keys
        self._wrong = Buckets(_WRONG_RATE, _WRONG_BURST)

    def refusal(self, scope: Scope) -> Response | None:
        """Return why a request is refused; note the key of one that is not."""
        path = scope["path"]
        if not self._keys or not path.startswith((API, "/metrics")) or path.startswith(_OPEN):
            return None
        key = find_key(dict(scope["headers"]).get(b"x-api-key", b"").decode("latin-1"), self._keys)
        if key is not None:
            scope["state"]["key"] = key
            return None
        host = (scope.get("client") or ("unknown", 0))[0]
        if not self._wrong.take(host):
            return problem(429, "too many requests without a valid key. Slow down.")
        return problem(401, _NO_KEY, _CHALLENGE)


class Doorkeeper:
    """Checks the role and the rate of every request that reaches a route; whose it is, the door has found."""

    def __init__(self, settings: Settings) -> None:
        self._needs_key = bool(settings.keys)
        self._buckets = Buckets(settings.rate, settings.burst)

    async def __call__(self, request: Request, _: Annotated[str | None, Security(_HEADER)] = None) -> None:
        """Raise unless the request may go on; asking takes a key, changing anything takes one with role write."""
        caller = request.client.host if request.client else "unknown"
        if self._needs_key:
            key: Key | None = getattr(request.state, "key", None)
            if key is None:
                raise HTTPException(401, _NO_KEY, _CHALLENGE)
            caller = key.name
            if key.role == "read" and _changes(request):
                raise HTTPException(403, "this key may read only")
        if not self._buckets.take(caller):
            raise HTTPException(429, "too many requests. Slow down.")


def _changes(request: Request) -> bool:
    """Whether a request changes what is stored: questions may be POSTs, so routes say it themselves."""
    return request.method not in _READING and "asks" not in (getattr(request.scope.get("route"), "tags", None) or ())
