r"""Flips of single memberships, users' and items' by the same code.

With the latent scores integrated out, the log odds that row e belongs to feature k are its prior log odds plus
$\sum_j l(\eta_j \text{ with } k) - l(\eta_j \text{ without } k)$ over the row's ratings whose other end belongs
to k. Rows are independent given the other side, so they are handed to threads; inside a row, features are
scanned in an order drawn afresh each time (an order that follows the age of features would be wrong).

Log probabilities are concave in the score, so their tangents bound the sum from above. Term by term the bound is
exchanged for the truth, and a flip is turned down as soon as the bound falls below what it needs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import (
    ONE,
    ZERO,
    count_members,
    effect_on,
    grade_on,
    has_bit,
    lowest_bit,
    transpose_block,
)
from doublefeature.kernels.likelihood import Likelihood, curve_of, log_and_slope_at, log_at
from doublefeature.kernels.orders import first_keys, item_prior, random_keys, scan_order
from doublefeature.kernels.priors import draw_grade
from doublefeature.kernels.scene import (
    Scene,
    Side,
    chunk_start,
    longest_row,
    own_chunks,
    own_rows,
    place_of,
    scores_of,
)
from doublefeature.kernels.sharing import share_rows
from doublefeature.kernels.streams import (
    ITEM_FLIPS,
    ORDER,
    USER_FLIPS,
    USER_RATES,
    Stream,
    new_stream,
    seek,
    tick,
    uniform,
)
from doublefeature.kernels.variates import beta_logit
from doublefeature.model.state import State

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
SlotArray = NDArray[np.int64]

_BINS = 256
_SLACK = 1e-3
_LOGIT_BELOW = np.array([-np.inf] + [math.log(b / (_BINS - b)) - _SLACK for b in range(1, _BINS)])
"""A little less than the log odds of a uniform number in each bin: room for rounded tangents."""


class Scan(NamedTuple):
    """What a scan over one side's memberships is told."""

    order: SlotArray  # features in the order they are visited
    log_odds: FloatArray  # (slots,) prior log odds of belonging
    tilt: FloatArray  # (slots, traits) how traits of rows shift them
    traits: FloatArray  # (rows, traits)
    row_key: WordArray  # (rows,) a row may change feature k only if its key
    first_key: WordArray  # (slots,) is above this
    key: np.uint64  # random stream
    place: np.uint64


class Row(NamedTuple):
    """One row's ratings, copied side by side, and which of them each feature touches."""

    score: FloatArray
    value: FloatArray  # log probability at the score
    slope: FloatArray  # its derivative
    proposed: FloatArray  # log probability after the flip being tried
    curve: NDArray[np.uint16]  # user scale and level (see `curve_of`)
    touched: WordArray  # (slots, blocks) a bit per rating whose other end belongs to the feature
    scratch: WordArray  # (64,)
    stream: Stream


@kernel
def new_row(longest: int, n_words: int) -> Row:
    """Return space for rows of up to this length."""
    return Row(
        np.empty(longest),
        np.empty(longest),
        np.empty(longest),
        np.empty(longest),
        np.empty(longest, np.uint16),
        np.zeros((64 * n_words, (longest + 63) >> 6), np.uint64),
        np.empty(64, np.uint64),
        new_stream(),
    )


@leaf
def load_row(side: Side, state: State, like: Likelihood, scores: FloatArray, row: int, local: Row) -> None:
    """Copy a row's scores and levels side by side and look up their log probabilities."""
    first = side.ptr[row]
    for j in range(side.ptr[row + 1] - first):
        place = np.uint64(place_of(side, first + j))
        user = np.uint64(row) if side.of_users else np.uint64(side.other[first + j])
        local.score[j] = scores[place]
        local.curve[j] = curve_of(like, state.user_scale[user], side.levels[place])
        local.value[j], local.slope[j] = log_and_slope_at(like, local.curve[j], local.score[j])


@leaf
def mark_touched(side: Side, others: WordArray, row: int, touched: WordArray, scratch: WordArray) -> None:
    """Set `touched` (slots, blocks): for every feature, which of the row's ratings have their other end in it.

    Memberships come as one word of features per rating; 64 ratings at a time are transposed into one word of
    ratings per feature.
    """
    first = side.ptr[row]
    length = side.ptr[row + 1] - first
    for block in range((length + 63) >> 6):
        filled = min(64, length - 64 * block)
        for w in range(others.shape[1]):
            for j in range(filled):
                scratch[j] = others[np.uint64(side.other[first + 64 * block + j]), w]
            for j in range(filled, 64):
                scratch[j] = ZERO
            transpose_block(scratch)
            for bit in range(64):
                touched[64 * w + bit, block] = scratch[bit]


