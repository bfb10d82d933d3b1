r"""Whole features replaced by whole features: birth, death, regrow, split and merge are one move.

j features X, chosen uniformly, are taken out and j' new ones X' proposed in their place. A new feature is drawn
around a launch state: a rate π, an effect, items given the launched users, and last the users from their exact
conditional given π, which therefore cancels. With C_u = 1 − π + π exp(D_u), the weight of a feature is

    W = λ π⁻¹ ∏ C_u · p(θ) p(B) / [q(π) q(θ) q(B)],

with p(w | B) / q(w) besides when features are graded, their own effect θ integrated out of p(w | B) and not proposed;
the weight of a pair is W(x₁) W(x₂ | x₁) / 2, and the acceptance ratio is W(X′)/W(X) · C(K, j)/C(K′, j′).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import (
    active_slots,
    close_slot,
    members_of,
    open_slot,
    set_bit,
    with_free_slot,
)
from doublefeature.kernels.candidates import Candidate, weigh, would_be_grades
from doublefeature.kernels.launch import (
    STEPS,
    count_marked,
)
from doublefeature.kernels.priors import (
    clip_rate,
)
from doublefeature.kernels.scene import BIRTH, DEATH, MERGE, REGROW, SPLIT, Scene, note, with_state
from doublefeature.kernels.scores import add_feature
from doublefeature.kernels.streams import FEATURE_MOVES, Stream, below, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import beta_logit
from doublefeature.model.state import RATE, State

FloatArray = NDArray[np.float64]
SlotArray = NDArray[np.int64]

_OPENING_SLACK = 100.0
"""How much a birth may lose while a chain settles: later sweeps make more of a feature than its launch did."""


@leaf
def _open_candidate(state: State, scene: Scene, candidate: Candidate, stream: Stream) -> int:
    """Give a candidate a slot, with an item rate of its own when features have one."""
    rate = state.hyper[RATE]
    if scene.model.rate_by_feature:
        inside = float(count_marked(candidate.items))
        log_odds = beta_logit(
            stream, scene.model.rate_in + inside, scene.model.rate_out + candidate.items.size - inside
        )
        rate = clip_rate(1.0 / (1.0 + math.exp(-log_odds)))
    slot = open_slot(state, candidate.effect[0], rate)
    for user in range(candidate.users.size):
        if candidate.users[user]:
            set_bit(state.user_words, user, slot)
            if state.user_grade.shape[0] > 0:
                state.user_grade[user, slot] = candidate.grade[user]
    for item in range(candidate.items.size):
        if candidate.items[item]:
            set_bit(state.item_words, item, slot)
            if state.item_effect.shape[0] > 0:
                state.item_effect[item, slot] = candidate.shift[item]
    for t in range(candidate.user_weights.size):
        state.user_weights[slot, t] = candidate.user_weights[t]
    for t in range(candidate.item_weights.size):
        state.item_weights[slot, t] = candidate.item_weights[t]
    return slot


@leaf
def _log_choose(n: int, j: int) -> float:
    """Return log of the number of ways to choose j = 0, 1 or 2 out of n."""
    if j == 0:
        return 0.0
    if j == 1:
        return math.log(n)
    return math.log(0.5 * n * (n - 1))


@kernel
def _judge_old(scene: Scene, old: SlotArray, step: int) -> float:
    """Return log W of the features taken out of the scores, in the given order."""
    total = -math.log(2.0) if old.size == 2 else 0.0
    for j in range(old.size):
        candidate = Candidate(
            members_of(scene.state.user_words, old[j]),
            members_of(scene.state.item_words, old[j]),
            would_be_grades(scene, step + j * STEPS),
            scene.state.effect[old[j] : old[j] + 1].copy(),
            np.zeros(scene.state.item_words.shape[0]),
            scene.state.user_weights[old[j]].copy(),
            scene.state.item_weights[old[j]].copy(),
        )
        for item in range(scene.state.item_effect.shape[0]):
            candidate.shift[item] = scene.state.item_effect[item, old[j]]
        for user in range(scene.state.user_grade.shape[0]):
            if candidate.users[user]:
                candidate.grade[user] = scene.state.user_grade[user, old[j]]
        total += weigh(scene, candidate, np.bool_(False), step + j * STEPS)  # a literal would compile it anew
        if j + 1 < old.size:
            add_feature(scene, old[j], 1.0)
    if old.size == 2:
        add_feature(scene, old[0], -1.0)
    return total


@leaf
def _choose_move(stream: Stream) -> tuple[int, int, int]:
    """Return a move with how many features it takes out and puts in; forth and back are equally likely."""
    u = uniform(stream)
    if u < 0.3:
        return BIRTH, 0, 1
    if u < 0.6:
        return DEATH, 1, 0
    if u < 0.8:
        return REGROW, 1, 1
    if u < 0.9:
        return SPLIT, 1, 2
    return MERGE, 2, 1


@kernel
def update_features(scene: Scene, attempt: int, births_only: bool) -> State:
    """Try to replace some features by others; `attempt` numbers the tries of a sweep.

    `births_only` is for chains that have not settled: their draws are thrown away.
    """
    base_step = attempt * 8 * STEPS
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, FEATURE_MOVES, base_step), 0)
    move, n_out, n_in = _choose_move(stream)
    if births_only:
        move, n_out, n_in = BIRTH, 0, 1
    slots = active_slots(scene.state.active)
    if slots.size < n_out:
        note(scene.tally, move, False)
        return scene.state
    for j in range(n_out):
        pick = j + below(stream, slots.size - j)
        slots[j], slots[pick] = slots[pick], slots[j]
    old = slots[:n_out]
    for slot in old:
        add_feature(scene, slot, -1.0)
    ratio = -_judge_old(scene, old, base_step)
    ratio += _log_choose(slots.size, n_out) - _log_choose(slots.size + n_in - n_out, n_in)
    new = np.empty(n_in, np.int64)
    opened = 0
    while opened < n_in and ratio > -math.inf:
        candidate = Candidate(
            np.zeros(scene.state.user_words.shape[0], np.uint8),
            np.zeros(scene.state.item_words.shape[0], np.uint8),
            would_be_grades(scene, base_step + (2 + opened) * STEPS),
            np.zeros(1),
            np.zeros(scene.state.item_words.shape[0]),
            np.zeros(scene.state.user_weights.shape[1]),
            np.zeros(scene.state.item_weights.shape[1]),
        )
        ratio += weigh(scene, candidate, np.bool_(True), base_step + (2 + opened) * STEPS)
        scene = with_state(scene, with_free_slot(scene.state))
        new[opened] = _open_candidate(scene.state, scene, candidate, stream)
        add_feature(scene, new[opened], 1.0)
        opened += 1
    ratio -= math.log(2.0) if n_in == 2 else 0.0
    accepted = math.log(uniform(stream)) < ratio + (_OPENING_SLACK if births_only else 0.0)
    note(scene.tally, move, accepted)
    _settle(scene, old, new[:opened], accepted)
    return scene.state


@kernel
def _settle(scene: Scene, old: SlotArray, new: SlotArray, accepted: bool) -> None:
    """Keep the new features and bury the old ones, or the other way round."""
    if not accepted:
        for slot in new:
            add_feature(scene, slot, -1.0)
        for slot in old:
            add_feature(scene, slot, 1.0)
    for slot in old if accepted else new:
        close_slot(scene.state, slot)
