r"""The low-rank normal remainder u_u · v_i, given the latent scores.

Given the items' factors a user's are normal with precision I/σ_r² + Σ g v v′, and the other way round. Rows of a side
are independent, so they are handed to threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.gaussian import draw_normal, factorise
from doublefeature.kernels.scene import (
    Scene,
    Side,
    chunk_start,
    is_apart,
    latent_of,
    own_chunks,
    own_rows,
    place_of,
    scores_of,
)
from doublefeature.kernels.scores import rebuild_item_scores, rebuild_scores, remainder_of
from doublefeature.kernels.sharing import share_rows
from doublefeature.kernels.streams import REMAINDER, Stream, new_stream, seek, tick
from doublefeature.model.state import REMAINDER_SD, State

FloatArray = NDArray[np.float64]


@leaf
def _draw_row(side: Side, state: State, residual: FloatArray, row: int, told: tuple, stream: Stream) -> None:
    """Draw one row's factors, as a step away from where they are."""
    weights, precision, step = told
    own = state.user_factor if side.of_users else state.item_factor
    others = state.item_factor if side.of_users else state.user_factor
    prior = 1.0 / state.hyper[REMAINDER_SD] ** 2
    rank = own.shape[1]
    for a in range(rank):
        step[a] = -prior * own[row, a]
        for b in range(a + 1):
            precision[a, b] = prior if a == b else 0.0
    for j in range(side.ptr[row], side.ptr[row + 1]):
        other = np.int64(side.other[j])
        weight = weights[state.user_scale[row] if side.of_users else state.user_scale[other]]
        pull = weight * residual[place_of(side, j)]
        for a in range(rank):
            step[a] += pull * others[other, a]
            for b in range(a + 1):
                precision[a, b] += weight * others[other, a] * others[other, b]
    factorise(precision)
    draw_normal(precision, step, stream)
    for a in range(rank):
        own[row, a] += step[a]


@kernel
def _draw_chunk(
    side: Side, state: State, weights: FloatArray, residual: FloatArray, place: tuple[np.uint64, np.uint64], chunk: int
) -> None:
    rank = state.user_factor.shape[1]
    told = (weights, np.empty((rank, rank)), np.empty(rank))
    stream = new_stream()
    for row in range(chunk_start(side, chunk), chunk_start(side, chunk + 1)):
        seek(stream, place[0], place[1], row)
        _draw_row(side, state, residual, row, told, stream)


@threaded
def _draw_threads(
    side: Side, state: State, weights: FloatArray, residual: FloatArray, place: tuple[np.uint64, np.uint64]
) -> None:
    low, high = own_chunks(side)
    for chunk in prange(low, high):
        _draw_chunk(side, state, weights, residual, place, chunk)


@kernel
def _draw_side(scene: Scene, side: Side, step: int) -> None:
    residual = latent_of(scene, side) - scores_of(scene, side)
    place = (scene.key, tick(scene.sweep, REMAINDER, step))
    if scene.threads > 1:
        _draw_threads(side, scene.state, scene.like.precision, residual, place)
    else:
        low, high = own_chunks(side)
        for chunk in range(low, high):
            _draw_chunk(side, scene.state, scene.like.precision, residual, place, chunk)
    share_rows(side, scene.state.user_factor if side.of_users else scene.state.item_factor)


@leaf
def _move_side(side: Side, state: State, scores: FloatArray, latent: FloatArray, sign: float) -> None:
    low, high = own_rows(side)
    for row in range(low, high):
        for j in range(side.ptr[row], side.ptr[row + 1]):
            other = np.int64(side.other[j])
            user, item = (row, other) if side.of_users else (other, row)
            step = sign * remainder_of(state, user, item)
            scores[j] += step
            latent[j] += step


@kernel
def move_remainder(scene: Scene, sign: float) -> None:
    """Add the remainder to scores and latent scores (sign 1), or take it out of both (sign −1)."""
    _move_side(scene.users, scene.state, scene.scores, scene.latent, sign)
    if is_apart(scene.items):
        _move_side(scene.items, scene.state, scene.items.scores, scene.items.latent, sign)


@kernel
def update_remainder(scene: Scene) -> None:
    """Draw users' factors, then items'; the scores follow."""
    _draw_side(scene, scene.users, 0)
    rebuild_item_scores(scene)
    _draw_side(scene, scene.items, 1)
    rebuild_scores(scene)
