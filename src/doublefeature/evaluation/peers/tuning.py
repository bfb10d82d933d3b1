"""The search for a model's settings: from a few starts, up and down ladders of values until no step is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from doublefeature.evaluation.peers.base import Peer, Settings, Value

_WORTH = 0.001
"""A step has to gain this much in log score: less is chance, and would lead far up ladders that do not matter."""


@dataclass(frozen=True)
class Search:
    """Where tuning begins, and along what it goes on.

    Attributes
    ----------
    starts
        Settings that are tried first.
    ladders
        By name of a setting, its values in order. From the best start one setting after the other goes up or down its
        ladder while that pays, round after round until no step does.
    """

    starts: Sequence[Settings]
    ladders: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    @classmethod
    def of(cls, peer: Peer) -> Search:
        """Return the search among everything that a model can be set to."""
        return cls(peer.starts, peer.ladders)

    @property
    def chooses(self) -> bool:
        """Whether there is more than one thing to try."""
        return len(self.starts) > 1 or bool(self.ladders)

    def run(self, score: Callable[[Settings], float | None]) -> None:
        """Try settings; `score` is asked once for each, and answers None where a fit did not finish."""
        known: dict[tuple[tuple[str, Value], ...], float] = {}

        def ask(settings: Settings) -> float:
            key = tuple(settings.items())
            if key not in known:
                found = score(settings)
                known[key] = -math.inf if found is None else found
            return known[key]

        here, before = max(self.starts, key=ask), None
        while here != before and ask(here) > -math.inf:
            before = here
            for name in self.ladders:
                for step in (1, -1):
                    here = self._walk(here, name, step, ask)

    def _walk(self, here: Settings, name: str, step: int, ask: Callable[[Settings], float]) -> Settings:
        """Go one way along a ladder while that pays."""
        ladder = self.ladders[name]
        while 0 <= (place := ladder.index(here[name]) + step) < len(ladder):
            there = {**here, name: ladder[place]}
            if ask(there) < ask(here) + _WORTH:
                break
            here = there
        return here

    def ends(self, settings: Settings) -> list[str]:
        """Return what lies at an end of its ladder, where more might have been better: numbers only."""
        return [
            f"{name} {settings[name]}"
            for name, ladder in self.ladders.items()
            if settings[name] in (ladder[0], ladder[-1]) and not isinstance(ladder[0], bool)
        ]
