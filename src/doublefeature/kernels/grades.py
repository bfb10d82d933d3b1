r"""Graded features: every item's memberships and effects, given the latent scores.

With g the precision of a rating, r what its latent score has above the score without feature k, and sums over the
item's raters who belong to k,

    c = Σ g,  h = Σ g r,  q = 1/σ_w² + c,  m = (θ_k/σ_w² + h)/q,
    log odds(B_ik = 1) = log odds of the prior + ½ log(1/(σ_w² q)) + ½ (q m² − θ_k²/σ_w²),

and w_ik ~ N(m, 1/q) if it belongs. Then offset and effects of the item are drawn jointly given its memberships. Items
are independent, so they are handed to threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import ONE, ZERO, active_slots, has_bit, lowest_bit
from doublefeature.kernels.gaussian import Work, draw_normal, factorise, new_work, shared_pull, shared_weight
from doublefeature.kernels.logistic import row_logit
from doublefeature.kernels.memberships import mark_touched
from doublefeature.kernels.offsets import update_user_offsets
from doublefeature.kernels.orders import item_prior, scan_order
from doublefeature.kernels.scene import (
    Scene,
    Side,
    chunk_start,
    latent_of,
    longest_row,
    own_chunks,
    own_rows,
    place_of,
    scores_of,
)
from doublefeature.kernels.scores import add_offsets, rebuild_but_remainder, rebuild_effects
from doublefeature.kernels.sharing import share_rows
from doublefeature.kernels.streams import GRADES, ORDER, Stream, new_stream, seek, tick
from doublefeature.kernels.user_grades import update_user_grades
from doublefeature.kernels.variates import bernoulli_logit, normal
from doublefeature.model.state import EFFECT_SD, GRADE_SD, ITEM_SD, Model, State

FloatArray = NDArray[np.float64]
SlotArray = NDArray[np.int64]
WordArray = NDArray[np.uint64]


class Grading(NamedTuple):
    """What the update of every item is told."""

    order: SlotArray  # features in the order they are visited
    log_odds: FloatArray  # (slots,) prior log odds of belonging
    keys: WordArray  # (items,) an item may change feature k only if its key
    first: WordArray  # (slots,) is above this
    weights: FloatArray  # (scales,) precision of a rating by user scale
    key: np.uint64
    place: np.uint64


@leaf
def _load(side: Side, state: State, told: Grading, residual: FloatArray, row: int, work: Work) -> None:
    """Fill `pull` with g r of every rating of the item, and `of_scale`."""
    first = side.ptr[row]
    length = side.ptr[row + 1] - first
    for scale in range(told.weights.size):
        for block in range((length + 63) >> 6):
            work.of_scale[scale, block] = ZERO
    for j in range(length):
        scale = state.user_scale[np.uint64(side.other[first + j])]
        work.pull[j] = told.weights[scale] * residual[np.uint64(place_of(side, first + j))]
        work.of_scale[scale, j >> 6] |= ONE << np.uint64(j & 63)


@leaf
def _graded_weight(side: Side, state: State, told: Grading, row: int, a: int, b: int, work: Work) -> float:
    """Return Σ g s_a s_b over the item's ratings that share both features, s the users' grades."""
    total = 0.0
    first = side.ptr[row]
    for block in range((side.ptr[row + 1] - first + 63) >> 6):
        word = work.touched[a, block] & work.touched[b, block]
        while word != ZERO:
            user = np.uint64(side.other[first + 64 * block + np.int64(lowest_bit(word))])
            weight = told.weights[state.user_scale[user]]
            total += weight * state.user_grade[user, a] * state.user_grade[user, b]
            word &= word - ONE
    return total


@leaf
def _graded_pull(side: Side, state: State, row: int, slot: int, work: Work) -> float:
    """Return Σ g s r over the item's ratings that share a feature, s the users' grades."""
    total = 0.0
    first = side.ptr[row]
    for block in range((side.ptr[row + 1] - first + 63) >> 6):
        word = work.touched[slot, block]
        while word != ZERO:
            j = 64 * block + np.int64(lowest_bit(word))
            total += work.pull[j] * state.user_grade[np.uint64(side.other[first + j]), slot]
            word &= word - ONE
    return total


@leaf
def _weight(side: Side, state: State, told: Grading, row: int, a: int, b: int, work: Work) -> float:
    """Return Σg over the item's ratings that share both features, times users' grades where they have them."""
    if state.user_grade.shape[0] > 0:
        return _graded_weight(side, state, told, row, a, b, work)
    return shared_weight(told.weights, (side.ptr[row + 1] - side.ptr[row] + 63) >> 6, a, b, work)


@leaf
def _pull(side: Side, state: State, row: int, slot: int, work: Work) -> float:
    """Return Σ g r over the item's ratings that share a feature, times users' grades where they have them."""
    if state.user_grade.shape[0] > 0:
        return _graded_pull(side, state, row, slot, work)
    return shared_pull((side.ptr[row + 1] - side.ptr[row] + 63) >> 6, slot, work)


@leaf
def _graded_total(side: Side, state: State, told: Grading, row: int, slot: int, work: Work) -> float:
    """Return Σ g s over the item's ratings that share a feature."""
    total = 0.0
    first = side.ptr[row]
    for block in range((side.ptr[row + 1] - first + 63) >> 6):
        word = work.touched[slot, block]
        while word != ZERO:
            user = np.uint64(side.other[first + 64 * block + np.int64(lowest_bit(word))])
            total += told.weights[state.user_scale[user]] * state.user_grade[user, slot]
            word &= word - ONE
    return total


