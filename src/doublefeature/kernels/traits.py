r"""Traits of users, and how they shift who belongs to a feature.

With traits z_u the log odds of belonging to feature k are ψ_uk = a_k + z_u d_k. Features are a Poisson process with
intensity λ π⁻¹ dπ N(d; 0, σ_c²) dd, π the rate at traits 0, so that a = logit π has density λ (1 − π) da. Given a
feature's users, (a, d) are renewed by an independence step from the normal at the mode; private features are born from
the prior and buried one by one. User offsets have mean z_u δ.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import (
    active_slots,
    close_slot,
    count_members,
    has_bit,
    members_of,
    open_slot,
    set_bit,
    with_free_slot,
)
from doublefeature.kernels.gaussian import draw_normal, factorise
from doublefeature.kernels.priors import draw_effect, draw_rate
from doublefeature.kernels.scene import PRIOR_SINGLETON, Scene, note, with_state
from doublefeature.kernels.scores import add_to_row
from doublefeature.kernels.singletons import row_log_likelihood
from doublefeature.kernels.streams import TRAITS, Stream, below, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import beta_logit, normal
from doublefeature.model.state import GRADE_SD, MASS, USER_SD, State

FloatArray = NDArray[np.float64]
Mask = NDArray[np.uint8]

_WIDEN = 1.1
_NEWTON_STEPS = 8
_LONGEST_STEP = 2.0
_LOG_2PI = math.log(2.0 * math.pi)


@leaf
def soft_plus(x: float) -> float:
    """Return log(1 + exp(x))."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@leaf
def user_logit(traits: FloatArray, weights: FloatArray, user: int) -> float:
    """Return the log odds of one user, ψ = a + z d."""
    total = weights[0]
    for t in range(traits.shape[1]):
        total += traits[user, t] * weights[t + 1]
    return total


@leaf
def weights_log_prior(weights: FloatArray, sd: float) -> float:
    """Return log[(1 − π) N(d; 0, σ_c²)], the density of a feature's weights less λ."""
    total = -soft_plus(weights[0])
    for t in range(1, weights.size):
        total -= 0.5 * (weights[t] / sd) ** 2 + math.log(sd) + 0.5 * _LOG_2PI
    return total


@leaf
def weights_log_target(traits: FloatArray, inside: Mask, weights: FloatArray, sd: float) -> float:
    """Return the log density of a feature's weights given its users, up to a constant."""
    total = weights_log_prior(weights, sd)
    for user in range(inside.size):
        logit = user_logit(traits, weights, user)
        total += (logit if inside[user] != 0 else 0.0) - soft_plus(logit)
    return total


@leaf
def gather_weights(
    traits: FloatArray, members: FloatArray, weights: FloatArray, sd: float, told: tuple[FloatArray, FloatArray]
) -> None:
    """Fill precision and slope of the log target at these weights, for expected memberships between 0 and 1."""
    precision, slope = told
    size = weights.size
    for a in range(size):
        slope[a] = -weights[a] / (sd * sd)
        for b in range(a + 1):
            precision[a, b] = 1.0 / (sd * sd) if a == b else 0.0
    rate = 1.0 / (1.0 + math.exp(-weights[0]))
    slope[0] = -rate
    precision[0, 0] = rate * (1.0 - rate)
    for user in range(members.size):
        p = 1.0 / (1.0 + math.exp(-user_logit(traits, weights, user)))
        gap = members[user] - p
        v = p * (1.0 - p)
        slope[0] += gap
        precision[0, 0] += v
        for a in range(1, size):
            z = traits[user, a - 1]
            slope[a] += gap * z
            precision[a, 0] += v * z
            for b in range(1, a + 1):
                precision[a, b] += v * z * traits[user, b - 1]


