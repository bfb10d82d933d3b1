r"""Users' own noise scales: a choice among multiples of τ, with the latent scores integrated out.

The logarithm v of a user's multiple is normal with standard deviation σ_v, cut to the grid of multiples. Given the
users' choices, log σ_v is moved by a random walk.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.likelihood import Likelihood, log_probability
from doublefeature.kernels.scene import Scene, Side, chunk_start, own_chunks
from doublefeature.kernels.sharing import share_rows
from doublefeature.kernels.streams import USER_SCALES, Stream, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import normal, normalise_logs, pick_by_logs
from doublefeature.model.state import SCALE_SD

FloatArray = NDArray[np.float64]

_STEP = 0.3


@kernel
def scale_log_weights(scales: FloatArray, sd: float) -> FloatArray:
    """Return the log prior probability of every multiple."""
    weights = np.empty(scales.size)
    for scale in range(scales.size):
        weights[scale] = -0.5 * (math.log(scales[scale]) / sd) ** 2
    normalise_logs(weights)
    return weights


@leaf
def _choose(users: Side, like: Likelihood, scores: FloatArray, user: int, told: tuple, stream: Stream) -> int:
    """Draw one user's multiple from its conditional."""
    prior, weights = told
    for scale in range(prior.size):
        weights[scale] = prior[scale]
        for j in range(users.ptr[user], users.ptr[user + 1]):
            weights[scale] += log_probability(like, scale, users.levels[j], scores[j])
    normalise_logs(weights)
    return pick_by_logs(stream, weights)


@kernel
def _choose_chunk(
    users: Side, like: Likelihood, scores: FloatArray, codes: NDArray[np.uint8], told: tuple, chunk: int
) -> None:
    prior, key, place = told
    stream = new_stream()
    weights = np.empty(prior.size)
    for user in range(chunk_start(users, chunk), chunk_start(users, chunk + 1)):
        seek(stream, key, place, user)
        codes[user] = _choose(users, like, scores, user, (prior, weights), stream)


@threaded
def _choose_threads(users: Side, like: Likelihood, scores: FloatArray, codes: NDArray[np.uint8], told: tuple) -> None:
    low, high = own_chunks(users)
    for chunk in prange(low, high):
        _choose_chunk(users, like, scores, codes, told, chunk)


@kernel
def spread_log_target(scales: FloatArray, counts: FloatArray, log_sd: float, prior: tuple[float, float]) -> float:
    """Return the log density of log σ_v given how many users have each multiple; σ_v² is inverse gamma."""
    weights = scale_log_weights(scales, math.exp(log_sd))
    total = -2.0 * prior[0] * log_sd - prior[1] * math.exp(-2.0 * log_sd)
    for scale in range(scales.size):
        total += counts[scale] * weights[scale]
    return total


@kernel
def update_user_scales(scene: Scene) -> None:
    """Draw every user's multiple of τ, then their spread if it is learnt."""
    state, model = scene.state, scene.model
    prior = scale_log_weights(model.scales, state.hyper[SCALE_SD])
    told = (prior, scene.key, tick(scene.sweep, USER_SCALES, 0))
    if scene.threads > 1:
        _choose_threads(scene.users, scene.like, scene.scores, state.user_scale, told)
    else:
        low, high = own_chunks(scene.users)
        for chunk in range(low, high):
            _choose_chunk(scene.users, scene.like, scene.scores, state.user_scale, told, chunk)
    share_rows(scene.users, state.user_scale)
    if not model.learn_scale_sd:
        return
    counts = np.zeros(model.scales.size)
    for user in range(state.user_scale.size):
        counts[state.user_scale[user]] += 1.0
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, USER_SCALES, 1), 0)
    shape = (model.sd_shape, model.scale_sd_rate)
    here = math.log(state.hyper[SCALE_SD])
    there = here + _STEP * normal(stream)
    gain = spread_log_target(model.scales, counts, there, shape) - spread_log_target(model.scales, counts, here, shape)
    if math.log(uniform(stream)) < gain:
        state.hyper[SCALE_SD] = math.exp(there)
