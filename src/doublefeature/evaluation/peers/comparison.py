"""What comes out of a comparison: scores and costs of several models on the same splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from doublefeature.evaluation.bootstrap import Judgements, Scores, plain
from doublefeature.evaluation.evaluate import SplitFacts
from doublefeature.evaluation.peers.cells import Cell
from doublefeature.evaluation.splits import PROTOCOLS


@dataclass(frozen=True)
class Cost:
    """What a model took on average over splits; memory is the largest."""

    fit_seconds: float
    fit_cpu_seconds: float
    tuning_seconds: float
    answer_seconds: float
    peak_megabytes: float

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Cost:
        """Summarise the runs of one model."""

        def mean(numbers: Iterable[float]) -> float:
            return float(np.mean(list(numbers)))

        return cls(
            mean(cell.usage.wall_seconds for cell in cells),
            mean(cell.usage.cpu_seconds for cell in cells),
            mean(cell.tuning_seconds for cell in cells),
            mean(cell.answer_seconds for cell in cells),
            max(cell.usage.peak_megabytes for cell in cells),
        )


@dataclass(frozen=True, eq=False)
class Comparison(Judgements):
    """Scores and costs of several models on the same splits.

    Attributes
    ----------
    scores, cells
        By name of the model, one entry per split.
    reference
        The model that differences are taken from: this package's, or the first.
    left_out
        By name of the model, why it has no scores.
    notes
        What else a reader should know.
    """

    protocol: str
    splits: list[SplitFacts]
    scores: Mapping[str, list[Scores]]
    cells: Mapping[str, list[Cell]]
    reference: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def cost(self, model: str) -> Cost:
        """Return what a model took."""
        return Cost.of(self.cells[model])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "protocol": self.protocol,
            "holds_out": PROTOCOLS[self.protocol],
            "splits": [vars(facts) for facts in self.splits],
            "reference": self.reference,
            "models": {model: self._model(model) for model in self.scores},
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one plain row per split, model and score, ready for CSV."""
        return [
            {"split": number, "seed": facts.seed, "model": model, "score": name, **plain(estimate)}
            for number, facts in enumerate(self.splits)
            for model, parts in self.scores.items()
            for name, estimate in parts[number].estimates.items()
        ]

    def _model(self, model: str) -> dict[str, Any]:
        lead = self.leads.get(model, {})
        return {
            "scores": {name: plain(estimate) for name, estimate in self.summary(model).items()},
            "reference_minus": {name: plain(estimate) for name, estimate in lead.items()},
            "cost": vars(self.cost(model)),
            "settings": [dict(cell.settings) for cell in self.cells[model]],
            "tried": [
                [{**vars(trial), "settings": dict(trial.settings)} for trial in c.trials] for c in self.cells[model]
            ],
            "by_split": [part.to_dict() for part in self.scores[model]],
        }
