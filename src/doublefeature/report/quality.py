"""How good predictions are on ratings the model has not seen, beside rules that need no model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.reliability import Bin, calibration, calibration_gap, share_interval
from doublefeature.evaluation.scores import LEAST_PROBABILITY as LEAST_PROBABILITY
from doublefeature.evaluation.scores import MASSES, answers, log_scores
from doublefeature.levels import Level
from doublefeature.posterior.prediction import Prediction, level_values, shortest_interval
from doublefeature.ratings import Ratings
from doublefeature.recommender import DoubleFeature

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

MOST_RATINGS = 100_000
"""Held-out ratings looked at; of more, every so many."""

_SHRINK = 5.0


class Coverage(NamedTuple):
    """How often the observed level lay within the predicted runs of levels."""

    mass: float  # probability asked for
    promised: float  # mean probability the runs hold: more, because levels cannot be cut
    observed: float
    lower: float
    upper: float


class Rule(NamedTuple):
    """What one way to predict made of the held-out ratings."""

    name: str
    exact: float
    within_one: float
    rmse: float
    log_score: float  # mean log probability of what was observed; NaN for rules without probabilities
    squared: FloatArray  # squared error of each rating


@dataclass(frozen=True, eq=False)
class Quality:
    """The model beside simple rules, all on the same held-out ratings."""

    n: int
    n_heldout: int
    model: Rule
    rules: list[Rule]
    bins: list[Bin]
    coverage: list[Coverage]

    @property
    def best_rule(self) -> Rule:
        """The simple rule with the smallest error."""
        return min(self.rules, key=lambda rule: rule.rmse)

    @property
    def advantage(self) -> float:
        """By how many standard errors the model's squared error is below that of the best simple rule."""
        gain = self.best_rule.squared - self.model.squared
        error = float(gain.std(ddof=1)) / math.sqrt(gain.size) if gain.size > 1 else math.inf
        mean = float(gain.mean())
        return 0.0 if mean == 0.0 else mean / error if error > 0.0 else math.copysign(math.inf, mean)

    @property
    def gap(self) -> float:
        """Mean distance between predicted probability and observed share."""
        return calibration_gap(self.bins)

    @property
    def misses(self) -> int:
        """Bins whose interval does not hold the predicted probability."""
        return sum(not part.lower <= part.predicted <= part.upper for part in self.bins)


def measure(model: DoubleFeature) -> Quality | None:
    """Return how good the model is on its held-out ratings; None when there are none."""
    heldout = model.heldout_
    if heldout is None or not heldout.n_ratings:
        return None
    chosen = np.linspace(0, heldout.n_ratings - 1, min(heldout.n_ratings, MOST_RATINGS)).round().astype(int)
    users, items, truth = (column[chosen].astype(np.int64) for column in heldout.triples())
    pairs = [(heldout.users[user], heldout.items[item]) for user, item in zip(users, items, strict=True)]
    prediction = model.predict(pairs)
    proba = prediction.proba
    return Quality(
        n=int(truth.size),
        n_heldout=heldout.n_ratings,
        model=_judge_model(prediction, truth),
        rules=simple_rules(model.ratings_, users, items, truth),
        bins=calibration(proba, truth),
        coverage=[coverage(proba, truth, mass) for mass in MASSES],
    )


def simple_rules(train: Ratings, users: Codes, items: Codes, truth: Codes) -> list[Rule]:
    """Return what needs no model: the most frequent level, the item's mean, and that plus the user's habit.

    The habit is the user's mean distance from item means, drawn towards 0 as if five more ratings showed none.
    """
    values = level_values(train.levels)
    raters, rated, levels = (column.astype(np.int64) for column in train.triples())
    shares = (train.level_counts + 1.0) / (train.n_ratings + train.n_levels)
    counts = np.zeros((train.n_items, train.n_levels))
    np.add.at(counts, (rated, levels), 1.0)
    by_item = counts + _SHRINK * shares
    by_item /= by_item.sum(axis=1, keepdims=True)
    totals = counts.sum(axis=1)
    overall = float(values[levels].mean()) if levels.size else float(values.mean())
    item_mean = np.where(totals > 0, counts @ values / np.maximum(totals, 1.0), overall)
    surplus = np.bincount(raters, values[levels] - item_mean[rated], minlength=train.n_users)
    habit = surplus / (np.bincount(raters, minlength=train.n_users) + _SHRINK)
    common = np.full(truth.size, int(train.level_counts.argmax()))
    plain, shifted = item_mean[items], item_mean[items] + habit[users]
    rows: list[tuple[str, FloatArray | None, FloatArray, Codes]] = [
        ("most frequent level", np.tile(shares, (truth.size, 1)), values[common], common),
        ("item mean", by_item[items], plain, _nearest(plain, values)),
        ("item mean and user’s habit", None, shifted.clip(values.min(), values.max()), _nearest(shifted, values)),
    ]
    return [_judge(name, proba, mean, (level, level), truth, train.levels) for name, proba, mean, level in rows]


def coverage(proba: FloatArray, truth: Codes, mass: float) -> Coverage:
    """Return how often the truth lay in the shortest run of levels that holds this probability."""
    lower, upper = shortest_interval(proba, mass)
    places = np.arange(proba.shape[1])
    inside = (places >= lower[:, None]) & (places <= upper[:, None])
    hits = int(((truth >= lower) & (truth <= upper)).sum())
    promised = float((proba * inside).sum(axis=1).mean())
    return Coverage(mass, promised, hits / truth.size, *share_interval(hits, truth.size))


def _judge_model(prediction: Prediction, truth: Codes) -> Rule:
    """Judge each number by the answer that suits it: the mode, the window and the mean."""
    mode, _, window = answers(prediction.proba)
    return _judge("doublefeature", prediction.proba, prediction.mean, (mode, window), truth, prediction.levels)


def _judge(
    name: str,
    proba: FloatArray | None,
    mean: FloatArray,
    answers: tuple[Codes, Codes],
    truth: Codes,
    levels: Sequence[Level],
) -> Rule:
    """Return a rule's numbers; `answers` are the levels judged by being exact and by being at most one off."""
    squared = (mean - level_values(levels)[truth]) ** 2
    score = math.nan if proba is None else float(log_scores(proba, truth).mean())
    exact, near = float((answers[0] == truth).mean()), float((np.abs(answers[1] - truth) <= 1).mean())
    return Rule(name, exact, near, math.sqrt(squared.mean()), score, squared)


def _nearest(numbers: FloatArray, values: FloatArray) -> Codes:
    return np.asarray(np.abs(numbers[:, None] - values).argmin(axis=1))
