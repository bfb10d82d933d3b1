"""One new user against many draws at once: folded in, and their level probabilities for all items.

What draws say of items lies end to end, so that one call does what takes a call per draw otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import ONE, ZERO, lowest_bit
from doublefeature.kernels.fold import FoldedRows, Others, Rated, RowPrior, fold_row
from doublefeature.model.level_sums import add_levels

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
Codes = NDArray[np.int64]


class Stack(NamedTuple):
    """The items of all draws and what is common to their users. Features of draw d are `ptr[d]:ptr[d + 1]`."""

    ptr: Codes  # (draws + 1,)
    words: WordArray  # (draws, items, words) of the widest draw
    first: Codes  # (draws, items) where an item's effects begin in `packed`
    packed: FloatArray  # an effect per membership of all draws; empty: `plain` holds for all items
    plain: FloatArray  # (all features,)
    offset: FloatArray  # (draws, items)
    factor: FloatArray  # (draws, items, rank)
    noise: FloatArray  # (draws,)
    cutpoints: FloatArray  # (draws, levels + 1)
    grade_sd: FloatArray  # (draws,)
    offset_sd: FloatArray  # (draws,)
    factor_sd: FloatArray  # (draws,)
    scales: FloatArray  # multiples of the noise scale
    scale_logs: FloatArray  # (draws, scales)
    place: WordArray  # (draws,) of random numbers
    base: float


class StackedPrior(NamedTuple):
    """What is known of the user before the ratings, draw by draw."""

    log_odds: FloatArray  # (all features,)
    offset_mean: FloatArray  # (draws,)


class StackedRows(NamedTuple):
    """What was drawn: so many copies of the user in each of the draws `draws`."""

    draws: Codes
    words: WordArray  # (draws, copies, words)
    start: Codes  # (draws,) where a draw's grades begin in `packed`
    packed: FloatArray
    filled: Codes  # (draws, 1)
    offset: FloatArray  # (draws, copies)
    scale: NDArray[np.uint8]  # (draws, copies)
    factor: FloatArray  # (draws, copies, rank)


@kernel
def _items_of(stack: Stack, d: int) -> Others:
    low, high = stack.ptr[d], stack.ptr[d + 1]
    return Others(stack.words[d], stack.first[d], stack.packed, stack.plain[low:high], stack.offset[d], stack.factor[d])


@kernel
def fold_draws(
    stack: Stack, prior: StackedPrior, codes: Codes, levels: Codes, scans: int, key: np.uint64, out: StackedRows
) -> None:
    """Fold a user into draws (see `doublefeature.kernels.fold.fold_row`)."""
    for n in range(out.draws.size):
        d = out.draws[n]
        log_odds = prior.log_odds[stack.ptr[d] : stack.ptr[d + 1]]
        of_row = RowPrior(
            log_odds,
            np.ones(log_odds.size),
            stack.grade_sd[d],
            prior.offset_mean[d],
            stack.offset_sd[d],
            stack.factor_sd[d],
            stack.scales,
            stack.scale_logs[d],
        )
        rated = Rated(codes, levels, np.full(codes.size, stack.noise[d]), stack.base, stack.cutpoints[d])
        rows = FoldedRows(
            out.words[n], out.packed[out.start[n] :], out.filled[n], out.offset[n], out.scale[n], out.factor[n]
        )
        fold_row(_items_of(stack, d), of_row, rated, scans, key, stack.place[d], rows)


@leaf
def _spread_strengths(rows: StackedRows, n: int, strength: FloatArray) -> None:
    """Fill in how strongly the first copy in the n-th draw holds each feature: 0 outside."""
    strength[:] = 0.0
    spot = rows.start[n]
    for w in range(rows.words.shape[2]):
        left = rows.words[n, 0, w]
        while left != ZERO:
            strength[64 * w + np.int64(lowest_bit(left))] = rows.packed[spot]
            spot += 1
            left &= left - ONE


@leaf
def _fill_scores(items: Others, own: WordArray, strength: FloatArray, factor: FloatArray, scores: FloatArray) -> None:
    """Add to the score of every item what it gets from features and factors."""
    for item in range(scores.size):
        spot = items.first[item]
        total = 0.0
        for w in range(items.words.shape[1]):
            left = items.words[item, w]
            while left != ZERO:
                k = 64 * w + np.int64(lowest_bit(left))
                rest = left & (left - ONE)
                if own[w] & (left ^ rest):
                    total += strength[k] * (items.packed[spot] if items.packed.size > 0 else items.plain[k])
                spot += 1
                left = rest
        for f in range(factor.size):
            total += factor[f] * items.factor[item, f]
        scores[item] += total


@kernel
def add_row_levels(stack: Stack, rows: StackedRows, out: FloatArray) -> None:
    """Add the level probabilities of all items, (items, levels), for the first copy in every draw."""
    n_items = stack.offset.shape[1]
    strength = np.empty(64 * stack.words.shape[2])
    noise = np.empty(n_items)
    for n in range(rows.draws.size):
        d = rows.draws[n]
        noise[:] = stack.noise[d] * stack.scales[rows.scale[n, 0]]
        scores = stack.base + stack.offset[d] + rows.offset[n, 0]
        _spread_strengths(rows, n, strength)
        _fill_scores(_items_of(stack, d), rows.words[n, 0], strength, rows.factor[n, 0], scores)
        add_levels(scores, noise, stack.cutpoints[d], 1, out)
