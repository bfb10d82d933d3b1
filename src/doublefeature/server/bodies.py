"""Bodies read strictly: no repeated keys, no NaN, no endless depth; 5.0 and 5 are the same number."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from doublefeature.errors import StoreError
from doublefeature.posterior.arrays import strict_json


class StrictRequest(Request):
    """A request whose JSON means one thing only."""

    async def json(self) -> Any:
        """Return the body."""
        try:
            return strict_json(await self.body(), whole=True)
        except StoreError as problem:
            raise HTTPException(422, str(problem)) from None


class StrictRoute(APIRoute):
    """A route that reads bodies strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, given the stricter request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict
