"""The diagnosis of a model over shards: each shard's chains, and how far shards agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from doublefeature.inference.diagnostics import Diagnosis

_LEVELS = ("good", "usable", "run longer")


@dataclass(frozen=True)
class ShardedDiagnosis:
    """What is known about the chains of every shard. The verdict is that of the worst."""

    parts: list[Diagnosis]
    consensus: dict[str, str]
    """How far shards agree, in words."""

    @property
    def level(self) -> str:
        """One of good, usable and run longer."""
        return max((part.level for part in self.parts), key=_LEVELS.index)

    @property
    def worst(self) -> int:
        """The shard with the largest simulation error among those of the worst level."""
        shards = [shard for shard, part in enumerate(self.parts) if part.level == self.level]
        return max(shards, key=lambda shard: (math.isnan(self.parts[shard].error), self.parts[shard].error))

    def reasons(self) -> list[str]:
        """Return why the verdict is what it is, in plain sentences."""
        counts = [f"{sum(part.level == level for part in self.parts)} {level}" for level in _LEVELS]
        told = f"Of {len(self.parts)} shards, {', '.join(counts)}. Shard {self.worst} is the worst:"
        return [told, *self.parts[self.worst].reasons(), *(f"{k}: {v}." for k, v in self.consensus.items())]

    def advice(self) -> list[str]:
        """Return what would help, in plain sentences."""
        return self.parts[self.worst].advice()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "level": self.level,
            "reasons": self.reasons(),
            "advice": self.advice(),
            "consensus": self.consensus,
            "shards": [part.to_dict() for part in self.parts],
        }

    def lines(self) -> list[str]:
        """Return the verdict and a line per shard as plain text."""
        told = [f"Verdict: {self.level}", *self.reasons(), *self.advice(), ""]
        for shard, part in enumerate(self.parts):
            features = sum(chain.n_features for chain in part.chains) / len(part.chains)
            error = f"simulation error {part.error:.2f} of a level"
            if math.isnan(part.error):
                error = "too few draws for a simulation error"
            told.append(f"shard {shard}: {part.level}, K {features:.1f}, {error}")
        return told