@kernel
def newton_weights(traits: FloatArray, members: FloatArray, weights: FloatArray, sd: float, steps: int) -> FloatArray:
    """Move weights towards the mode in place; return the Cholesky factor of the precision where the last step began."""
    size = weights.size
    precision = np.zeros((size, size))
    slope = np.zeros(size)
    for _ in range(steps):
        gather_weights(traits, members, weights, sd, (precision, slope))
        factorise(precision)
        for a in range(size):
            for b in range(a):
                slope[a] -= precision[a, b] * slope[b]
            slope[a] /= precision[a, a]
        for a in range(size - 1, -1, -1):
            for b in range(a + 1, size):
                slope[a] -= precision[b, a] * slope[b]
            slope[a] /= precision[a, a]
        longest = 0.0
        for a in range(size):
            longest = max(longest, abs(slope[a]))
        scale = min(1.0, _LONGEST_STEP / max(longest, 1e-300))
        for a in range(size):
            weights[a] += scale * slope[a]
    return precision


@kernel
def draw_weights(mode: FloatArray, factor: FloatArray, widen: float, stream: Stream) -> FloatArray:
    """Return weights from the normal around a mode, so many times wider than the precision's factor says."""
    step = np.zeros(mode.size)
    draw_normal(factor, step, stream)
    return mode + widen * step


@leaf
def weights_log_proposal(weights: FloatArray, mode: FloatArray, factor: FloatArray, widen: float) -> float:
    """Return the log density of `draw_weights` at these weights."""
    size = weights.size
    total = -0.5 * size * _LOG_2PI
    for a in range(size):
        z = 0.0
        for b in range(a, size):
            z += factor[b, a] * (weights[b] - mode[b]) / widen
        total += math.log(factor[a, a] / widen) - 0.5 * z * z
    return total


@kernel
def update_traits(scene: Scene) -> None:
    """Renew every feature's weights given its users, then how traits shift user offsets."""
    state, model = scene.state, scene.model
    n_users = state.user_words.shape[0]
    size = model.traits.shape[1] + 1
    stream = new_stream()
    for slot in active_slots(state.active):
        seek(stream, scene.key, tick(scene.sweep, TRAITS, 0), slot)
        inside = members_of(state.user_words, slot)
        count = 0.0
        for user in range(n_users):
            count += inside[user]
        mode = np.zeros(size)
        mode[0] = math.log((count + 0.5) / (n_users - count + 1.0))
        factor = newton_weights(model.traits, inside.astype(np.float64), mode, model.trait_sd, _NEWTON_STEPS)
        there = draw_weights(mode, factor, _WIDEN, stream)
        here = state.trait[slot].copy()
        gain = weights_log_target(model.traits, inside, there, model.trait_sd)
        gain -= weights_log_target(model.traits, inside, here, model.trait_sd)
        gain += weights_log_proposal(here, mode, factor, _WIDEN) - weights_log_proposal(there, mode, factor, _WIDEN)
        if math.log(uniform(stream)) < gain:
            for t in range(size):
                state.trait[slot, t] = there[t]
    _update_offset_traits(scene, stream)


@kernel
def _update_offset_traits(scene: Scene, stream: Stream) -> None:
    state, model = scene.state, scene.model
    size = model.traits.shape[1]
    weight = 1.0 / state.hyper[USER_SD] ** 2
    precision = np.zeros((size, size))
    linear = np.zeros(size)
    for a in range(size):
        precision[a, a] = 1.0 / model.offset_trait_sd**2
    for user in range(model.traits.shape[0]):
        for a in range(size):
            z = weight * model.traits[user, a]
            linear[a] += z * state.user_offset[user]
            for b in range(a + 1):
                precision[a, b] += z * model.traits[user, b]
    seek(stream, scene.key, tick(scene.sweep, TRAITS, 1), 0)
    factorise(precision)
    draw_normal(precision, linear, stream)
    for t in range(size):
        state.offset_trait[t] = linear[t]
    set_offset_means(scene)


