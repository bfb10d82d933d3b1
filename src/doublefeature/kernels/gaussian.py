r"""Effects and offsets given the latent scores, where they are jointly normal.

With g the precision of a rating, x the indicators of its shared features, y the latent score less base and the
offset of the other side, and for each row of the side whose offsets are integrated out q = Σg + 1/σ²,
s = Σgy + μ/σ², c = Σgx, the effects have precision Σ g x x′ + I/σ_θ² − Σ_rows c c′/q and linear term
Σ g x y − Σ_rows c s/q. The offsets of that side are drawn right after, given the effects.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import ONE, ZERO, active_slots, count_bits, lowest_bit
from doublefeature.kernels.memberships import mark_touched
from doublefeature.kernels.offsets import update_item_offsets, update_user_offsets
from doublefeature.kernels.scene import PARTS, Scene, Side, latent_of, longest_row, own_parts, part_start, place_of
from doublefeature.kernels.scores import add_offsets, rebuild_effects
from doublefeature.kernels.sharing import add_parts
from doublefeature.kernels.streams import GAUSSIAN, Stream, new_stream, seek, tick
from doublefeature.kernels.variates import normal
from doublefeature.model.state import EFFECT_SD, ITEM_SD, USER_SD, Model, State

FloatArray = NDArray[np.float64]


class Work(NamedTuple):
    """Space for one row's sums."""

    own: NDArray[np.int64]  # (slots,) the row's own features
    weight: FloatArray  # (slots,) Σg over the ratings each of them shares
    pull: FloatArray  # (longest row,) g y of every rating
    of_scale: NDArray[np.uint64]  # (scales, blocks) a bit per rating of a user with this scale
    touched: NDArray[np.uint64]  # (slots, blocks) see `mark_touched`
    scratch: NDArray[np.uint64]


@kernel
def new_work(longest: int, n_words: int, n_scales: int) -> Work:
    """Return space for rows of up to this length."""
    blocks = (longest + 63) >> 6
    return Work(
        np.empty(64 * n_words, np.int64),
        np.empty(64 * n_words),
        np.empty(longest),
        np.empty((n_scales, blocks), np.uint64),
        np.empty((64 * n_words, blocks), np.uint64),
        np.empty(64, np.uint64),
    )


@leaf
def _load_pulls(
    side: Side, state: State, model: Model, weights: FloatArray, latent: FloatArray, row: int, work: Work
) -> tuple[float, float]:
    """Fill `pull` and `of_scale`; return Σg and Σgy over the row."""
    first = side.ptr[row]
    length = side.ptr[row + 1] - first
    for scale in range(weights.size):
        for block in range((length + 63) >> 6):
            work.of_scale[scale, block] = ZERO
    total = 0.0
    pull = 0.0
    for j in range(length):
        other = np.uint64(side.other[first + j])
        scale = state.user_scale[row] if side.of_users else state.user_scale[other]
        offset = state.item_offset[other] if side.of_users else state.user_offset[other]
        y = latent[np.uint64(place_of(side, first + j))] - model.base - offset
        work.pull[j] = weights[scale] * y
        work.of_scale[scale, j >> 6] |= ONE << np.uint64(j & 63)
        total += weights[scale]
        pull += work.pull[j]
    return total, pull


@leaf
def shared_weight(weights: FloatArray, blocks: int, a: int, b: int, work: Work) -> float:
    """Return Σg over the row's ratings that share both features: counts of bits, one scale after the other."""
    total = 0.0
    for scale in range(weights.size):
        count = 0
        for block in range(blocks):
            count += count_bits(work.touched[a, block] & work.touched[b, block] & work.of_scale[scale, block])
        total += weights[scale] * count
    return total


@leaf
def shared_pull(blocks: int, a: int, work: Work) -> float:
    """Return Σgy over the row's ratings that share a feature."""
    total = 0.0
    for block in range(blocks):
        word = work.touched[a, block]
        while word != ZERO:
            total += work.pull[np.uint64(64 * block) + lowest_bit(word)]
            word &= word - ONE
    return total


@leaf
def _gather_row(
    side: Side, state: State, model: Model, weights: FloatArray, latent: FloatArray, row: int, told: tuple
) -> None:
    """Add one row's share to the precision and the linear term of the effects, its offset integrated out."""
    with_offset, sd, precision, linear, work = told
    own = state.user_words if side.of_users else state.item_words
    count = 0
    for w in range(own.shape[1]):
        word = own[row, w]
        while word != ZERO:
            work.own[count] = 64 * w + np.int64(lowest_bit(word))
            count += 1
            word &= word - ONE
    if count == 0:
        return
    mark_touched(side, state.item_words if side.of_users else state.user_words, row, work.touched, work.scratch)
    total, pull = _load_pulls(side, state, model, weights, latent, row, work)
    prior = 1.0 / (sd * sd)
    total += prior
    pull += prior * (model.user_offset_mean[row] if side.of_users else model.item_offset_mean[row])
    blocks = (side.ptr[row + 1] - side.ptr[row] + 63) >> 6
    for n in range(count):
        a = work.own[n]
        work.weight[n] = shared_weight(weights, blocks, a, a, work)
        linear[a] += shared_pull(blocks, a, work)
        if with_offset:
            linear[a] -= work.weight[n] * pull / total
        for m in range(n + 1):
            b = work.own[m]
            precision[a, b] += shared_weight(weights, blocks, a, b, work)
            if with_offset:
                precision[a, b] -= work.weight[n] * work.weight[m] / total


