"""The noise scale τ: by slice with the latent scores integrated out, or by its conjugate draw given them."""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.likelihood import refresh
from doublefeature.kernels.scene import Scene, Side, chunk_count, chunk_start, own_chunks, rating_count
from doublefeature.kernels.scores import try_noise
from doublefeature.kernels.sharing import share_chunks
from doublefeature.kernels.streams import NOISE_SCALE, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import exponential, log_gamma_draw
from doublefeature.model.state import NOISE

FloatArray = NDArray[np.float64]
Relative = tuple[NDArray[np.uint8], FloatArray]

_MOST_STEPS = 50
_MOST_SHRINKS = 200


@kernel
def noise_log_target(scene: Scene, log_noise: float) -> float:
    """Return log likelihood plus log prior of log τ; the state is left at this τ.

    τ² is inverse gamma with shape a and scale b, so log τ = x has log density −2 a x − b exp(−2 x) + constant.
    """
    scene.state.hyper[NOISE] = math.exp(log_noise)
    prior = -2.0 * scene.model.noise_shape * log_noise - scene.model.noise_rate * math.exp(-2.0 * log_noise)
    return prior + try_noise(scene)


@kernel
def update_noise_slice(scene: Scene) -> None:
    """Update τ by a slice on its logarithm."""
    _slice_noise(scene)
    refresh(scene.like, scene.state, scene.model)


@kernel
def _slice_noise(scene: Scene) -> None:
    """Move τ by stepping out and shrinking (Neal, 2003).

    The interval shrinks towards where τ is; after so many shrinks it holds no other number, and τ stays.
    """
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, NOISE_SCALE, 0), 0)
    width = 1.5 / math.sqrt(10.0 + 0.5 * rating_count(scene.users))
    here = math.log(scene.state.hyper[NOISE])
    bar = noise_log_target(scene, here) - exponential(stream)
    low = here - width * uniform(stream)
    high = low + width
    left = int(uniform(stream) * _MOST_STEPS)
    right = _MOST_STEPS - 1 - left
    while left > 0 and noise_log_target(scene, low) > bar:
        low -= width
        left -= 1
    while right > 0 and noise_log_target(scene, high) > bar:
        high += width
        right -= 1
    for _ in range(_MOST_SHRINKS):
        there = low + (high - low) * uniform(stream)
        if noise_log_target(scene, there) > bar:
            return
        if there < here:
            low = there
        else:
            high = there
    scene.state.hyper[NOISE] = math.exp(here)


@leaf
def _residual_chunk(users: Side, relative: Relative, scores: FloatArray, latent: FloatArray, chunk: int) -> float:
    codes, scales = relative
    total = 0.0
    for user in range(chunk_start(users, chunk), chunk_start(users, chunk + 1)):
        for j in range(users.ptr[user], users.ptr[user + 1]):
            gap = (latent[j] - scores[j]) / scales[codes[user]]
            total += gap * gap
    return total


@threaded
def _residual_threads(
    users: Side, relative: Relative, scores: FloatArray, latent: FloatArray, parts: FloatArray
) -> None:
    low, high = own_chunks(users)
    for chunk in prange(low, high):
        parts[chunk] = _residual_chunk(users, relative, scores, latent, chunk)


@kernel
def update_noise_given_latent(scene: Scene) -> None:
    """Draw τ² from its inverse gamma given the latent scores; the likelihood has to be refreshed after."""
    relative = (scene.state.user_scale, scene.model.scales)
    parts = np.zeros(chunk_count(scene.users))
    if scene.threads > 1:
        _residual_threads(scene.users, relative, scene.scores, scene.latent, parts)
    else:
        low, high = own_chunks(scene.users)
        for chunk in range(low, high):
            parts[chunk] = _residual_chunk(scene.users, relative, scene.scores, scene.latent, chunk)
    share_chunks(scene.users, parts)
    total = 0.0
    for part in parts:
        total += part
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, NOISE_SCALE, 1), 0)
    shape = scene.model.noise_shape + 0.5 * rating_count(scene.users)
    log_precision = log_gamma_draw(stream, shape) - math.log(scene.model.noise_rate + 0.5 * total)
    scene.state.hyper[NOISE] = math.exp(-0.5 * log_precision)
