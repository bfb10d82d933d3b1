"""Features owned by one user, renewed from the prior.

Given the rest, the features owned by user u alone are a Poisson process of their own, independent over users. So all
users try first, and what was accepted is put in place afterwards.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import ZERO, close_slot, open_slot, set_bit, with_free_slots
from doublefeature.kernels.priors import draw_effect, draw_grade, draw_item_effects, draw_items, draw_rate
from doublefeature.kernels.scene import PRIOR_SINGLETON, Scene, note, own_rows, with_state
from doublefeature.kernels.scores import add_to_row
from doublefeature.kernels.sharing import share_rows
from doublefeature.kernels.singletons import private_slots, private_words, row_log_likelihood
from doublefeature.kernels.streams import PRIOR_SINGLETONS, Stream, below, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import poisson
from doublefeature.model.state import MASS, State

SlotArray = NDArray[np.int64]


@leaf
def _mark_movers(words: NDArray[np.uint64], private: NDArray[np.uint64], dealt: SlotArray, movers: SlotArray) -> int:
    """List the users who have private features or are dealt one; return how many they are."""
    count = 0
    for user in range(dealt.size):
        found = ZERO
        for w in range(private.size):
            found |= words[user, w] & private[w]
        if dealt[user] > 0 or found != ZERO:
            movers[count] = user
            count += 1
    return count


@kernel
def update_prior_singletons(scene: Scene) -> State:
    """Replace each user's private features by Poisson(λ/m) fresh ones from the prior.

    Accepted with the ratio of the user's likelihood. Only users who have private features or are dealt a new
    one can change, so one Poisson(λ) number is drawn for all and dealt out. Who holds a user's ratings tries; as fresh
    features are a function of the user's random numbers, all workers make the accepted ones again.
    """
    n_users = scene.state.user_words.shape[0]
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, PRIOR_SINGLETONS, 0), 0)
    dealt = np.zeros(n_users, np.int64)
    for _ in range(poisson(stream, scene.state.hyper[MASS])):
        dealt[below(stream, n_users)] += 1
    private = private_words(scene.state)
    movers = np.empty(n_users, np.int64)
    movers = movers[: _mark_movers(scene.state.user_words, private, dealt, movers)]
    accepted = np.zeros(n_users, np.uint8)
    scene = with_state(scene, with_free_slots(scene.state, dealt.max()))
    low, high = own_rows(scene.users)
    for user in movers:
        if low <= user < high:
            seek(stream, scene.key, tick(scene.sweep, PRIOR_SINGLETONS, 1), user)
            accepted[user] = try_fresh(scene, user, private_slots(scene.state, private, user), dealt[user], stream)
    share_rows(scene.users, accepted)
    for user in movers:
        note(scene.tally, PRIOR_SINGLETON, accepted[user] != 0)
        if accepted[user]:
            seek(stream, scene.key, tick(scene.sweep, PRIOR_SINGLETONS, 1), user)
            old = private_slots(scene.state, private, user)
            scene = with_state(scene, put_fresh(scene, user, old, dealt[user], stream))
    return scene.state


@kernel
def try_fresh(scene: Scene, user: int, old: SlotArray, n_new: int, stream: Stream) -> bool:
    """Try so many fresh features in place of a user's private ones; the scores follow, the state stays."""
    before = row_log_likelihood(scene, user)
    for slot in old:
        add_to_row(scene, user, slot, -1.0)
    new = np.empty(n_new, np.int64)
    for j in range(n_new):
        new[j] = _open_from_prior(scene, user, stream)
        add_to_row(scene, user, new[j], 1.0)
    accepted = math.log(uniform(stream)) < row_log_likelihood(scene, user) - before
    if not accepted:
        for slot in new:
            add_to_row(scene, user, slot, -1.0)
        for slot in old:
            add_to_row(scene, user, slot, 1.0)
    for slot in new:
        close_slot(scene.state, slot)
    return accepted


@kernel
def put_fresh(scene: Scene, user: int, old: SlotArray, n_new: int, stream: Stream) -> State:
    """Put the fresh features that `try_fresh` made from the same random numbers in place of a user's private ones."""
    for slot in old:
        close_slot(scene.state, slot)
    scene = with_state(scene, with_free_slots(scene.state, n_new))
    for _ in range(n_new):
        _open_from_prior(scene, user, stream)
    return scene.state


@kernel
def _open_from_prior(scene: Scene, user: int, stream: Stream) -> int:
    """Open a feature owned by one user, with effect and items from the prior."""
    state = scene.state
    rate = draw_rate(stream, state, scene.model)
    slot = open_slot(state, draw_effect(stream, state, scene.model), rate)
    set_bit(state.user_words, user, slot)
    if state.user_grade.shape[0] > 0:
        state.user_grade[user, slot] = draw_grade(state, stream)
    draw_items(stream, state, scene.model, rate, slot)
    draw_item_effects(stream, state, slot)
    return slot
