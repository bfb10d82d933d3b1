"""Top-n lists over the whole catalogue: does what a user liked come first?

Candidates are all items without a training rating of the user; nothing is sampled away. Relevant are the user's
held-out ratings of a stated level or a higher one. Users without a relevant held-out item are left out. Held-out items
that the user did not like, and items that were never rated, count alike as not relevant.

    precision_n     relevant items among the first n, over n
    recall_n        relevant items among the first n, over all relevant ones
    ndcg_n          Σ over relevant items at place j ≤ n of 1/log2(1 + j), over the largest sum possible
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_count
from doublefeature.evaluation.bootstrap import RESAMPLES, Ratio, Scores, Tally, judge_tallies
from doublefeature.evaluation.splits import Split
from doublefeature.posterior.ranking import high_position
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]
MeansOf = Callable[[Codes], FloatArray]
"""Predicted mean ratings of all items for some users, shape (users, items)."""

MOST_USERS = 1000
"""Users looked at; of more, so many drawn at random."""

_CELLS = 1_000_000


class Lists(NamedTuple):
    """What the top-n lists of each user hold."""

    users: Codes
    ndcg: FloatArray
    precision: FloatArray
    recall: FloatArray


def relevant_level(n_levels: int) -> int:
    """Return the code of the lowest level that counts as relevant: 4 among 1..5, 8 among 1..10, 1 among 0..1."""
    return high_position(n_levels)


def score_ranking(
    split: Split,
    means: MeansOf,
    *,
    n: int = 10,
    relevant: int | None = None,
    most_users: int | None = MOST_USERS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Scores | None:
    """Return precision, recall and nDCG at n; None when no user has a relevant held-out item.

    Parameters
    ----------
    means
        Gives, for some user codes, a number for every item; higher numbers come first.
    relevant
        Code of the lowest relevant level; None takes `relevant_level`.
    most_users
        Look at so many users at most, drawn at random; None looks at all.
    """
    check_count("n", n, least=1)
    found = _relevant(split, relevant)
    users = _chosen(found, most_users, seed)
    if not users.size:
        return None
    parts = [_judge(split.known, found, batch, means(batch), n, seed) for batch in _batches(users, found.n_items)]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Lists._fields}
    tallies: dict[str, Tally] = {f"{name}_{n}": Ratio.of(users, columns[name]) for name in Lists._fields[1:]}
    return judge_tallies(split.test.n_ratings, tallies, resamples=resamples, seed=seed)


def listed_users(split: Split) -> Codes:
    """Return the users whose lists `score_ranking` looks at unless told otherwise."""
    return _chosen(_relevant(split, None), MOST_USERS, seed=0)


def _relevant(split: Split, relevant: int | None) -> Ratings:
    """Return the held-out ratings at or above the lowest relevant level."""
    border = relevant_level(split.test.n_levels) if relevant is None else relevant
    return split.test.subset(split.test.arrays.levels >= border)


def _chosen(found: Ratings, most: int | None, seed: int) -> Codes:
    users = np.flatnonzero(np.diff(found.arrays.user_ptr))
    if most is not None and users.size > most:
        users = np.sort(np.random.default_rng(seed).choice(users, most, replace=False))
    return users


def _batches(users: Codes, n_items: int) -> Iterator[Codes]:
    step = max(1, _CELLS // max(1, n_items))
    for first in range(0, users.size, step):
        yield users[first : first + step]


def _judge(train: Ratings, found: Ratings, users: Codes, means: FloatArray, n: int, seed: int) -> Lists:
    """Judge the lists of some users; equal means are put in one random order of items, the same for all users."""
    n_items = found.n_items
    lottery = np.random.default_rng(seed).permutation(n_items)
    scores = np.where(np.isnan(means), -np.inf, means)[:, lottery]
    scores[_marks(train, users, n_items)[:, lottery]] = -np.inf
    liked = _marks(found, users, n_items)[:, lottery]
    n = min(n, n_items)
    first = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    usable = np.isfinite(np.take_along_axis(scores, first, axis=1))
    hits = np.take_along_axis(liked, first, axis=1) & usable
    discounts = 1.0 / np.log2(np.arange(2.0, n + 2.0))
    n_liked = liked.sum(axis=1)
    ideal = np.append(0.0, discounts.cumsum())[np.minimum(n_liked, n)]
    return Lists(users, hits @ discounts / ideal, hits.sum(axis=1) / n, hits.sum(axis=1) / n_liked)


def _marks(ratings: Ratings, users: Codes, n_items: int) -> NDArray[np.bool_]:
    """Return which items each user rated."""
    out = np.zeros((users.size, n_items), bool)
    for row, user in enumerate(users.tolist()):
        part = slice(*ratings.arrays.user_ptr[user : user + 2])
        out[row, ratings.arrays.item_codes[part]] = True
    return out
