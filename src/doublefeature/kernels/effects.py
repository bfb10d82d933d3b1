"""Effects updated one feature at a time with the latent scores integrated out.

Worth its cost when the noise is small and the latent scores hold the effects in place. The proposal is the
normal (or, for a list of allowed effects, the exact conditional) at the mode seen from the other features, so
it does not depend on the effect it replaces.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import ONE, has_bit
from doublefeature.kernels.launch import newton_step
from doublefeature.kernels.likelihood import Likelihood, curve_of, log_at, slopes_at
from doublefeature.kernels.orders import scan_order
from doublefeature.kernels.priors import effect_log_prior, normal_log_density
from doublefeature.kernels.scene import EFFECT, PARTS, Scene, note, part_start
from doublefeature.kernels.sharing import add_parts
from doublefeature.kernels.streams import EFFECTS, ORDER, Stream, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import normal, normalise_logs, pick_by_logs
from doublefeature.model.state import EFFECT_SD

FloatArray = NDArray[np.float64]

_NEWTON_STEPS = 5
_WIDEN = 1.2
_CLOSE = 0.1


class Pairs(NamedTuple):
    """The ratings inside a feature that this worker holds, part of the users by part."""

    starts: NDArray[np.int64]  # (PARTS + 1,) where each part's begin
    places: NDArray[np.uint32]
    curves: NDArray[np.uint16]
    rest: FloatArray  # scores without the feature


@leaf
def _collect(scene: Scene, slot: int, room: Pairs) -> np.uint64:
    """List the ratings inside a feature, without a branch to mispredict; return how many they are."""
    users = scene.users
    state = scene.state
    word = slot >> 6
    shift = np.uint64(slot & 63)
    count = np.uint64(0)
    for part in range(PARTS):
        room.starts[part] = np.int64(count)
        for user in range(part_start(users, part), part_start(users, part + 1)):
            if not has_bit(state.user_words, user, slot):
                continue
            for j in range(users.ptr[user], users.ptr[user + 1]):
                item = np.uint64(users.other[j])
                room.places[count] = j
                room.curves[count] = curve_of(scene.like, state.user_scale[user], users.levels[j])
                room.rest[count] = scene.scores[j] - state.effect[slot]
                count += (state.item_words[item, word] >> shift) & ONE
    room.starts[PARTS] = np.int64(count)
    return count


@kernel
def pairs_of(scene: Scene, slot: int) -> Pairs:
    """Return the ratings inside a feature."""
    most = 1
    for user in range(scene.state.user_words.shape[0]):
        if has_bit(scene.state.user_words, user, slot):
            most += scene.users.ptr[user + 1] - scene.users.ptr[user]
    starts = np.zeros(PARTS + 1, np.int64)
    room = Pairs(starts, np.empty(most, np.uint32), np.empty(most, np.uint16), np.empty(most))
    count = _collect(scene, slot, room)
    return Pairs(starts, room.places[:count], room.curves[:count], room.rest[:count])


@leaf
def _fill_logs(like: Likelihood, pairs: Pairs, effects: FloatArray, sums: FloatArray) -> None:
    for part in range(PARTS):
        for v in range(effects.size):
            for j in range(pairs.starts[part], pairs.starts[part + 1]):
                sums[part, v] += log_at(like, pairs.curves[j], pairs.rest[j] + effects[v])


@kernel
def effect_log_targets(scene: Scene, pairs: Pairs, effects: FloatArray) -> FloatArray:
    """Return the log of likelihood times prior of a feature's effect, at these effects."""
    sums = np.zeros((PARTS, effects.size))
    _fill_logs(scene.like, pairs, effects, sums)
    add_parts(scene.users, sums)
    for v in range(effects.size):
        sums[0, v] += effect_log_prior(effects[v], scene.state, scene.model)
    return sums[0]


@leaf
def _fill_slopes(like: Likelihood, pairs: Pairs, effect: float, sums: FloatArray) -> None:
    for part in range(PARTS):
        slope = 0.0
        curvature = 0.0
        for j in range(pairs.starts[part], pairs.starts[part + 1]):
            first, second = slopes_at(like, pairs.curves[j], pairs.rest[j] + effect)
            slope += first
            curvature += second
        sums[part, 0] = slope
        sums[part, 1] = curvature


@kernel
def _mode(scene: Scene, pairs: Pairs) -> tuple[float, float]:
    """Return the posterior mode of a feature's effect given the rest, and the spread there."""
    sd = scene.state.hyper[EFFECT_SD]
    effect = 0.0
    spread = sd
    for _ in range(_NEWTON_STEPS):
        sums = np.zeros((PARTS, 2))
        _fill_slopes(scene.like, pairs, effect, sums)
        add_parts(scene.users, sums)
        before = effect
        effect, spread = newton_step(effect, sums[0, 0], sums[0, 1], sd)
        if abs(effect - before) < _CLOSE * spread:
            break
    return effect, spread


@kernel
def _draw_listed(scene: Scene, pairs: Pairs, stream: Stream) -> float:
    """Return one of the allowed effects, from its exact conditional."""
    values = scene.model.effect_values
    weights = effect_log_targets(scene, pairs, values)
    normalise_logs(weights)
    return values[pick_by_logs(stream, weights)]


@kernel
def update_effects(scene: Scene) -> None:
    """Update every feature's effect given memberships, offsets and noise alone."""
    stream = new_stream()
    for slot in scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 4)):
        seek(stream, scene.key, tick(scene.sweep, EFFECTS, 0), slot)
        pairs = pairs_of(scene, slot)
        current = scene.state.effect[slot]
        if scene.model.effect_values.size > 0:
            effect = _draw_listed(scene, pairs, stream)
            accepted = True
        else:
            mode, spread = _mode(scene, pairs)
            spread *= _WIDEN
            effect = mode + spread * normal(stream)
            targets = effect_log_targets(scene, pairs, np.array([effect, current]))
            ratio = targets[0] - targets[1]
            ratio += normal_log_density(current, mode, spread) - normal_log_density(effect, mode, spread)
            accepted = math.log(uniform(stream)) < ratio
        note(scene.tally, EFFECT, accepted)
        if accepted:
            scene.state.effect[slot] = effect
            for place in pairs.places:
                scene.scores[place] += effect - current
