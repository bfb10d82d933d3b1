"""In which draws a graded feature is found again: by what it adds to scores, not by who just about belongs.

A feature adds s_u w_i to the score of user u and item i, zero outside. Items' offsets can take up its mean over users,
so two features are alike by the cosine of the tables (s_u − s̄) w_i: the correlation of their users' grades times the
cosine of their items' effects. Neither numbering, nor a factor moved from users to items, nor reading a feature as its
complement changes it. A feature of an estimate is compared with its *profile*: the mean of its partners over the draws
of one chain, the chain where this mean is most like the estimate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.posterior.draws import Draw

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LIKE = 0.5
"""A feature recurs in a draw when its partner is at least so much like its profile."""


class _Loads(NamedTuple):
    """Columns of length 1, or 0 where there is nothing: what features add, users and items apart."""

    users: FloatArray  # (users, K)
    items: FloatArray  # (items, K)


def likeness(draws: list[Draw], numbers: IntArray, users: BoolArray, items: FloatArray, *, centred: bool) -> FloatArray:
    """Return how much the partner of every feature in every draw is like the feature's profile: (draws, K).

    Parameters
    ----------
    numbers
        The partners' numbers in their draws, −1 for none, which is like nothing: (draws, K).
    users, items
        The estimate: who belongs, and the effect on items that belong, (users, K) and (items, K).
    centred
        Whether there are item offsets to take up the mean over users.
    """
    estimate = _of_length_one(users.astype(np.float64), centred=centred), _of_length_one(items)
    chains = np.array([draw.chain for draw in draws])
    best, home = np.full(numbers.shape[1], -np.inf), _nothing(draws[0], numbers.shape[1])
    for chain in np.unique(chains):
        own = np.flatnonzero(chains == chain)
        profile = _profile([draws[at] for at in own], numbers[own], centred=centred)
        found = _cosine(profile, _Loads(*estimate))
        better = found > best
        best[better] = found[better]
        for kept, new in zip(home, profile, strict=True):
            kept[:, better] = new[:, better]
    parts = zip(draws, numbers, strict=True)
    return np.array([_cosine(_loads(draw, partners, centred=centred), home) for draw, partners in parts])


def _cosine(one: _Loads, two: _Loads) -> FloatArray:
    found: FloatArray = (one.users * two.users).sum(axis=0) * (one.items * two.items).sum(axis=0)
    return found


def _profile(draws: list[Draw], numbers: IntArray, *, centred: bool) -> _Loads:
    """Return the mean of partners, each turned to the side of those before it."""
    total = _nothing(draws[0], numbers.shape[1])
    for draw, partners in zip(draws, numbers, strict=True):
        loads = _loads(draw, partners, centred=centred)
        side = np.where((loads.items * total.items).sum(axis=0) < 0.0, -1.0, 1.0)
        for sums, new in zip(total, loads, strict=True):
            sums += side * new
    return _Loads(*map(_of_length_one, total))


def _loads(draw: Draw, partners: IntArray, *, centred: bool) -> _Loads:
    """Return what the partners in a draw add; nothing where there is no partner."""
    out = _nothing(draw, partners.size)
    there = partners >= 0
    grades = draw.grades_of()[:, partners[there]]
    out.users[:, there] = _of_length_one(grades, centred=centred)
    out.items[:, there] = _of_length_one(draw.effects_of()[:, partners[there]])
    return out


def _nothing(draw: Draw, n_features: int) -> _Loads:
    return _Loads(np.zeros((draw.user_offset.size, n_features)), np.zeros((draw.item_offset.size, n_features)))


def _of_length_one(columns: FloatArray, *, centred: bool = False) -> FloatArray:
    around = columns - columns.mean(axis=0) if centred else columns
    length = np.linalg.norm(around, axis=0)
    return around / np.where(length > 0.0, length, 1.0)
