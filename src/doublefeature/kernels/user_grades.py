r"""How strongly users hold features, with their offsets, given the latent scores.

Given everything else a user's offset and the grades of the features they belong to are jointly normal: a rating of
item i has η = … + α_u + Σ_k s_uk w_ik over shared features, with s_uk ~ N(1, σ_s²). Users are independent, so they are
handed to threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import active_slots, has_bit
from doublefeature.kernels.gaussian import draw_normal, factorise
from doublefeature.kernels.scene import Scene, Side, chunk_start, own_chunks
from doublefeature.kernels.sharing import share_rows
from doublefeature.kernels.streams import USER_GRADES, Stream, new_stream, seek, tick
from doublefeature.model.state import USER_GRADE_SD, USER_SD, Model, State

FloatArray = NDArray[np.float64]
SlotArray = NDArray[np.int64]


@leaf
def _gather_user(side: Side, state: State, residual: FloatArray, user: int, told: tuple) -> None:
    """Add a user's ratings to precision and slope of (grades, offset), seen as a step from where they are."""
    own, count, offset, weight, shared, precision, step = told
    for j in range(side.ptr[user], side.ptr[user + 1]):
        item = np.int64(side.other[j])
        n_shared = 0
        for n in range(count):
            if has_bit(state.item_words, item, own[n]):
                shared[n_shared] = n
                n_shared += 1
        pull = weight * residual[j]
        for a in range(n_shared):
            x = state.item_effect[item, own[shared[a]]]
            step[shared[a]] += pull * x
            for b in range(a + 1):
                precision[shared[a], shared[b]] += weight * x * state.item_effect[item, own[shared[b]]]
            if offset == 1:
                precision[count, shared[a]] += weight * x
        if offset == 1:
            precision[count, count] += weight
            step[count] += pull


@leaf
def _draw_user(
    side: Side, state: State, model: Model, residual: FloatArray, user: int, weight: float, space: tuple, stream: Stream
) -> None:
    slots, own, shared, matrix, linear = space
    count = 0
    for slot in slots:
        if has_bit(state.user_words, user, slot):
            own[count] = slot
            count += 1
    offset = 1 if model.user_offsets else 0
    size = count + offset
    if size == 0:
        return
    precision = matrix[:size, :size]
    step = linear[:size]
    prior = 1.0 / state.hyper[USER_GRADE_SD] ** 2
    for n in range(count):
        for m in range(n):
            precision[n, m] = 0.0
        precision[n, n] = prior
        step[n] = prior * (1.0 - state.user_grade[user, own[n]])
    if offset == 1:
        for m in range(count):
            precision[count, m] = 0.0
        precision[count, count] = 1.0 / state.hyper[USER_SD] ** 2
        step[count] = precision[count, count] * (model.user_offset_mean[user] - state.user_offset[user])
    _gather_user(side, state, residual, user, (own, count, offset, weight, shared, precision, step))
    factorise(precision)
    draw_normal(precision, step, stream)
    for n in range(count):
        state.user_grade[user, own[n]] += step[n]
    if offset == 1:
        state.user_offset[user] += step[count]


@kernel
def _draw_chunk(
    side: Side, state: State, model: Model, weights: FloatArray, residual: FloatArray, told: tuple, chunk: int
) -> None:
    slots, key, place = told
    size = slots.size + 1
    space = (slots, np.empty(size, np.int64), np.empty(size, np.int64), np.empty((size, size)), np.empty(size))
    stream = new_stream()
    for user in range(chunk_start(side, chunk), chunk_start(side, chunk + 1)):
        seek(stream, key, place, user)
        _draw_user(side, state, model, residual, user, weights[state.user_scale[user]], space, stream)


@threaded
def _draw_threads(
    side: Side, state: State, model: Model, weights: FloatArray, residual: FloatArray, told: tuple
) -> None:
    low, high = own_chunks(side)
    for chunk in prange(low, high):
        _draw_chunk(side, state, model, weights, residual, told, chunk)


@kernel
def update_user_grades(scene: Scene) -> None:
    """Draw every user's grades and offset given the latent scores. The scores are left as they were."""
    state = scene.state
    residual = scene.latent - scene.scores
    told = (active_slots(state.active), scene.key, tick(scene.sweep, USER_GRADES, 0))
    if scene.threads > 1:
        _draw_threads(scene.users, state, scene.model, scene.like.precision, residual, told)
    else:
        low, high = own_chunks(scene.users)
        for chunk in range(low, high):
            _draw_chunk(scene.users, state, scene.model, scene.like.precision, residual, told, chunk)
    share_rows(scene.users, state.user_grade)
    share_rows(scene.users, state.user_offset)