@leaf
def _graded_shift(side: Side, state: State, told: Grading, row: int, slot: int, step: float, work: Work) -> None:
    """Take a change of effect out of the residuals of the ratings it touches, by users' grades."""
    first = side.ptr[row]
    for block in range((side.ptr[row + 1] - first + 63) >> 6):
        word = work.touched[slot, block]
        while word != ZERO:
            j = 64 * block + np.int64(lowest_bit(word))
            user = np.uint64(side.other[first + j])
            work.pull[j] -= told.weights[state.user_scale[user]] * step * state.user_grade[user, slot]
            word &= word - ONE


@leaf
def _shift(side: Side, told: Grading, blocks: int, slot: int, step: float, work: Work) -> None:
    """Take a change of effect out of the residuals of the ratings it touches."""
    for scale in range(told.weights.size):
        change = told.weights[scale] * step
        for block in range(blocks):
            word = work.touched[slot, block] & work.of_scale[scale, block]
            while word != ZERO:
                work.pull[np.uint64(64 * block) + lowest_bit(word)] -= change
                word &= word - ONE


@leaf
def grade_conditional(
    log_odds: float, centre: float, sd: float, weight: float, pull: float
) -> tuple[float, float, float]:
    """Return log odds of belonging, and mean and standard deviation of the effect of an item that does."""
    prior = 1.0 / (sd * sd)
    precision = prior + weight
    mean = (centre * prior + pull) / precision
    gain = 0.5 * math.log(prior / precision) + 0.5 * (precision * mean * mean - centre * centre * prior)
    return log_odds + gain, mean, 1.0 / math.sqrt(precision)


@leaf
def _scan_item(side: Side, state: State, model: Model, told: Grading, row: int, work: Work, stream: Stream) -> int:
    """Draw membership and effect of one item in every feature; return in how many it is."""
    blocks = (side.ptr[row + 1] - side.ptr[row] + 63) >> 6
    count = 0
    for slot in told.order:
        before = state.item_effect[row, slot]
        weight = _weight(side, state, told, row, slot, slot, work)
        pull = _pull(side, state, row, slot, work) + weight * before
        odds = told.log_odds[slot]
        if state.item_weights.shape[1] > 0:
            odds = row_logit(model.item_traits, state.item_weights[slot], row)
        odds, mean, sd = grade_conditional(odds, state.effect[slot], state.hyper[GRADE_SD], weight, pull)
        inside = bernoulli_logit(stream, odds)
        if told.keys[row] <= told.first[slot]:
            inside = has_bit(state.item_words, row, slot)
        after = mean + sd * normal(stream) if inside else 0.0
        if bool(inside) != has_bit(state.item_words, row, slot):
            state.item_words[row, slot >> 6] ^= ONE << np.uint64(slot & 63)
        state.item_effect[row, slot] = after
        if after != before and state.user_grade.shape[0] > 0:
            _graded_shift(side, state, told, row, slot, after - before, work)
        elif after != before:
            _shift(side, told, blocks, slot, after - before, work)
        if inside:
            work.own[count] = slot
            count += 1
    return count