@kernel
def set_offset_means(scene: Scene) -> None:
    """Bring the means of user offsets up to the state."""
    model = scene.model
    for user in range(model.traits.shape[0]):
        total = 0.0
        for t in range(model.traits.shape[1]):
            total += model.traits[user, t] * scene.state.offset_trait[t]
        model.user_offset_mean[user] = total


@kernel
def _draw_private(scene: Scene, user: int, stream: Stream) -> int:
    """Open a graded feature owned by one user, everything from the prior, its rate from Beta(1, m)."""
    state, model = scene.state, scene.model
    rate = draw_rate(stream, state, model)
    slot = open_slot(state, draw_effect(stream, state, model), rate)
    set_bit(state.user_words, user, slot)
    state.trait[slot, 0] = beta_logit(stream, 1.0, float(state.user_words.shape[0]))
    for t in range(1, state.trait.shape[1]):
        state.trait[slot, t] = model.trait_sd * normal(stream)
    for item in range(state.item_words.shape[0]):
        if uniform(stream) < rate:
            set_bit(state.item_words, item, slot)
            state.item_effect[item, slot] = state.effect[slot] + state.hyper[GRADE_SD] * normal(stream)
    return slot


@kernel
def private_log_weight(scene: Scene, slot: int, user: int) -> float:
    """Return log of the density of a private feature over that of its proposal, items and effects cancelled.

    The density in a is λ (1 − π) p_u Π_v (1 − p_v) over the other users v; a is proposed from Beta(1, m), whose density
    in a is m π (1 − π)^m, and the user with probability 1/m.
    """
    state, model = scene.state, scene.model
    weights = state.trait[slot]
    n_users = state.user_words.shape[0]
    total = math.log(state.hyper[MASS]) - soft_plus(weights[0])
    for other in range(n_users):
        logit = user_logit(model.traits, weights, other)
        total += (logit if other == user else 0.0) - soft_plus(logit)
    return total - (weights[0] - soft_plus(weights[0]) - n_users * soft_plus(weights[0]))


@leaf
def _only_user(words: NDArray[np.uint64], slot: int) -> int:
    for user in range(words.shape[0]):
        if has_bit(words, user, slot):
            return user
    return -1


@kernel
def update_private_features(scene: Scene, tries: int) -> State:
    """Try births of private features from the prior, and deaths."""
    stream = new_stream()
    for attempt in range(tries):
        seek(stream, scene.key, tick(scene.sweep, TRAITS, 2), attempt)
        counts = count_members(scene.state.user_words)
        private = np.flatnonzero((counts == 1) & (scene.state.active == 1))
        if uniform(stream) < 0.5:
            user = below(stream, scene.state.user_words.shape[0])
            scene = with_state(scene, with_free_slot(scene.state))
            slot = _draw_private(scene, user, stream)
            before = row_log_likelihood(scene, user)
            add_to_row(scene, user, slot, 1.0)
            gain = row_log_likelihood(scene, user) - before
            gain += private_log_weight(scene, slot, user) - math.log(private.size + 1.0)
            accepted = math.log(uniform(stream)) < gain
            note(scene.tally, PRIOR_SINGLETON, accepted)
            if not accepted:
                add_to_row(scene, user, slot, -1.0)
                close_slot(scene.state, slot)
        elif private.size > 0:
            slot = private[below(stream, private.size)]
            user = _only_user(scene.state.user_words, slot)
            before = row_log_likelihood(scene, user)
            add_to_row(scene, user, slot, -1.0)
            gain = row_log_likelihood(scene, user) - before
            gain -= private_log_weight(scene, slot, user) - math.log(float(private.size))
            accepted = math.log(uniform(stream)) < gain
            note(scene.tally, PRIOR_SINGLETON, accepted)
            if accepted:
                close_slot(scene.state, slot)
            else:
                add_to_row(scene, user, slot, 1.0)
    return scene.state
