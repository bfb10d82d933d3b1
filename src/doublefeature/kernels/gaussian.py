r"""Effects and offsets given the latent scores, where they are jointly normal.

With g the precision of a rating, x the indicators of its shared features, y the latent score less base and the
offset of the other side, and for each row of the side whose offsets are integrated out q = Σg + 1/σ²,
s = Σgy + μ/σ², c = Σgx, the effects have precision Σ g x x′ + I/σ_θ² − Σ_rows c c′/q and linear term
Σ g x y − Σ_rows c s/q. The offsets of that side are drawn right after, given the effects.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import ONE, ZERO, active_slots, lowest_bit
from doublefeature.kernels.offsets import update_item_offsets, update_user_offsets
from doublefeature.kernels.scene import Scene, Side, chunk_count, chunk_start, place_of
from doublefeature.kernels.scores import rebuild_scores
from doublefeature.kernels.streams import GAUSSIAN, new_stream, seek, tick
from doublefeature.kernels.variates import normal
from doublefeature.model.state import EFFECT_SD, ITEM_SD, USER_SD, Model, State

FloatArray = NDArray[np.float64]

PARTS = 16
"""Partial sums the precision of the effects is gathered in."""


@leaf
def _gather_row(
    side: Side,
    state: State,
    model: Model,
    weights: FloatArray,
    latent: FloatArray,
    row: int,
    told: tuple,
) -> None:
    """Add one row's share to the precision and the linear term of the effects, its offset integrated out."""
    index, with_offset, sd, precision, linear, weight, shared = told
    for a in range(weight.size):
        weight[a] = 0.0
    total = 1.0 / (sd * sd)
    pull = (model.user_offset_mean[row] if side.of_users else model.item_offset_mean[row]) * total
    for j in range(side.ptr[row], side.ptr[row + 1]):
        other = np.int64(side.other[j])
        user, item = (row, other) if side.of_users else (other, row)
        g = weights[state.user_scale[user]]
        offset = state.item_offset[item] if side.of_users else state.user_offset[user]
        y = latent[place_of(side, j)] - model.base - offset
        count = 0
        for w in range(state.user_words.shape[1]):
            word = state.user_words[user, w] & state.item_words[item, w]
            while word != ZERO:
                shared[count] = index[64 * w + np.int64(lowest_bit(word))]
                count += 1
                word &= word - ONE
        total += g
        pull += g * y
        for a in range(count):
            weight[shared[a]] += g
            linear[shared[a]] += g * y
            for b in range(a + 1):
                precision[max(shared[a], shared[b]), min(shared[a], shared[b])] += g
    if with_offset:
        count = 0
        for a in range(weight.size):
            if weight[a] != 0.0:
                shared[count] = a
                count += 1
        for a in range(count):
            linear[shared[a]] -= weight[shared[a]] * pull / total
            for b in range(a + 1):
                precision[shared[a], shared[b]] -= weight[shared[a]] * weight[shared[b]] / total


@kernel
def _gather_part(
    side: Side,
    state: State,
    model: Model,
    weights: FloatArray,
    latent: FloatArray,
    told: tuple,
    part: int,
) -> None:
    index, with_offset, sd, precision, linear = told
    weight = np.empty(linear.shape[1])
    chunks = chunk_count(side)
    first = part * chunks // PARTS
    last = (part + 1) * chunks // PARTS
    shared = np.empty(linear.shape[1], np.int64)
    row_told = (index, with_offset, sd, precision[part], linear[part], weight, shared)
    for row in range(chunk_start(side, first), chunk_start(side, last)):
        _gather_row(side, state, model, weights, latent, row, row_told)


@threaded
def _gather_threads(
    side: Side, state: State, model: Model, weights: FloatArray, latent: FloatArray, told: tuple
) -> None:
    for part in prange(PARTS):
        _gather_part(side, state, model, weights, latent, told, part)


@kernel
def effect_normal(scene: Scene, side: Side, slots: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return precision (lower triangle) and linear term of the effects given the latent scores.

    The offsets of the given side, if the model has them, are integrated out; those of the other are given.
    """
    state = scene.state
    index = np.empty(state.active.size, np.int64)
    for k in range(slots.size):
        index[slots[k]] = k
    with_offset = scene.model.user_offsets if side.of_users else scene.model.item_offsets
    sd = state.hyper[USER_SD] if side.of_users else state.hyper[ITEM_SD]
    precision = np.zeros((PARTS, slots.size, slots.size))
    linear = np.zeros((PARTS, slots.size))
    told = (index, with_offset, sd, precision, linear)
    if scene.threads > 1:
        _gather_threads(side, state, scene.model, scene.like.precision, scene.latent, told)
    else:
        for part in range(PARTS):
            _gather_part(side, state, scene.model, scene.like.precision, scene.latent, told, part)
    for a in range(slots.size):
        for part in range(1, PARTS):
            linear[0, a] += linear[part, a]
            for b in range(a + 1):
                precision[0, a, b] += precision[part, a, b]
        precision[0, a, a] += 1.0 / state.hyper[EFFECT_SD] ** 2
    return precision[0], linear[0]


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


@kernel
def draw_normal(factor: FloatArray, x: FloatArray, scene: Scene) -> None:
    """Overwrite the linear term by a draw of the normal whose precision has this Cholesky factor."""
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, GAUSSIAN, 0), 0)
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
        draw_normal(factor, x, scene)
        for k in range(slots.size):
            scene.state.effect[slots[k]] = x[k]
    rebuild_scores(scene.users, scene.state, model, scene.scores, scene.threads)
    both = model.item_offsets and model.user_offsets
    if users_first:
        update_user_offsets(scene, both)
    if model.item_offsets:
        update_item_offsets(scene, both and not users_first)
    if model.user_offsets and not users_first:
        update_user_offsets(scene, False)
    if model.item_offsets or model.user_offsets:
        rebuild_scores(scene.users, scene.state, model, scene.scores, scene.threads)