@leaf
def _gain_bound(side: Side, state: State, row: int, slot: int, step: float, local: Row) -> float:
    """Return the most a flip by `step` times the effect can gain: the sum of tangents, in two strands."""
    even = 0.0
    odd = 0.0
    first = side.ptr[row]
    graded = side.of_users and state.item_effect.shape[0] > 0
    for block in range((side.ptr[row + 1] - first + 63) >> 6):
        start = np.uint64(64 * block)
        word = local.touched[slot, block]
        while word != ZERO:
            j = start + lowest_bit(word)
            word &= word - ONE
            if graded:
                even += local.slope[j] * state.item_effect[np.uint64(side.other[first + np.int64(j)]), slot]
                continue
            even += local.slope[j]
            if word != ZERO:
                odd += local.slope[start + lowest_bit(word)]
                word &= word - ONE
    return step * (even if graded else (even + odd) * effect_on(state, row, slot))


@leaf
def _flip_gain(
    side: Side, state: State, like: Likelihood, row: int, slot: int, told: tuple[float, float, float], local: Row
) -> float:
    """Return what a flip gains in log likelihood, or −∞ once the bound is not above the need."""
    step, bound, need = told
    first = side.ptr[row]
    gain = 0.0
    for block in range((side.ptr[row + 1] - first + 63) >> 6):
        word = local.touched[slot, block]
        while word != ZERO:
            j = np.uint64(64 * block) + lowest_bit(word)
            word &= word - ONE
            item = np.int64(side.other[first + np.int64(j)]) if side.of_users else row
            move = step * effect_on(state, item, slot)
            local.proposed[j] = log_at(like, local.curve[j], local.score[j] + move)
            change = local.proposed[j] - local.value[j]
            gain += change
            bound += change - move * local.slope[j]
            if bound <= need:
                return -math.inf
    return gain


@leaf
def _flip(side: Side, state: State, like: Likelihood, row: int, slot: int, step: float, local: Row) -> None:
    """Change one membership; the touched scores and log probabilities follow."""
    own = state.user_words if side.of_users else state.item_words
    first = side.ptr[row]
    for block in range((side.ptr[row + 1] - first + 63) >> 6):
        word = local.touched[slot, block]
        while word != ZERO:
            j = np.uint64(64 * block) + lowest_bit(word)
            word &= word - ONE
            item = np.int64(side.other[first + np.int64(j)]) if side.of_users else row
            local.score[j] += step * effect_on(state, item, slot)
            local.value[j], local.slope[j] = log_and_slope_at(like, local.curve[j], local.score[j])
    own[row, slot >> 6] ^= ONE << np.uint64(slot & 63)


@leaf
def flip_log_odds(side: Side, state: State, like: Likelihood, row: int, slot: int, local: Row) -> float:
    """Return what the row's log likelihood gains by the flip (for tests; `local` holds the row)."""
    own = state.user_words if side.of_users else state.item_words
    step = -1.0 if has_bit(own, row, slot) else 1.0
    if side.of_users:
        step *= grade_on(state, row, slot)
    return _flip_gain(side, state, like, row, slot, (step, math.inf, -math.inf), local)


@leaf
def _flip_row(side: Side, state: State, like: Likelihood, scan: Scan, row: int, local: Row) -> bool:
    """Scan the features of one row; return whether any membership changed.

    A flip happens when it gains more than it needs: the log odds of a uniform number less the prior log odds of the
    flip. Most are turned down at a slightly lower need, which takes no logarithm. A user who holds features more or
    less strongly would join one with a grade from its prior.
    """
    user_graded = side.of_users and state.user_grade.shape[0] > 0
    own = state.user_words if side.of_users else state.item_words
    seek(local.stream, scan.key, scan.place, row)
    row_key = scan.row_key[row]
    changed = False
    for slot in scan.order:
        if row_key <= scan.first_key[slot]:
            continue
        u = uniform(local.stream)
        sign = -1.0 if has_bit(own, row, slot) else 1.0
        log_odds = scan.log_odds[slot]
        for t in range(scan.tilt.shape[1]):
            log_odds += scan.tilt[slot, t] * scan.traits[row, t]
        prior = sign * log_odds
        low_need = _LOGIT_BELOW[np.uint64(u * _BINS)] - prior
        grade = 1.0
        if user_graded:
            grade = state.user_grade[row, slot] if sign < 0.0 else draw_grade(state, local.stream)
        step = sign * grade
        bound = _gain_bound(side, state, row, slot, step, local)
        if bound <= low_need:
            continue
        gain = _flip_gain(side, state, like, row, slot, (step, bound, low_need), local)
        if gain > low_need and gain > math.log(u / (1.0 - u)) - prior:
            _flip(side, state, like, row, slot, step, local)
            if user_graded:
                state.user_grade[row, slot] = grade if sign > 0.0 else 0.0
            changed = True
    return changed


