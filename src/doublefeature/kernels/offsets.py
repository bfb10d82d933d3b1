"""Offsets of items and of users given the latent scores.

During these updates `Scene.scores` holds the shared effects alone (see `rebuild_effects`).
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.scene import PARTS, Scene, Side, chunk_start, own_chunks, own_parts, part_start
from doublefeature.kernels.sharing import add_parts, share_rows
from doublefeature.kernels.streams import OFFSETS, Stream, new_stream, seek, tick
from doublefeature.kernels.variates import normal
from doublefeature.model.state import ITEM_SD, USER_SD

FloatArray = NDArray[np.float64]


@leaf
def _draw_user_chunk(
    users: Side,
    user_scale: NDArray[np.uint8],
    precision: FloatArray,
    scores: FloatArray,
    latent: FloatArray,
    told: tuple,
    chunk: int,
) -> None:
    """Draw the offsets of a chunk of users."""
    user_offset, mean, sd, item_offset, base, key, place, stream = told
    for user in range(chunk_start(users, chunk), chunk_start(users, chunk + 1)):
        g = precision[user_scale[user]]
        gaps = 0.0
        for j in range(users.ptr[user], users.ptr[user + 1]):
            gaps += latent[j] - scores[j] - base - item_offset[np.uint64(users.other[j])]
        seek(stream, key, place, user)
        count = users.ptr[user + 1] - users.ptr[user]
        user_offset[user] = _draw(g * count, g * gaps, mean[user], sd, stream)


@leaf
def _draw(precision: float, pull: float, mean: float, sd: float, stream: Stream) -> float:
    """Return an offset given precision and pull of its ratings."""
    prior = 1.0 / (sd * sd)
    total = precision + prior
    return (pull + prior * mean) / total + normal(stream) / math.sqrt(total)


@threaded
def _draw_user_threads(
    users: Side,
    user_scale: NDArray[np.uint8],
    precision: FloatArray,
    scores: FloatArray,
    latent: FloatArray,
    prior: tuple[FloatArray, FloatArray, float, FloatArray, float],
    clock: tuple[np.uint64, np.uint64],
) -> None:
    low, high = own_chunks(users)
    for chunk in prange(low, high):
        told = (prior[0], prior[1], prior[2], prior[3], prior[4], clock[0], clock[1], new_stream())
        _draw_user_chunk(users, user_scale, precision, scores, latent, told, chunk)


@kernel
def update_user_offsets(scene: Scene) -> None:
    """Draw user offsets given the latent scores and everything else."""
    state, model = scene.state, scene.model
    place = tick(scene.sweep, OFFSETS, 1)
    sd = state.hyper[USER_SD]
    data = (scene.users, state.user_scale, scene.like.precision, scene.scores, scene.latent)
    if scene.threads > 1:
        prior = (state.user_offset, model.user_offset_mean, sd, state.item_offset, model.base)
        _draw_user_threads(*data, prior, (scene.key, place))
    else:
        told = (
            state.user_offset,
            model.user_offset_mean,
            sd,
            state.item_offset,
            model.base,
            scene.key,
            place,
            new_stream(),
        )
        low, high = own_chunks(scene.users)
        for chunk in range(low, high):
            _draw_user_chunk(*data, told, chunk)
    share_rows(scene.users, state.user_offset)


@leaf
def _item_sums_part(
    users: Side,
    user_scale: NDArray[np.uint8],
    precision: FloatArray,
    scores: FloatArray,
    latent: FloatArray,
    told: tuple,
    part: int,
) -> None:
    """Add up precision and pull of every item, in user order: next to no jumping about in memory."""
    user_offset, base, sums = told
    for user in range(part_start(users, part), part_start(users, part + 1)):
        g = precision[user_scale[user]]
        shift = base + user_offset[user]
        for j in range(users.ptr[user], users.ptr[user + 1]):
            item = np.uint64(users.other[j])
            sums[part, item, 0] += g
            sums[part, item, 1] += g * (latent[j] - scores[j] - shift)


@threaded
def _item_sums_threads(
    users: Side,
    user_scale: NDArray[np.uint8],
    precision: FloatArray,
    scores: FloatArray,
    latent: FloatArray,
    told: tuple,
) -> None:
    low, high = own_parts(users)
    for part in prange(low, high):
        _item_sums_part(users, user_scale, precision, scores, latent, told, part)


@kernel
def update_item_offsets(scene: Scene) -> None:
    """Draw item offsets given the latent scores and everything else."""
    state = scene.state
    sums = np.zeros((PARTS, state.item_offset.size, 2))
    told = (state.user_offset, scene.model.base, sums)
    data = (scene.users, state.user_scale, scene.like.precision, scene.scores, scene.latent)
    if scene.threads > 1:
        _item_sums_threads(*data, told)
    else:
        low, high = own_parts(scene.users)
        for part in range(low, high):
            _item_sums_part(*data, told, part)
    add_parts(scene.users, sums)
    mean = scene.model.item_offset_mean
    stream = new_stream()
    for item in range(state.item_offset.size):
        seek(stream, scene.key, tick(scene.sweep, OFFSETS, 0), item)
        drawn = _draw(sums[0, item, 0], sums[0, item, 1], mean[item], state.hyper[ITEM_SD], stream)
        state.item_offset[item] = drawn
