"""Latent scores behind the observed levels."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.likelihood import Likelihood
from doublefeature.kernels.scene import Scene, Side, chunk_start, is_apart, latent_of, own_chunks, scores_of
from doublefeature.kernels.streams import LATENT, branch, new_stream, seeds_of, tick
from doublefeature.kernels.variates import truncated_normal
from doublefeature.model.state import State

FloatArray = NDArray[np.float64]


@leaf
def _latent_chunk(side: Side, state: State, like: Likelihood, scores: FloatArray, told: tuple, chunk: int) -> None:
    latent, seeds, stream = told
    for row in range(chunk_start(side, chunk), chunk_start(side, chunk + 1)):
        for j in range(side.ptr[row], side.ptr[row + 1]):
            other = np.int64(side.other[j])
            user, item = (row, other) if side.of_users else (other, row)
            branch(stream, seeds, user, item)
            noise = like.noise[state.user_scale[user]]
            per_noise = 1.0 / noise
            level = side.levels[j]
            low = (like.cutpoints[level] - scores[j]) * per_noise
            high = (like.cutpoints[level + 1] - scores[j]) * per_noise
            latent[j] = scores[j] + noise * truncated_normal(stream, low, high)


@threaded
def _latent_threads(
    side: Side, state: State, like: Likelihood, scores: FloatArray, latent: FloatArray, seeds: NDArray[np.uint64]
) -> None:
    low, high = own_chunks(side)
    for chunk in prange(low, high):
        _latent_chunk(side, state, like, scores, (latent, seeds, new_stream()), chunk)


@kernel
def _latent_side(scene: Scene, side: Side, seeds: NDArray[np.uint64]) -> None:
    """Draw the latent scores of a side's ratings, which stand in its own order."""
    scores, latent = scores_of(scene, side), latent_of(scene, side)
    if scene.threads > 1:
        _latent_threads(side, scene.state, scene.like, scores, latent, seeds)
    else:
        low, high = own_chunks(side)
        told = (latent, seeds, new_stream())
        for chunk in range(low, high):
            _latent_chunk(side, scene.state, scene.like, scores, told, chunk)


@kernel
def update_latent(scene: Scene) -> None:
    """Draw every latent score: normal around the score, inside its level's interval.

    Each pair of user and item has random numbers of its own, so that either side draws the same.
    """
    seeds = seeds_of(scene.state.user_scale.size, scene.key, tick(scene.sweep, LATENT, 0))
    _latent_side(scene, scene.users, seeds)
    if is_apart(scene.items):
        _latent_side(scene, scene.items, seeds)
