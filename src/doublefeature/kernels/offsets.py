"""Offsets of items and of users given the latent scores, by the same code."""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.scene import Scene, Side, chunk_count, chunk_start, place_of
from doublefeature.kernels.streams import OFFSETS, new_stream, seek, tick
from doublefeature.kernels.variates import normal
from doublefeature.model.state import ITEM_SD, USER_SD

FloatArray = NDArray[np.float64]


@leaf
def _offset_row(
    side: Side,
    user_scale: NDArray[np.uint8],
    precision: FloatArray,
    scores: FloatArray,
    latent: FloatArray,
    row: int,
    told: tuple,
) -> None:
    """Draw one row's offset; if asked, move the row's scores with it."""
    offset, mean, sd, follow, stream = told
    total = 1.0 / (sd * sd)
    pull = mean[row] * total
    for j in range(side.ptr[row], side.ptr[row + 1]):
        user = row if side.of_users else np.int64(side.other[j])
        at = place_of(side, j)
        g = precision[user_scale[user]]
        total += g
        pull += g * (latent[at] - scores[at] + offset[row])
    drawn = pull / total + normal(stream) / math.sqrt(total)
    if follow:
        for j in range(side.ptr[row], side.ptr[row + 1]):
            scores[place_of(side, j)] += drawn - offset[row]
    offset[row] = drawn


@leaf
def _offset_chunk(
    side: Side,
    user_scale: NDArray[np.uint8],
    precision: FloatArray,
    scores: FloatArray,
    latent: FloatArray,
    told: tuple,
    chunk: int,
) -> None:
    offset, mean, sd, follow, key, place, stream = told
    for row in range(chunk_start(side, chunk), chunk_start(side, chunk + 1)):
        seek(stream, key, place, row)
        _offset_row(side, user_scale, precision, scores, latent, row, (offset, mean, sd, follow, stream))


@threaded
def _offset_threads(
    side: Side,
    user_scale: NDArray[np.uint8],
    precision: FloatArray,
    scores: FloatArray,
    latent: FloatArray,
    prior: tuple[FloatArray, FloatArray, float, bool],
    clock: tuple[np.uint64, np.uint64],
) -> None:
    for chunk in prange(chunk_count(side)):
        told = (prior[0], prior[1], prior[2], prior[3], clock[0], clock[1], new_stream())
        _offset_chunk(side, user_scale, precision, scores, latent, told, chunk)


@kernel
def _update_offsets(scene: Scene, side: Side, prior: tuple, place: np.uint64) -> None:
    scale = scene.state.user_scale
    precision = scene.like.precision
    if scene.threads > 1:
        _offset_threads(side, scale, precision, scene.scores, scene.latent, prior, (scene.key, place))
    else:
        told = (prior[0], prior[1], prior[2], prior[3], scene.key, place, new_stream())
        for chunk in range(chunk_count(side)):
            _offset_chunk(side, scale, precision, scene.scores, scene.latent, told, chunk)


@kernel
def update_item_offsets(scene: Scene, follow: bool) -> None:
    """Draw item offsets given the latent scores and everything else; the scores follow if asked."""
    prior = (scene.state.item_offset, scene.model.item_offset_mean, scene.state.hyper[ITEM_SD], follow)
    _update_offsets(scene, scene.items, prior, tick(scene.sweep, OFFSETS, 0))


@kernel
def update_user_offsets(scene: Scene, follow: bool) -> None:
    """Draw user offsets given the latent scores and everything else; the scores follow if asked."""
    prior = (scene.state.user_offset, scene.model.user_offset_mean, scene.state.hyper[USER_SD], follow)
    _update_offsets(scene, scene.users, prior, tick(scene.sweep, OFFSETS, 1))
