r"""Rules that need no model, printed beside every model: what it has to beat.

    constant    the shares of levels among the training ratings
    item mean   μ + b_i
    bias        μ + b_u + b_i

Offsets are those of a random effects model: $b_i = \sum_u (r_{ui} - \mu - b_u) / (n_i + \lambda)$ with
$\lambda = \sigma^2 / \sigma_b^2$, found by a few alternating passes that also renew the variances. Numbers become level
probabilities by an ordinal calibration on training ratings left out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.bootstrap import sums_by
from doublefeature.evaluation.calibrate import OrdinalCalibration, fit_calibration
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

BASELINES = ("constant", "item mean", "bias")
FOLDS = 5
MOST_CALIBRATED = 200_000
"""Ratings that a calibration is fitted to; of more, so many drawn at random."""

_PASSES = 15


class Predicted(NamedTuple):
    """What a predictor says about some pairs."""

    proba: FloatArray  # (pairs, levels)
    mean: FloatArray  # (pairs,)  point predictions for squared error


class Predictor(Protocol):
    """Anything that was fitted to training ratings and speaks in codes."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def predict(self, users: Codes, items: Codes) -> Predicted:
        """Return level probabilities and point predictions of pairs."""
        ...

    def means(self, users: Codes) -> FloatArray:
        """Return a number to rank by for every item, shape (users, items)."""
        ...


@dataclass(frozen=True, eq=False)
class Constant:
    """Says the same of every pair: the shares of levels, each level counted once more than seen."""

    shares: FloatArray
    values: FloatArray
    n_items: int
    name: str = "constant"

    def predict(self, users: Codes, items: Codes) -> Predicted:
        """Return the shares for every pair."""
        return Predicted(np.tile(self.shares, (users.size, 1)), np.full(users.size, self.shares @ self.values))

    def means(self, users: Codes) -> FloatArray:
        """Return the same number for every item."""
        return np.full((users.size, self.n_items), self.shares @ self.values)


@dataclass(frozen=True, eq=False)
class Offsets:
    """A mean rating with offsets of users and of items."""

    centre: float
    user: FloatArray
    item: FloatArray

    def points(self, users: Codes, items: Codes) -> FloatArray:
        """Return μ + b_u + b_i of every pair."""
        return self.centre + self.user[users] + self.item[items]


@dataclass(frozen=True, eq=False)
class Additive:
    """Offsets with a calibration."""

    name: str
    offsets: Offsets
    calibration: OrdinalCalibration
    values: FloatArray

    def predict(self, users: Codes, items: Codes) -> Predicted:
        """Return calibrated probabilities and the sum of offsets, kept within the levels."""
        points = self.offsets.points(users, items)
        return Predicted(self.calibration.proba(points), points.clip(self.values.min(), self.values.max()))

    def means(self, users: Codes) -> FloatArray:
        """Return μ + b_u + b_i for every item."""
        numbers: FloatArray = self.offsets.centre + self.offsets.user[users][:, None] + self.offsets.item
        return numbers


def fit_baselines(train: Ratings, *, seed: int = 0) -> list[Predictor]:
    """Fit every rule to the training ratings."""
    values = level_values(train.levels)
    shares = (train.level_counts + 1.0) / (train.n_ratings + train.n_levels)
    return [
        Constant(shares, values, train.n_items),
        _additive("item mean", train, values, with_users=False, seed=seed),
        _additive("bias", train, values, with_users=True, seed=seed),
    ]


def fit_offsets(train: Ratings, values: FloatArray, *, with_users: bool) -> Offsets:
    """Fit the mean, item offsets and, if asked for, user offsets."""
    users, items, levels = (column.astype(np.int64) for column in train.triples())
    ratings = values[levels]
    centre = float(ratings.mean()) if ratings.size else float(values.mean())
    user, item = _Effect(users, train.n_users), _Effect(items, train.n_items)
    noise = float(ratings.var()) if ratings.size > 1 and ratings.var() > 0.0 else 1.0
    for _ in range(_PASSES):
        item.renew(ratings - centre - user.offset[users], noise)
        if with_users:
            user.renew(ratings - centre - item.offset[items], noise)
        left = ratings - centre - user.offset[users] - item.offset[items]
        noise = max(float((left**2).mean()), 1e-12) if left.size else noise
        centre += float(left.mean()) if left.size else 0.0
    return Offsets(centre, user.offset, item.offset)


class _Effect:
    """Offsets of users or of items, drawn towards 0 by as much as their spread asks for."""

    def __init__(self, codes: Codes, size: int) -> None:
        self.codes, self.offset, self.variance = codes, np.zeros(size), 1.0
        self.counts = np.bincount(codes, minlength=size).astype(np.float64)

    def renew(self, left: FloatArray, noise: float) -> None:
        """Fit offsets to what is left without them, then their variance, E[b²] over those with ratings."""
        penalty = noise / self.variance
        self.offset = sums_by(self.codes, left, self.counts.size) / (self.counts + penalty)
        seen = self.counts > 0
        squares = self.offset**2 + noise / (self.counts + penalty)
        self.variance = max(float(squares[seen].mean()), 1e-9) if seen.any() else self.variance


def _additive(name: str, train: Ratings, values: FloatArray, *, with_users: bool, seed: int) -> Additive:
    """Fit to all ratings; calibrate on predictions of each fold by the others."""
    folds = np.random.default_rng(seed).permutation(train.n_ratings) % min(FOLDS, max(2, train.n_ratings))
    users, items, levels = (column.astype(np.int64) for column in train.triples())
    points = np.empty(train.n_ratings)
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        offsets = fit_offsets(train.subset(~out), values, with_users=with_users)
        points[out] = offsets.points(users[out], items[out])
    chosen = np.random.default_rng(seed).permutation(train.n_ratings)[:MOST_CALIBRATED]
    calibration = fit_calibration(points[chosen], levels[chosen], train.n_levels)
    return Additive(name, fit_offsets(train, values, with_users=with_users), calibration, values)
