"""Effects updated one feature at a time with the latent scores integrated out.

Worth its cost when the noise is small and the latent scores hold the effects in place. The proposal is the
normal (or, for a list of allowed effects, the exact conditional) at the mode seen from the other features, so
it does not depend on the effect it replaces.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import has_bit
from doublefeature.kernels.launch import newton_step
from doublefeature.kernels.likelihood import log_probability, slopes
from doublefeature.kernels.memberships import scan_order
from doublefeature.kernels.priors import effect_log_prior, normal_log_density
from doublefeature.kernels.scene import EFFECT, Scene, note
from doublefeature.kernels.streams import EFFECTS, ORDER, Stream, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import normal, normalise_logs, pick_by_logs
from doublefeature.model.state import EFFECT_SD

FloatArray = NDArray[np.float64]

_NEWTON_STEPS = 5
_WIDEN = 1.2


@kernel
def _pairs_of(scene: Scene, slot: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where the ratings inside a feature stand, and their users' scales."""
    state = scene.state
    total = 0
    for fill in range(2):
        places = np.empty(total, np.int64)
        scales = np.empty(total, np.uint8)
        total = 0
        for user in range(state.user_words.shape[0]):
            if not has_bit(state.user_words, user, slot):
                continue
            for j in range(scene.users.ptr[user], scene.users.ptr[user + 1]):
                if has_bit(state.item_words, np.int64(scene.users.other[j]), slot):
                    if fill == 1:
                        places[total] = j
                        scales[total] = state.user_scale[user]
                    total += 1
    return places, scales


@leaf
def _log_target(
    scene: Scene, pairs: tuple[NDArray[np.int64], NDArray[np.uint8]], current: float, effect: float
) -> float:
    """Return the log of likelihood times prior of a feature's effect (`current` is in the scores)."""
    places, scales = pairs
    total = effect_log_prior(effect, scene.state, scene.model)
    for j in range(places.size):
        level = scene.users.levels[places[j]]
        total += log_probability(scene.like, scales[j], level, scene.scores[places[j]] - current + effect)
    return total


@leaf
def _mode(scene: Scene, pairs: tuple[NDArray[np.int64], NDArray[np.uint8]], current: float) -> tuple[float, float]:
    """Return the posterior mode of a feature's effect given the rest, and the spread there."""
    places, scales = pairs
    sd = scene.state.hyper[EFFECT_SD]
    effect = 0.0
    spread = sd
    for _ in range(_NEWTON_STEPS):
        slope = 0.0
        curvature = 0.0
        for j in range(places.size):
            level = scene.users.levels[places[j]]
            score = scene.scores[places[j]] - current + effect
            first, second = slopes(scene.like, scales[j], level, score)
            slope += first
            curvature += second
        effect, spread = newton_step(effect, slope, curvature, sd)
    return effect, spread


@kernel
def _draw_listed(
    scene: Scene, pairs: tuple[NDArray[np.int64], NDArray[np.uint8]], current: float, stream: Stream
) -> float:
    """Return one of the allowed effects, from its exact conditional."""
    values = scene.model.effect_values
    weights = np.empty(values.size)
    for v in range(values.size):
        weights[v] = _log_target(scene, pairs, current, values[v])
    normalise_logs(weights)
    return values[pick_by_logs(stream, weights)]


@kernel
def update_effects(scene: Scene) -> None:
    """Update every feature's effect given memberships, offsets and noise alone."""
    stream = new_stream()
    for slot in scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 4)):
        seek(stream, scene.key, tick(scene.sweep, EFFECTS, 0), slot)
        pairs = _pairs_of(scene, slot)
        current = scene.state.effect[slot]
        if scene.model.effect_values.size > 0:
            effect = _draw_listed(scene, pairs, current, stream)
            accepted = True
        else:
            mode, spread = _mode(scene, pairs, current)
            spread *= _WIDEN
            effect = mode + spread * normal(stream)
            ratio = _log_target(scene, pairs, current, effect) - _log_target(scene, pairs, current, current)
            ratio += normal_log_density(current, mode, spread) - normal_log_density(effect, mode, spread)
            accepted = math.log(uniform(stream)) < ratio
        note(scene.tally, EFFECT, accepted)
        if accepted:
            scene.state.effect[slot] = effect
            for place in pairs[0]:
                scene.scores[place] += effect - current
