"""Teams: workers, each with a part of the ratings, that run the same function side by side.

A function for a team takes a `Desk` first: its link to the others, and what the worker keeps from one call to the
next. What a worker keeps is gone when it dies; who asks then gathers the workers that are left or have come back,
and hands out the parts again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from doublefeature.errors import EnvironmentProblem
from doublefeature.inference.links import Link


class LostWorker(EnvironmentProblem):
    """A worker of a team is gone, and with it what it kept."""


class TeamLink(Link, Protocol):
    """A link over which each worker can also get something of its own."""

    def trade(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Give every worker its piece, in the order of ranks, and return what every worker has given."""

    def close(self) -> None:
        """Break off, so that the others know."""


@dataclass
class Desk:
    """What a worker has at hand."""

    link: TeamLink
    threads: int = 1
    stop: threading.Event = field(default_factory=threading.Event)
    """Set at the first worker when the call should come back soon."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What is kept from one call to the next."""
    tell: Callable[[dict[str, Any]], None] = lambda news: None
    """Sends news to who asked, while the call still runs."""
    idle_since: float = field(default_factory=time.monotonic)
    """When the last call ended; infinity while one runs."""


class Team(Protocol):
    """Workers that run functions together. Problems of the input or of a machine are raised as they are there."""

    @property
    def size(self) -> int:
        """How many workers there are."""

    def together(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        *,
        stop: threading.Event | None = None,
        news: Callable[[dict[str, Any]], None] | None = None,
    ) -> list[Any]:
        """Run a function on every worker, each with its arguments; return the results in the order of ranks.

        Raises `LostWorker` when a worker is gone. When `stop` is set, the first worker is told so.
        """

    def ask(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on one worker, which must not use its link."""

    def regroup(self) -> None:
        """Gather the workers that are there now, with nothing kept; raises when there is none."""

    def close(self) -> None:
        """Let the workers go."""
