r"""Which of two items a user prefers: the held-out one or one with a known rating.

Every held-out rating r_i of a user stands against every rating r_j of the same user in the training part, whose level
is known. What is predicted is P(r_i > r_j) and P(r_i < r_j), from the level probabilities of the held-out item.

    pairs_authors   is r_i > r_j? Ties count as "no". Answered "yes" when P(r_i > r_j) > 1/2, the best rule
    pairs_strict    pairs without ties: right when the lead P(r_i > r_j) − P(r_i < r_j) has the right sign, half when 0
    pairs_auc       pairs without ties: how often one with r_i > r_j has a larger lead than one with r_i < r_j, equal
                    leads half (the area under the curve)

Every held-out rating counts once, however many pairs it is in: its pairs are averaged first. (The authors take one
random pair per user; this is what they get on average.) A user's training ratings matter through their counts by level
only, so no list of pairs is ever built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.bootstrap import RESAMPLES, Ratio, Scores, Tally, judge_tallies
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Area:
    """The area under the curve over groups of equal scores, from the lowest score on."""

    users: Codes
    rows: Codes  # place of each entry's user in `users`
    groups: Codes  # group of equal scores, ascending
    wins: FloatArray  # weight of the entry's pairs with r_i > r_j
    losses: FloatArray

    @classmethod
    def of(cls, users: Codes, scores: FloatArray, wins: FloatArray, losses: FloatArray) -> Area:
        """Sort entries by score; `users` has one code per entry."""
        known, rows = np.unique(users, return_inverse=True)
        _, groups = np.unique(scores, return_inverse=True)
        return cls(known, rows, groups, wins, losses)

    def value(self, weights: FloatArray) -> float:
        """Return the share of (win, loss) couples in which the win has the higher score, ties half."""
        counts = weights[self.rows]
        wins, losses = (np.bincount(self.groups, counts * part) for part in (self.wins, self.losses))
        couples = wins.sum() * losses.sum()
        right = wins @ (losses.cumsum() - 0.5 * losses)
        return float(right / couples) if couples > 0.0 else math.nan


def score_pairs(
    proba: FloatArray,
    truth: NDArray[np.integer],
    users: NDArray[np.integer],
    train: Ratings,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Scores:
    """Return the three pairwise scores of held-out ratings against the same users' training ratings.

    Parameters
    ----------
    proba, truth, users
        Level probabilities, level code and user code of every held-out rating.
    train
        The training part, with the same user codes.
    """
    given, judged = np.asarray(truth, np.int64), np.asarray(users, np.int64)
    raters, _, levels = train.triples()
    cells = raters.astype(np.int64) * train.n_levels + levels
    by_user = np.bincount(cells, minlength=train.n_users * train.n_levels).reshape(train.n_users, train.n_levels)
    others = by_user[judged].astype(np.float64)
    above = 1.0 - proba.cumsum(axis=1)
    lead = above - (1.0 - above - proba)
    higher, lower = (given[:, None] > np.arange(train.n_levels)), (given[:, None] < np.arange(train.n_levels))
    every, strict = _shares(others), _shares(others * (higher | lower))
    says_right = (above > 0.5) == higher
    leads_right = np.where(np.abs(lead) < 1e-12, 0.5, np.where(higher, lead > 0.0, lead < 0.0))
    entry = strict > 0.0
    tallies: dict[str, Tally] = {
        "pairs_authors": Ratio.of(judged, (every * says_right).sum(axis=1), every.sum(axis=1).round()),
        "pairs_strict": Ratio.of(judged, (strict * leads_right).sum(axis=1), strict.sum(axis=1).round()),
        "pairs_auc": Area.of(
            np.broadcast_to(judged[:, None], entry.shape)[entry],
            lead[entry].round(12),
            (strict * higher)[entry],
            (strict * lower)[entry],
        ),
    }
    return judge_tallies(given.size, tallies, resamples=resamples, seed=seed)


def _shares(counts: FloatArray) -> FloatArray:
    """Return counts over their sum in every row, zeros where there are none."""
    shares: FloatArray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return shares
