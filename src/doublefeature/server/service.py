"""What routes work with: the model, the database, and the threads between them and a request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from doublefeature.server.metrics import Metrics
from doublefeature.server.models import Holder, Loaded
from doublefeature.server.people import Person, as_id, find_person
from doublefeature.server.schemas.asked import About
from doublefeature.server.settings import Settings
from doublefeature.server.storage import Storage
from doublefeature.server.workers import Workers

T = TypeVar("T")


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

    async def ask(self, about: About, answer: Callable[[Loaded, Person], T], *, small: bool = False) -> T:
        """Answer a question about a person, from one model and in one thread.

        `small`: with a row of the table the answer takes less time than handing it to a thread and back.
        """
        loaded = self.holder.current
        if small and about.user is not None and about.ratings is None and self.storage.is_file:
            person = self.person(loaded, about)
            if person.as_fitted and loaded.has_row(person.user):
                return answer(loaded, person)

        def work() -> T:
            loaded = self.holder.current
            return answer(loaded, self.person(loaded, about))

        return await self.workers.run(work)

    def person(self, loaded: Loaded, about: About) -> Person:
        """Return whom a request asks about."""
        user = None if about.user is None else as_id(loaded, about.user, "user")
        changes = {} if user is None or about.ratings is not None else self.storage.changes(user)
        return find_person(loaded, about, changes)

    async def look(self, answer: Callable[[Loaded], T]) -> T:
        """Answer a question about the model."""
        return await self.workers.run(lambda: answer(self.holder.current))

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
