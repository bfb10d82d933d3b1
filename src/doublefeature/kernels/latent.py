"""Latent scores behind the observed levels."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.likelihood import Likelihood
from doublefeature.kernels.scene import Scene, Side, chunk_count, chunk_start
from doublefeature.kernels.streams import LATENT, new_stream, seek, tick
from doublefeature.kernels.variates import truncated_normal

FloatArray = NDArray[np.float64]


@leaf
def _latent_chunk(
    users: Side,
    user_scale: NDArray[np.uint8],
    like: Likelihood,
    scores: FloatArray,
    latent: FloatArray,
    told: tuple,
    chunk: int,
) -> None:
    key, place, stream = told
    for user in range(chunk_start(users, chunk), chunk_start(users, chunk + 1)):
        seek(stream, key, place, user)
        noise = like.noise[user_scale[user]]
        per_noise = 1.0 / noise
        for j in range(users.ptr[user], users.ptr[user + 1]):
            level = users.levels[j]
            low = (like.cutpoints[level] - scores[j]) * per_noise
            high = (like.cutpoints[level + 1] - scores[j]) * per_noise
            latent[j] = scores[j] + noise * truncated_normal(stream, low, high)


@threaded
def _latent_threads(
    users: Side,
    user_scale: NDArray[np.uint8],
    like: Likelihood,
    scores: FloatArray,
    latent: FloatArray,
    clock: tuple[np.uint64, np.uint64],
) -> None:
    for chunk in prange(chunk_count(users)):
        told = (clock[0], clock[1], new_stream())
        _latent_chunk(users, user_scale, like, scores, latent, told, chunk)


@kernel
def update_latent(scene: Scene) -> None:
    """Draw every latent score: normal around the score, inside its level's interval."""
    place = tick(scene.sweep, LATENT, 0)
    scale = scene.state.user_scale
    if scene.threads > 1:
        _latent_threads(scene.users, scale, scene.like, scene.scores, scene.latent, (scene.key, place))
    else:
        told = (scene.key, place, new_stream())
        for chunk in range(chunk_count(scene.users)):
            _latent_chunk(scene.users, scale, scene.like, scene.scores, scene.latent, told, chunk)
