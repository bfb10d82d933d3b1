"""Whether predicted probabilities come true: bins of predictions beside how often they were right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.bootstrap import sums_by

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

BINS = 10

_Z = 1.959963984540054


class Bin(NamedTuple):
    """Predictions with about the same probability, and how often they came true."""

    n: int
    predicted: float  # mean predicted probability
    observed: float  # share that came true
    lower: float  # 95 % interval of that share
    upper: float


@dataclass(frozen=True, eq=False)
class CalibrationError:
    """The expected calibration error, with what each user adds to every bin."""

    users: Codes
    counts: FloatArray  # (users, bins)
    predicted: FloatArray  # (users, bins)  sums of predicted probabilities
    hits: FloatArray  # (users, bins)

    @classmethod
    def of(cls, proba: FloatArray, truth: Codes, users: Codes, n_bins: int = BINS) -> CalibrationError:
        """Sort all (rating, level) pairs into bins of equal width."""
        known, rows = np.unique(users, return_inverse=True)
        cells = rows[:, None] * n_bins + _places(proba, n_bins)
        shape = (known.size, n_bins)

        def by_cell(weights: FloatArray) -> FloatArray:
            return sums_by(cells.ravel(), weights.ravel(), known.size * n_bins).reshape(shape)

        came_true = (truth[:, None] == np.arange(proba.shape[1])).astype(np.float64)
        return cls(known, by_cell(np.ones(proba.shape)), by_cell(proba), by_cell(came_true))

    def value(self, weights: FloatArray) -> float:
        """Return Σ_bins |predicted − hits| over all pairs."""
        gaps = np.abs(weights @ self.predicted - weights @ self.hits).sum()
        return float(gaps / (weights @ self.counts).sum())

    def bins(self) -> list[Bin]:
        """Return the bins that hold a pair.

        The intervals take pairs as independent; those of one rating exclude each other, so they err on the wide side.
        """
        columns = (table.sum(axis=0).tolist() for table in (self.counts, self.predicted, self.hits))
        return [
            Bin(round(n), total / n, hits / n, *share_interval(round(hits), round(n)))
            for n, total, hits in zip(*columns, strict=True)
            if n
        ]


def calibration(proba: FloatArray, truth: Codes, n_bins: int = BINS) -> list[Bin]:
    """Compare predicted probabilities with what came true over all (rating, level) pairs, in equal bins."""
    return CalibrationError.of(proba, truth, np.zeros(truth.size, np.int64), n_bins).bins()


def calibration_gap(bins: Sequence[Bin]) -> float:
    """Return the mean over pairs of the distance between predicted probability and observed share."""
    total = sum(part.n for part in bins)
    return sum(part.n * abs(part.predicted - part.observed) for part in bins) / max(total, 1)


def share_interval(hits: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share: all p with |hits/n − p| ≤ 1.96 √(p (1 − p) / n)."""
    share, weight = hits / n, _Z * _Z / n
    middle = (share + weight / 2) / (1 + weight)
    half = _Z * math.sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    return (0.0 if hits == 0 else middle - half), (1.0 if hits == n else middle + half)


def _places(proba: FloatArray, n_bins: int) -> Codes:
    places: Codes = np.minimum((proba * n_bins).astype(np.int64), n_bins - 1)
    return places
