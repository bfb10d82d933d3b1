"""What routes work with: the model, the database, and the threads between them and a request."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from doublefeature.server.metrics import Metrics
from doublefeature.server.models import Holder, Loaded
from doublefeature.server.people import Person, as_id, sent_person, stored_person, user_in_address
from doublefeature.server.schemas.asked import About
from doublefeature.server.settings import Settings
from doublefeature.server.storage import Storage
from doublefeature.server.workers import Workers

T = TypeVar("T")

_CHECK_SECONDS = 1.0


@dataclass(eq=False)
class Service:
    """One running service."""

    settings: Settings
    holder: Holder
    storage: Storage
    workers: Workers
    keepers: Workers
    """Threads for ratings that are written and for models that are swapped: slow, and never starved by questions."""
    metrics: Metrics
    forgetting: threading.Lock = field(default_factory=threading.Lock)
    _check: asyncio.Future[None] | None = None
    _checked: float = 0.0

    async def ask(
        self,
        about: About,
        answer: Callable[[Loaded, Person], T],
        *,
        small: bool = False,
        in_address: bool = False,
    ) -> T:
        """Answer a question about a person, from one model and in one thread.

        `small`: with a row of the table the answer takes less time than handing it to a thread and back.
        `in_address`: the user was named in the address, so that an id of the wrong kind is one that nobody has.
        """
        loaded = self.holder.current
        if small and about.user is not None and about.ratings is None and self.storage.is_file:
            person = self.person(loaded, about, in_address)
            if person.as_fitted and loaded.has_row(person.user):
                return answer(loaded, person)

        def work() -> T:
            loaded = self.holder.current
            return answer(loaded, self.person(loaded, about, in_address))

        return await self.workers.run(work)

    def person(self, loaded: Loaded, about: About, in_address: bool = False) -> Person:
        """Return whom a request asks about."""
        if in_address:
            user: int | str | None = user_in_address(loaded, str(about.user))
        else:
            user = None if about.user is None else as_id(loaded, about.user, "user")
        if about.ratings is not None:
            return sent_person(loaded, user, about.ratings)
        return stored_person(loaded, user, {} if user is None else self.storage.changes(user))

    async def look(self, answer: Callable[[Loaded], T]) -> T:
        """Answer a question about the model."""
        return await self.workers.run(lambda: answer(self.holder.current))

    async def check_database(self) -> None:
        """Raise unless the database answers; asked once a second at most, however many want to know."""
        now = time.monotonic()
        if self._check is None or now - self._checked > _CHECK_SECONDS:
            self._checked = now
            self._check = asyncio.ensure_future(self.keepers.run(self.storage.check))
        await asyncio.shield(self._check)

    def close(self) -> None:
        """End threads and connections."""
        self.holder.close()
        self.workers.close()
        self.keepers.close()
        self.storage.close()


async def service_of(request: Request) -> Service:
    """Return the service behind a request (async: as a plain function it would cost every request a thread)."""
    found: Service = request.app.state.service
    return found


Serving = Annotated[Service, Depends(service_of)]
