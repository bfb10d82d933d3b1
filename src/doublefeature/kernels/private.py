"""Features owned by one user where features carry weights: born from the prior and buried one by one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import (
    close_slot,
    count_members,
    has_bit,
    open_slot,
    set_bit,
    with_free_slot,
)
from doublefeature.kernels.logistic import draw_prior_weights, prior_of_items, row_logit, soft_plus
from doublefeature.kernels.priors import draw_effect, draw_grade, draw_item_effects, draw_items, draw_rate
from doublefeature.kernels.scene import PRIOR_SINGLETON, Scene, note, with_state
from doublefeature.kernels.scores import add_to_row
from doublefeature.kernels.sharing import from_owner
from doublefeature.kernels.singletons import row_log_likelihood
from doublefeature.kernels.streams import TRAITS, Stream, below, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import beta_logit, normal
from doublefeature.model.state import MASS, State


@kernel
def _draw_private(scene: Scene, user: int, stream: Stream) -> int:
    """Open a graded feature owned by one user, everything from the prior, its rate from Beta(1, m)."""
    state, model = scene.state, scene.model
    rate = draw_rate(stream, state, model)
    slot = open_slot(state, draw_effect(stream, state, model), rate)
    set_bit(state.user_words, user, slot)
    if state.user_grade.shape[0] > 0:
        state.user_grade[user, slot] = draw_grade(state, stream)
    state.user_weights[slot, 0] = beta_logit(stream, 1.0, float(state.user_words.shape[0]))
    for t in range(1, state.user_weights.shape[1]):
        state.user_weights[slot, t] = model.weight_sd * normal(stream)
    weights = state.item_weights[slot]
    if weights.size > 0:
        draw_prior_weights(weights, prior_of_items(model), stream)
        for item in range(state.item_words.shape[0]):
            if uniform(stream) < 1.0 / (1.0 + math.exp(-row_logit(model.item_traits, weights, item))):
                set_bit(state.item_words, item, slot)
    else:
        draw_items(stream, state, model, rate, slot)
    draw_item_effects(stream, state, slot)
    return slot


@kernel
def private_log_weight(scene: Scene, slot: int, user: int) -> float:
    """Return log of the density of a private feature over that of its proposal, items and effects cancelled.

    The density in a is λ (1 − π) p_u Π_v (1 − p_v) over the other users v; a is proposed from Beta(1, m), whose density
    in a is m π (1 − π)^m, and the user with probability 1/m.
    """
    state, model = scene.state, scene.model
    weights = state.user_weights[slot]
    n_users = state.user_words.shape[0]
    total = math.log(state.hyper[MASS]) - soft_plus(weights[0])
    for other in range(n_users):
        logit = row_logit(model.user_traits, weights, other)
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
            gain = from_owner(scene.users, user, row_log_likelihood(scene, user) - before)
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
            gain = from_owner(scene.users, user, row_log_likelihood(scene, user) - before)
            gain -= private_log_weight(scene, slot, user) - math.log(float(private.size))
            accepted = math.log(uniform(stream)) < gain
            note(scene.tally, PRIOR_SINGLETON, accepted)
            if accepted:
                close_slot(scene.state, slot)
            else:
                add_to_row(scene, user, slot, 1.0)
    return scene.state
