"""How the workers that run one chain together talk to each other."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """One worker's way to the others. Every worker makes the same calls in the same order."""

    @property
    def rank(self) -> int:
        """Number of this worker: 0, …, size − 1."""

    @property
    def size(self) -> int:
        """How many workers there are."""

    def exchange(self, mine: bytes) -> list[bytes]:
        """Give bytes to everybody and return everybody's, in the order of ranks. Lengths may differ.

        Raises when another worker is gone; the link is then of no use any more.
        """


class Alone:
    """The link of a worker without others."""

    rank = 0
    size = 1

    def exchange(self, mine: bytes) -> list[bytes]:
        """Return one's own bytes."""
        return [mine]
