r"""How traits shift who and what belongs to a feature, and offsets.

With traits z_u the log odds of user u belonging to feature k are ψ_uk = a_k + z_u d_k. Features are a Poisson process
with intensity λ π⁻¹ dπ N(d; 0, σ_c²) dd, π the rate at traits 0, so that a = logit π has density λ (1 − π) da. Items
have log odds of the same form, with a normal around the log odds of the item rate. Given who belongs, (a, d) are
renewed by an independence step from the normal at the mode. Offsets have mean z δ.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel
from doublefeature.kernels.bits import active_slots, count_members, members_of
from doublefeature.kernels.gaussian import draw_normal, factorise
from doublefeature.kernels.launch import count_marked
from doublefeature.kernels.logistic import (
    WeightPrior,
    draw_weights,
    mean_rate,
    newton_weights,
    prior_of_items,
    prior_of_users,
    weights_log_proposal,
    weights_log_target,
)
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.sharing import fair_share, share_fairly
from doublefeature.kernels.streams import TRAITS, Stream, new_stream, seek, tick, uniform
from doublefeature.model.state import ITEM_SD, USER_SD, ByteArray, Model, State

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]

_WIDEN = 1.1
_NEWTON_STEPS = 8
_OF_USERS, _OF_USER_OFFSETS, _OF_ITEMS, _OF_ITEM_OFFSETS = 0, 1, 3, 4
"""Places of random numbers; 2 is that of private features."""


@kernel
def _renew_weights(
    traits: FloatArray, words: WordArray, slot: int, weights: FloatArray, prior: WeightPrior, stream: Stream
) -> None:
    """Renew one feature's weights, in place, given who belongs."""
    inside = members_of(words, slot)
    count = float(count_marked(inside))
    mode = np.zeros(weights.size)
    mode[0] = math.log((count + 0.5) / (inside.size - count + 1.0))
    factor = newton_weights(traits, inside.astype(np.float64), mode, prior, _NEWTON_STEPS)
    there = draw_weights(mode, factor, _WIDEN, stream)
    gain = weights_log_target(traits, inside, there, prior) - weights_log_target(traits, inside, weights, prior)
    gain += weights_log_proposal(weights, mode, factor, _WIDEN) - weights_log_proposal(there, mode, factor, _WIDEN)
    if math.log(uniform(stream)) < gain:
        for t in range(weights.size):
            weights[t] = there[t]


@kernel
def update_traits(scene: Scene) -> None:
    """Renew every feature's weights given its users and items, then how traits shift offsets."""
    state, model = scene.state, scene.model
    stream = new_stream()
    low, high = fair_share(scene.users, state.active.size)
    for slot in low + active_slots(state.active[low:high]):
        if state.user_weights.shape[1] > 0:
            seek(stream, scene.key, tick(scene.sweep, TRAITS, _OF_USERS), slot)
            weights = state.user_weights[slot]
            _renew_weights(model.user_traits, state.user_words, slot, weights, prior_of_users(model), stream)
        if state.item_weights.shape[1] > 0:
            seek(stream, scene.key, tick(scene.sweep, TRAITS, _OF_ITEMS), slot)
            weights = state.item_weights[slot]
            _renew_weights(model.item_traits, state.item_words, slot, weights, prior_of_items(model), stream)
            state.item_rate[slot] = mean_rate(model.item_traits, weights)
    share_fairly(scene.users, state.user_weights)
    share_fairly(scene.users, state.item_weights)
    share_fairly(scene.users, state.item_rate)
    if model.user_offsets:
        seek(stream, scene.key, tick(scene.sweep, TRAITS, _OF_USER_OFFSETS), 0)
        told = (state.user_offset, state.hyper[USER_SD], model.offset_weight_sd)
        _renew_offset_weights(model.user_offset_traits, told, state.user_offset_weights, stream)
    if model.item_offsets:
        seek(stream, scene.key, tick(scene.sweep, TRAITS, _OF_ITEM_OFFSETS), 0)
        told = (state.item_offset, state.hyper[ITEM_SD], model.offset_weight_sd)
        _renew_offset_weights(model.item_traits, told, state.item_offset_weights, stream)
    set_offset_means(scene)


@kernel
def _renew_offset_weights(traits: FloatArray, told: tuple, weights: FloatArray, stream: Stream) -> None:
    """Draw how traits shift offsets, in place, given the offsets."""
    offset, sd, prior_sd = told
    size = weights.size
    precision = np.zeros((size, size))
    linear = np.zeros(size)
    for a in range(size):
        precision[a, a] = 1.0 / prior_sd**2
    for row in range(traits.shape[0]):
        for a in range(size):
            z = traits[row, a] / sd**2
            linear[a] += z * offset[row]
            for b in range(a + 1):
                precision[a, b] += z * traits[row, b]
    factorise(precision)
    draw_normal(precision, linear, stream)
    for t in range(size):
        weights[t] = linear[t]


@kernel
def _fill_means(traits: FloatArray, weights: FloatArray, out: FloatArray) -> None:
    for row in range(traits.shape[0]):
        total = 0.0
        for t in range(traits.shape[1]):
            total += traits[row, t] * weights[t]
        out[row] = total


@kernel
def set_offset_means(scene: Scene) -> None:
    """Bring the means of offsets up to the state."""
    state, model = scene.state, scene.model
    _fill_means(model.user_offset_traits, state.user_offset_weights, model.user_offset_mean)
    _fill_means(model.item_traits, state.item_offset_weights, model.item_offset_mean)


def with_weights(state: State, model: Model) -> State:
    """Return the state with weights for traits, neutral ones if it has none yet."""
    n_user, n_item, n_offset = (
        traits.shape[1] for traits in (model.user_traits, model.item_traits, model.user_offset_traits)
    )
    if n_user == n_item == 0:
        user_weights, item_weights = np.zeros((state.active.size, 0)), np.zeros((state.active.size, 0))
    elif state.user_weights.shape[1] == n_user + 1:
        user_weights, item_weights = state.user_weights, state.item_weights
    else:
        user_weights = _neutral(state.user_words, state.active, n_user + 1)
        item_weights = _neutral(state.item_words, state.active, n_item + 1 if n_item else 0)
    return state._replace(
        user_weights=user_weights,
        item_weights=item_weights,
        user_offset_weights=_sized(state.user_offset_weights, n_offset),
        item_offset_weights=_sized(state.item_offset_weights, n_item),
    )


def _sized(weights: FloatArray, size: int) -> FloatArray:
    return weights if weights.size == size else np.zeros(size)


def _neutral(words: WordArray, active: ByteArray, size: int) -> FloatArray:
    """Return weights of features whose log odds are as their size says, and which no trait shifts."""
    weights = np.zeros((active.size, size))
    if size:
        counts = count_members(words)
        weights[:, 0] = np.where(active > 0, np.log((counts + 0.5) / (words.shape[0] - counts + 1.0)), 0.0)
    return weights