@leaf
def _refresh_item(
    side: Side, state: State, model: Model, told: Grading, row: int, count: int, space: tuple, stream: Stream
) -> None:
    """Draw the item's offset and its effects jointly, as a step away from where they are."""
    work, matrix, linear = space
    prior = 1.0 / state.hyper[GRADE_SD] ** 2
    offset = 1 if model.item_offsets else 0
    size = count + offset
    precision = matrix[:size, :size]
    step = linear[:size]
    for n in range(count):
        a = work.own[n]
        step[n] = _pull(side, state, row, a, work) + prior * (state.effect[a] - state.item_effect[row, a])
        for m in range(n + 1):
            precision[n, m] = _weight(side, state, told, row, a, work.own[m], work)
        if offset == 1:
            graded = state.user_grade.shape[0] > 0
            precision[count, n] = _graded_total(side, state, told, row, a, work) if graded else precision[n, n]
        precision[n, n] += prior
    if offset == 1:
        pull = 0.0
        weight = 0.0
        for j in range(side.ptr[row + 1] - side.ptr[row]):
            pull += work.pull[j]
            weight += told.weights[state.user_scale[np.uint64(side.other[side.ptr[row] + j])]]
        own = 1.0 / state.hyper[ITEM_SD] ** 2
        precision[count, count] = weight + own
        step[count] = pull + own * (model.item_offset_mean[row] - state.item_offset[row])
    factorise(precision)
    draw_normal(precision, step, stream)
    for n in range(count):
        state.item_effect[row, work.own[n]] += step[n]
    if offset == 1:
        state.item_offset[row] += step[count]


@kernel
def _grade_chunk(
    side: Side, state: State, model: Model, residual: FloatArray, told: Grading, low: int, high: int
) -> None:
    """Update the items low, …, high − 1."""
    n_words = state.user_words.shape[1]
    work = new_work(longest_row(side, low, high), n_words, told.weights.size)
    size = told.order.size + 1
    space = (work, np.empty((size, size)), np.empty(size))
    stream = new_stream()
    for row in range(low, high):
        seek(stream, told.key, told.place, row)
        _load(side, state, told, residual, row, work)
        mark_touched(side, state.user_words, row, work.touched, work.scratch)
        count = _scan_item(side, state, model, told, row, work, stream)
        _refresh_item(side, state, model, told, row, count, space, stream)


@threaded
def _grade_threads(side: Side, state: State, model: Model, residual: FloatArray, told: Grading) -> None:
    low, high = own_chunks(side)
    for chunk in prange(low, high):
        _grade_chunk(side, state, model, residual, told, chunk_start(side, chunk), chunk_start(side, chunk + 1))


@kernel
def update_grades(scene: Scene) -> None:
    """Draw every item's memberships, effects and offset given the latent scores. The scores are left as they were."""
    state = scene.state
    order = scan_order(state.active, scene.key, tick(scene.sweep, ORDER, 1))
    prior = item_prior(scene)
    told = Grading(
        order, prior.log_odds, prior.keys, prior.first, scene.like.precision, scene.key, tick(scene.sweep, GRADES, 0)
    )
    items = scene.items
    residual = latent_of(scene, items) - scores_of(scene, items)
    if scene.threads > 1:
        _grade_threads(items, state, scene.model, residual, told)
    else:
        low, high = own_rows(items)
        _grade_chunk(items, state, scene.model, residual, told, low, high)
    share_rows(items, state.item_words)
    share_rows(items, state.item_effect)
    share_rows(items, state.item_offset)


@leaf
def draw_centre(total: float, count: float, state: State, stream: Stream) -> float:
    """Return a feature's own effect given number and sum of its items' effects."""
    prior = 1.0 / state.hyper[EFFECT_SD] ** 2
    weight = 1.0 / state.hyper[GRADE_SD] ** 2
    precision = prior + weight * count
    return weight * total / precision + normal(stream) / math.sqrt(precision)


@kernel
def update_centres(scene: Scene) -> None:
    """Draw every feature's own effect given its items' effects."""
    state = scene.state
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, GRADES, 1), 0)
    for slot in active_slots(state.active):
        total = 0.0
        count = 0.0
        for item in range(state.item_words.shape[0]):
            if has_bit(state.item_words, item, slot):
                total += state.item_effect[item, slot]
                count += 1.0
        state.effect[slot] = draw_centre(total, count, state, stream)


@kernel
def update_grades_and_offsets(scene: Scene) -> None:
    """Draw items' memberships, effects and offsets, features' own effects, users' grades and offsets.

    The scores are rebuilt, as if there were no remainder.
    """
    update_grades(scene)
    update_centres(scene)
    if scene.state.user_grade.shape[0] > 0:
        rebuild_but_remainder(scene)
        update_user_grades(scene)
        rebuild_but_remainder(scene)
        return
    rebuild_effects(scene)
    if scene.model.user_offsets:
        update_user_offsets(scene)
    add_offsets(scene)
