"""What is kept of a judgement: sums by user, and standard errors by drawing users again.

Ratings of one user go together, so users, not ratings, are drawn with replacement. Two judgements of the same users
are compared under the same draws, and splits that share users are averaged under the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_count
from doublefeature.errors import SettingsError, show

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

RESAMPLES = 200
"""Draws of users behind a standard error, which is then right to about 5 %."""


class Estimate(NamedTuple):
    """A score and its standard error; NaN where the data do not tell."""

    value: float
    error: float


def sums_by(codes: Codes, numbers: FloatArray, n_codes: int) -> FloatArray:
    """Return the sum of the numbers that go with each code."""
    return np.asarray(np.bincount(codes, numbers, minlength=n_codes), np.float64)


class Tally(Protocol):
    """A score as a function of how often each user counts."""

    @property
    def users(self) -> Codes:
        """Codes of the users it is about, ascending."""
        ...

    def value(self, weights: FloatArray) -> float:
        """Return the score when user `users[j]` counts `weights[j]` times."""
        ...


@dataclass(frozen=True, eq=False)
class Ratio:
    """Sums by user over counts by user: a mean, or the root of one."""

    users: Codes
    sums: FloatArray
    counts: FloatArray
    root: bool = False

    @classmethod
    def of(cls, users: Codes, losses: FloatArray, counts: FloatArray | None = None, *, root: bool = False) -> Ratio:
        """Add up losses, and what they are divided by, over the ratings of each user."""
        known, places = np.unique(users, return_inverse=True)
        weights = np.ones(users.size) if counts is None else counts
        sums, totals = (sums_by(places, column, known.size) for column in (losses, weights))
        return cls(known, sums, totals, root)

    def value(self, weights: FloatArray) -> float:
        """Return Σ weight · sum / Σ weight · count, or its root."""
        total = float(weights @ self.counts)
        mean = float(weights @ self.sums) / total if total > 0.0 else math.nan
        return math.sqrt(mean) if self.root else mean


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores by name, each with a standard error, and the tallies they come from."""

    n_ratings: int
    tallies: Mapping[str, Tally]
    estimates: Mapping[str, Estimate]

    def __getitem__(self, name: str) -> Estimate:
        """Return a score and its standard error."""
        if name not in self.estimates:
            raise SettingsError(f"there is no score {show(name)}. Known are: {', '.join(self.estimates)}.")
        return self.estimates[name]

    def __or__(self, other: Scores) -> Scores:
        """Return the scores of both."""
        return Scores(self.n_ratings, {**self.tallies, **other.tallies}, {**self.estimates, **other.estimates})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; None for what is not a number."""
        return {name: plain(estimate) for name, estimate in self.estimates.items()}


def plain(estimate: Estimate) -> dict[str, float | None]:
    """Return a score and its standard error for JSON."""
    pairs = zip(("value", "error"), estimate, strict=True)
    return {key: float(number) if math.isfinite(number) else None for key, number in pairs}


def judge_tallies(n_ratings: int, tallies: Mapping[str, Tally], *, resamples: int = RESAMPLES, seed: int = 0) -> Scores:
    """Return every tally's score with its standard error."""
    estimates = {name: mean_score([tally], resamples=resamples, seed=seed) for name, tally in tallies.items()}
    return Scores(n_ratings, dict(tallies), estimates)


def mean_score(tallies: Sequence[Tally], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Return the mean of one score over splits, with its standard error."""
    return _estimate(tallies, [1.0 / len(tallies)] * len(tallies), resamples, seed)


def paired_difference(
    one: Scores | Sequence[Scores],
    other: Scores | Sequence[Scores],
    name: str,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return how far one score is above another on the same ratings, with the standard error of the difference.

    Sequences are judgements on several splits in the same order; their mean difference is returned.
    """
    ours, theirs = ([part] if isinstance(part, Scores) else list(part) for part in (one, other))
    mine, yours = ([scores.tallies[name] for scores in part if scores[name]] for part in (ours, theirs))
    same = len(mine) == len(yours) and all(np.array_equal(a.users, b.users) for a, b in zip(mine, yours, strict=True))
    if not same:
        raise SettingsError("a paired difference needs two judgements of the same ratings. Use the same splits.")
    share = 1.0 / len(mine)
    return _estimate([*mine, *yours], [share] * len(mine) + [-share] * len(yours), resamples, seed)


def _estimate(tallies: Sequence[Tally], factors: Sequence[float], resamples: int, seed: int) -> Estimate:
    """Return Σ factor · score, and its standard deviation over draws of users."""
    check_count("resamples", resamples, least=2)
    everyone = np.unique(np.concatenate([tally.users for tally in tallies]))
    places = [np.searchsorted(everyone, tally.users) for tally in tallies]

    def total(weights: FloatArray) -> float:
        parts = zip(tallies, factors, places, strict=True)
        return sum(factor * tally.value(weights[place]) for tally, factor, place in parts)

    drawn = np.array([total(weights) for weights in _draw_users(everyone.size, resamples, seed)])
    told = np.isfinite(drawn)
    enough = everyone.size > 1 and np.count_nonzero(told) > 1
    error = float(drawn[told].std(ddof=1)) if enough else math.nan
    return Estimate(total(np.ones(everyone.size)), error)


def _draw_users(n: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """Yield how often each of n users is drawn, with replacement, in n draws."""
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)


class Judgements:
    """Judgements of several methods on the same splits; scores over all splits are found once."""

    scores: Mapping[str, list[Scores]]  # one judgement per split
    reference: str  # the method that differences are taken from

    @cached_property
    def summaries(self) -> dict[str, dict[str, Estimate]]:
        """By method, the mean over splits of every score, with its standard error."""
        return {method: _over_splits(parts) for method, parts in self.scores.items()}

    @cached_property
    def leads(self) -> dict[str, dict[str, Estimate]]:
        """By method, how far the reference's scores are above its own, paired, mean over splits."""
        ours = self.scores[self.reference]
        return {
            method: {name: paired_difference(ours, parts, name) for name in common_names([*ours, *parts])}
            for method, parts in self.scores.items()
            if method != self.reference
        }

    def summary(self, method: str) -> dict[str, Estimate]:
        """Return the mean over splits of every score of a method, with its standard error."""
        return self.summaries[method]

    def differences(self, method: str) -> dict[str, Estimate]:
        """Return how far the reference's scores are above those of another method, paired, mean over splits."""
        return self.leads[method]


def _over_splits(parts: Sequence[Scores]) -> dict[str, Estimate]:
    if len(parts) == 1:
        return dict(parts[0].estimates)
    return {name: mean_score([scores.tallies[name] for scores in parts]) for name in common_names(parts)}


def common_names(parts: Sequence[Scores]) -> list[str]:
    """Return the scores that all judgements have, in the order of the first."""
    return [name for name in parts[0].estimates if all(name in scores.estimates for scores in parts)]