@kernel
def _flip_chunk(
    side: Side, state: State, like: Likelihood, scores: FloatArray, scan: Scan, low: int, high: int
) -> None:
    """Scan the rows low, …, high − 1."""
    others = state.item_words if side.of_users else state.user_words
    local = new_row(longest_row(side, low, high), others.shape[1])
    for row in range(low, high):
        load_row(side, state, like, scores, row, local)
        mark_touched(side, others, row, local.touched, local.scratch)
        if _flip_row(side, state, like, scan, row, local):
            for j in range(side.ptr[row], side.ptr[row + 1]):
                scores[place_of(side, j)] = local.score[j - side.ptr[row]]


@threaded
def _flip_threads(side: Side, state: State, like: Likelihood, scores: FloatArray, scan: Scan) -> None:
    low, high = own_chunks(side)
    for chunk in prange(low, high):
        _flip_chunk(side, state, like, scores, scan, chunk_start(side, chunk), chunk_start(side, chunk + 1))


@kernel
def flip_side(side: Side, state: State, like: Likelihood, scores: FloatArray, scan: Scan, threads: int) -> None:
    """Scan all rows of a side once."""
    if threads > 1:
        _flip_threads(side, state, like, scores, scan)
    else:
        low, high = own_rows(side)
        _flip_chunk(side, state, like, scores, scan, low, high)
    share_rows(side, state.user_words if side.of_users else state.item_words)
    if side.of_users:
        share_rows(side, state.user_grade)


@kernel
def no_tilt(n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Return what a scan is told when rows have no traits."""
    return np.zeros((0, 0)), np.zeros((n_rows, 0))


@kernel
def update_users_parallel(scene: Scene) -> None:
    """Flip users' memberships, all users at once: exact for the Indian buffet process.

    Users are put in a random order. The first owner of a feature and the users before it are left alone;
    given the feature's rate π, drawn from Beta(m_k, m − m_k + 1), the users after it are independent. Where traits
    of users shift their log odds, the rate is part of the state and kept.
    """
    state = scene.state
    n_users = state.user_words.shape[0]
    counts = count_members(state.user_words)
    order = scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 0))
    log_odds = np.zeros(counts.size)
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, USER_RATES, 1), 0)
    tilt = np.zeros((counts.size, scene.model.user_traits.shape[1]))
    for slot in order:
        if state.user_weights.shape[1] == 0:
            log_odds[slot] = beta_logit(stream, float(counts[slot]), float(n_users - counts[slot] + 1))
        else:
            log_odds[slot] = state.user_weights[slot, 0]
            for t in range(tilt.shape[1]):
                tilt[slot, t] = state.user_weights[slot, t + 1]
    keys = random_keys(n_users, scene.key, tick(scene.sweep, USER_RATES, 0))
    first = first_keys(state.user_words, keys)
    traits = scene.model.user_traits
    scan = Scan(order, log_odds, tilt, traits, keys, first, scene.key, tick(scene.sweep, USER_FLIPS, 0))
    flip_side(scene.users, state, scene.like, scene.scores, scan, scene.threads)


@kernel
def update_users_serial(scene: Scene) -> None:
    """Flip users' memberships one user after the other, with rates integrated out.

    The prior odds are m₋ᵤ/(m − m₋ᵤ) with m₋ᵤ the other owners; a feature owned by nobody else is left alone.
    """
    words = scene.state.user_words
    n_users = words.shape[0]
    counts = count_members(words)
    order = scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 0))
    log_odds = np.zeros(counts.size)
    first = np.zeros(counts.size, np.uint64)
    keys = np.ones(n_users, np.uint64)
    scan = Scan(order, log_odds, *no_tilt(n_users), keys, first, scene.key, tick(scene.sweep, USER_FLIPS, 0))
    for user in range(n_users):
        for slot in order:
            counts[slot] -= np.int64(has_bit(words, user, slot))
            first[slot] = ZERO if counts[slot] > 0 else ONE
            if counts[slot] > 0:
                log_odds[slot] = math.log(counts[slot]) - math.log(n_users - counts[slot])
        _flip_chunk(scene.users, scene.state, scene.like, scene.scores, scan, user, user + 1)
        for slot in order:
            counts[slot] += np.int64(has_bit(words, user, slot))


@kernel
def update_items(scene: Scene) -> None:
    """Flip items' memberships, all items at once: given the users, items are independent."""
    state = scene.state
    order = scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 1))
    prior = item_prior(scene)
    place = tick(scene.sweep, ITEM_FLIPS, 0)
    scan = Scan(order, prior.log_odds, *no_tilt(state.item_words.shape[0]), prior.keys, prior.first, scene.key, place)
    flip_side(scene.items, state, scene.like, scores_of(scene, scene.items), scan, scene.threads)