@kernel
def _gather_part(
    side: Side, state: State, model: Model, weights: FloatArray, latent: FloatArray, told: tuple, part: int
) -> None:
    with_offset, sd, precision, linear = told
    low, high = part_start(side, part), part_start(side, part + 1)
    work = new_work(longest_row(side, low, high), state.user_words.shape[1], weights.size)
    row_told = (with_offset, sd, precision[part], linear[part], work)
    for row in range(low, high):
        _gather_row(side, state, model, weights, latent, row, row_told)


@threaded
def _gather_threads(
    side: Side, state: State, model: Model, weights: FloatArray, latent: FloatArray, told: tuple
) -> None:
    low, high = own_parts(side)
    for part in prange(low, high):
        _gather_part(side, state, model, weights, latent, told, part)


@kernel
def effect_normal(scene: Scene, side: Side, slots: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return precision (lower triangle) and linear term of the effects given the latent scores.

    The offsets of the given side, if the model has them, are integrated out; those of the other are given.
    """
    state = scene.state
    with_offset = scene.model.user_offsets if side.of_users else scene.model.item_offsets
    sd = state.hyper[USER_SD] if side.of_users else state.hyper[ITEM_SD]
    size = state.active.size
    precision = np.zeros((PARTS, size, size))
    linear = np.zeros((PARTS, size))
    told = (with_offset, sd, precision, linear)
    latent = latent_of(scene, side)
    if scene.threads > 1:
        _gather_threads(side, state, scene.model, scene.like.precision, latent, told)
    else:
        low, high = own_parts(side)
        for part in range(low, high):
            _gather_part(side, state, scene.model, scene.like.precision, latent, told, part)
    add_parts(side, precision)
    add_parts(side, linear)
    out = np.zeros((slots.size, slots.size))
    x = np.zeros(slots.size)
    for a in range(slots.size):
        x[a] = linear[0, slots[a]]
        for b in range(a + 1):
            out[a, b] = precision[0, slots[a], slots[b]]
        out[a, a] += 1.0 / state.hyper[EFFECT_SD] ** 2
    return out, x


@leaf
def factorise(matrix: FloatArray) -> None:
    """Overwrite the lower triangle of a positive definite matrix by its Cholesky factor."""
    for a in range(matrix.shape[0]):
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= matrix[a, c] * matrix[b, c]
            if a == b:
                matrix[a, a] = math.sqrt(total)
            else:
                matrix[a, b] = total / matrix[b, b]


@leaf
def draw_normal(factor: FloatArray, x: FloatArray, stream: Stream) -> None:
    """Overwrite the linear term by a draw of the normal whose precision has this Cholesky factor."""
    for a in range(x.size):
        for b in range(a):
            x[a] -= factor[a, b] * x[b]
        x[a] /= factor[a, a]
    for a in range(x.size - 1, -1, -1):
        x[a] += normal(stream)
        for b in range(a + 1, x.size):
            x[a] -= factor[b, a] * x[b]
        x[a] /= factor[a, a]


@kernel
def update_effects_and_offsets(scene: Scene) -> None:
    """Draw all effects jointly with the offsets of one side, then the offsets of the other.

    With offsets on both sides, the users' take the joint draw in every second sweep. The scores end up rebuilt
    from the state, so that they do not depend on the path that led to it.
    """
    model = scene.model
    slots = active_slots(scene.state.active)
    users_first = model.user_offsets and (scene.sweep % 2 == 1 or not model.item_offsets)
    if model.effect_values.size == 0 and slots.size > 0:
        factor, x = effect_normal(scene, scene.users if users_first else scene.items, slots)
        factorise(factor)
        stream = new_stream()
        seek(stream, scene.key, tick(scene.sweep, GAUSSIAN, 0), 0)
        draw_normal(factor, x, stream)
        for k in range(slots.size):
            scene.state.effect[slots[k]] = x[k]
    rebuild_effects(scene)
    if users_first:
        update_user_offsets(scene)
    if model.item_offsets:
        update_item_offsets(scene)
    if model.user_offsets and not users_first:
        update_user_offsets(scene)
    add_offsets(scene)
