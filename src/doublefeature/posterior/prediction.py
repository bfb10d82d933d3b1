"""What is predicted for (user, item) pairs, and the decisions that follow from it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import SettingsError, show
from doublefeature.levels import Level, level_position

FloatArray = NDArray[np.float64]
Positions = NDArray[np.int64]
Loss = Literal["mode", "median", "mean", "window"]

_SLACK = 1e-12  # sums of probabilities that differ by less are equal


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted levels of (user, item) pairs.

    Attributes
    ----------
    pairs
        Raw ids of users and items.
    levels
        Level labels from lowest to highest.
    proba
        Probability of every level, shape (pairs, levels).
    known
        Whether the user and whether the item was in the training data, shape (pairs, 2). Where not, the prior
        speaks.
    """

    pairs: list[tuple[Hashable, Hashable]]
    levels: tuple[Level, ...]
    proba: FloatArray
    known: NDArray[np.bool_]

    @property
    def mean(self) -> FloatArray:
        """Mean rating of each pair; text levels count as 1, 2, …."""
        return self.proba @ level_values(self.levels)

    @property
    def sd(self) -> FloatArray:
        """Standard deviation of the rating of each pair."""
        return level_sd(self.proba, level_values(self.levels))

    @property
    def mode(self) -> list[Level]:
        """The most probable level of each pair; of equals the lowest."""
        return self._labels(_first_largest(self.proba))

    @property
    def median(self) -> list[Level]:
        """The lowest level that the rating exceeds with probability of at most one half."""
        return self._labels(level_quantile(self.proba, 0.5))

    @property
    def window(self) -> list[Level]:
        """The level most likely to be missed by at most one step; of equals the lowest."""
        padded = np.pad(self.proba, ((0, 0), (1, 1)))
        return self._labels(_first_largest(padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]))

    def interval(self, mass: float = 0.8) -> tuple[list[Level], list[Level]]:
        """Return the ends of the shortest run of levels that holds at least this probability."""
        lower, upper = shortest_interval(self.proba, mass)
        return self._labels(lower), self._labels(upper)

    def at_least(self, level: Level) -> FloatArray:
        """Return the probability that the rating is this level or a higher one."""
        return at_least(self.proba, level_position(level, self.levels))

    def decide(self, loss: Loss) -> list[Level]:
        """Return the best single answer for each pair under a loss.

        Parameters
        ----------
        loss
            "mode": every miss costs the same; "median": a miss costs its number of steps; "window": a miss by at
            most one step is free; "mean": a miss costs its squared size, and the answer may lie between levels.
        """
        if loss == "mean":
            return [float(value) for value in self.mean]
        if loss not in ("mode", "median", "window"):
            raise SettingsError(f"loss must be 'mode', 'median', 'mean' or 'window', got {show(loss)}.")
        chosen: list[Level] = getattr(self, loss)
        return chosen

    def to_rows(self, mass: float = 0.8) -> list[dict[str, Any]]:
        """Return one plain row per pair, ready for CSV or JSON; `prior` names what was unknown."""
        lower, upper = self.interval(mass)
        columns = zip(self.mean.tolist(), self.median, self.mode, self.sd.tolist(), lower, upper, strict=True)
        names = ("mean", "median", "mode", "sd", "lower", "upper")
        chances = [f"p_{str(level).removesuffix('.0')}" for level in self.levels]
        rows = []
        for (user, item), summary, proba, known in zip(
            self.pairs, columns, self.proba.tolist(), self.known, strict=True
        ):
            row: dict[str, Any] = {"user": user, "item": item}
            row |= dict(zip(names, summary, strict=True)) | dict(zip(chances, proba, strict=True))
            row["prior"] = " and ".join(name for name, there in zip(("user", "item"), known, strict=True) if not there)
            rows.append(row)
        return rows

    def _labels(self, positions: Positions) -> list[Level]:
        return [self.levels[position] for position in positions.tolist()]


def level_values(levels: Sequence[Level]) -> FloatArray:
    """Return what each level counts as in a mean.

    Its number when the numbers rise or fall from level to level; else, as for text, 1, 2, ….
    """
    if not isinstance(levels[0], str):
        steps = {low < high for low, high in pairwise(levels)}  # type: ignore[operator]
        if len(steps) == 1:
            return np.array(levels, dtype=np.float64)
    return np.arange(1.0, len(levels) + 1.0)


def level_sd(proba: FloatArray, values: FloatArray) -> FloatArray:
    """Return the standard deviation of ratings with these level probabilities."""
    gaps = values - (proba @ values)[:, None]
    spread: FloatArray = np.sqrt((proba * gaps**2).sum(axis=1))
    return spread


def level_quantile(proba: FloatArray, share: float) -> Positions:
    """Return the position of the lowest level reached with at least this probability from below."""
    if not 0.0 < share < 1.0:
        raise SettingsError(f"a quantile must lie between 0 and 1, got {show(share)}.")
    positions: Positions = (proba.cumsum(axis=1) >= share - _SLACK).argmax(axis=1)
    return positions


def at_least(proba: FloatArray, position: int) -> FloatArray:
    """Return the probability of the level at this position or a higher one."""
    chance: FloatArray = proba[:, position:].sum(axis=1)
    return chance


def shortest_interval(proba: FloatArray, mass: float) -> tuple[Positions, Positions]:
    """Return first and last position of the shortest run of levels with at least this probability.

    Of several such runs the most probable, then the lowest.
    """
    if not 0.0 < mass <= 1.0:
        raise SettingsError(f"mass must be above 0 and at most 1, got {show(mass)}.")
    n_pairs, n_levels = proba.shape
    sums = np.concatenate([np.zeros((n_pairs, 1)), proba.cumsum(axis=1)], axis=1)
    lower, upper = np.zeros(n_pairs, np.int64), np.full(n_pairs, n_levels - 1)
    for width in range(n_levels - 1, 0, -1):
        runs = sums[:, width:] - sums[:, :-width]
        enough = runs.max(axis=1) >= mass - _SLACK
        lower[enough] = _first_largest(runs[enough])
        upper[enough] = lower[enough] + width - 1
    return lower, upper


def _first_largest(table: FloatArray) -> Positions:
    """Return the first column of each row that holds the row's largest entry, up to rounding."""
    positions: Positions = (table >= table.max(axis=1, keepdims=True) - _SLACK).argmax(axis=1)
    return positions
