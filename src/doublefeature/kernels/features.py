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
from typing import NamedTuple

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
from doublefeature.kernels.graded_launch import GradedLaunch, graded_launch
from doublefeature.kernels.grades import draw_centre
from doublefeature.kernels.launch import (
    STEPS,
    Launch,
    Mask,
    count_marked,
    item_gains,
    launch,
    user_gains,
)
from doublefeature.kernels.logistic import (
    WeightPrior,
    draw_weights,
    fill_logits,
    log_sigmoid,
    prior_of_items,
    prior_of_users,
    row_logit,
    weights_log_prior,
    weights_log_proposal,
)
from doublefeature.kernels.priors import (
    clip_rate,
    draw_grade,
    effect_log_prior,
    item_set_log_prior,
    log_beta,
    normal_log_density,
)
from doublefeature.kernels.scene import BIRTH, DEATH, MERGE, REGROW, SPLIT, Scene, note, with_state
from doublefeature.kernels.scores import add_feature
from doublefeature.kernels.streams import FEATURE_MOVES, Stream, below, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import bernoulli_logit, beta_logit, normal, normalise_logs, pick_by_logs
from doublefeature.model.state import EFFECT_SD, GRADE_SD, MASS, RATE, State

FloatArray = NDArray[np.float64]
SlotArray = NDArray[np.int64]

_WIDEN = 1.3
_WIDEN_GRADES = 1.15
_SUREST = 7.0
"""Log odds of an item in a graded proposal are cut here: launches are rough."""
_FLATTEN = 0.1
_OPENING_SLACK = 100.0
"""How much a birth may lose while a chain settles: later sweeps make more of a feature than its launch did."""


class Candidate(NamedTuple):
    """A feature that is not part of the state: one to propose, or one taken out to be judged."""

    users: Mask
    items: Mask
    grade: FloatArray  # (users,) how strongly they hold it, or would
    effect: FloatArray  # (1,)
    shift: FloatArray  # (items,) what it adds to the score of each of its items
    user_weights: FloatArray  # (0 or 1 + traits,) log odds of its users, and how traits shift them
    item_weights: FloatArray  # (0 or 1 + traits,) the same of its items


@kernel
def _visit_effect(scene: Scene, start: Launch, candidate: Candidate, draw: bool, stream: Stream) -> float:
    """Draw the effect around the launch, or take it as given; return its log proposal density."""
    values = scene.model.effect_values
    if values.size == 0:
        sd = _WIDEN * start.effect_sd
        if draw:
            candidate.effect[0] = start.effect + sd * normal(stream)
        return normal_log_density(candidate.effect[0], start.effect, sd)
    weights = np.zeros(values.size)
    for v in range(values.size):
        gains = item_gains(scene, start.users, np.full(candidate.items.size, values[v]))
        for item in range(gains.size):
            if start.items[item]:
                weights[v] += gains[item]
    normalise_logs(weights)
    for v in range(values.size):
        weights[v] = math.log((1.0 - _FLATTEN) * math.exp(weights[v]) + _FLATTEN / values.size)
    if draw:
        candidate.effect[0] = values[pick_by_logs(stream, weights)]
    for v in range(values.size):
        if values[v] == candidate.effect[0]:
            return weights[v]
    return -math.inf


@leaf
def _visit_items(scene: Scene, gains: FloatArray, log_odds: float, visit: Candidate, told: tuple) -> float:
    """Draw the items given the launched users and the effect, or take them; return log prior − log proposal."""
    draw, stream = told
    size = 0
    log_proposal = 0.0
    for item in range(gains.size):
        item_log_odds = log_odds + gains[item]
        if draw:
            visit.items[item] = bernoulli_logit(stream, item_log_odds)
        size += np.int64(visit.items[item])
        log_proposal += log_sigmoid(item_log_odds if visit.items[item] else -item_log_odds)
    return item_set_log_prior(size, gains.size, scene.state, scene.model) - log_proposal


@leaf
def grades_log_prior(total: float, squares: float, count: float, state: State) -> float:
    """Return the log density of so many effects with this sum and sum of squares, their centre integrated out."""
    within, between = state.hyper[GRADE_SD] ** 2, state.hyper[EFFECT_SD] ** 2
    spread = 1.0 + count * between / within
    fit = squares / within - total * total * between / (within * within * spread)
    return -0.5 * (count * math.log(2.0 * math.pi * within) + math.log(spread) + fit)


@kernel
def _visit_grades(scene: Scene, start: GradedLaunch, visit: Candidate, draw: bool, stream: Stream) -> float:
    """Draw items with their effects around the launch, or take them; return log prior − log proposal."""
    state = scene.state
    size = 0
    total = 0.0
    squares = 0.0
    weight = 0.0
    weighted = visit.item_weights.size > 0
    for item in range(visit.items.size):
        prior_log_odds = start.item_weights[0]
        if weighted:
            prior_log_odds = row_logit(scene.model.item_traits, visit.item_weights, item)
        log_odds = min(max(prior_log_odds + start.gain[item], -_SUREST), _SUREST)
        sd = _WIDEN_GRADES * start.sd[item]
        if draw:
            visit.items[item] = bernoulli_logit(stream, log_odds)
            visit.shift[item] = start.mean[item] + sd * normal(stream) if visit.items[item] else 0.0
        if weighted:
            weight += log_sigmoid(prior_log_odds if visit.items[item] else -prior_log_odds)
        weight -= log_sigmoid(log_odds if visit.items[item] else -log_odds)
        if visit.items[item]:
            size += 1
            total += visit.shift[item]
            squares += visit.shift[item] ** 2
            weight -= normal_log_density(visit.shift[item], start.mean[item], sd)
    if draw:
        visit.effect[0] = draw_centre(total, float(size), state, stream)
    if not weighted:
        weight += item_set_log_prior(size, visit.items.size, state, scene.model)
    return weight + grades_log_prior(total, squares, float(size), state)


@kernel
def _visit_effect_and_items(scene: Scene, start: Launch, visit: Candidate, draw: bool, stream: Stream) -> float:
    """Draw the common effect, then the items given it and the launched users, or take them.

    Returns log prior − log proposal.
    """
    weight = -_visit_effect(scene, start, visit, draw, stream)
    weight += effect_log_prior(visit.effect[0], scene.state, scene.model)
    visit.shift[:] = visit.effect[0]
    gains = item_gains(scene, start.users, visit.shift)
    return weight + _visit_items(scene, gains, start.item_log_odds, visit, (draw, stream))


@leaf
def _visit_users(gains: FloatArray, logits: FloatArray, visit: Candidate, draw: bool, stream: Stream) -> float:
    """Draw the users from their exact conditional, or take them; return Σ log C_u (−∞ when nobody is in).

    `logits` are their prior log odds: of each, or one for all.
    """
    total = 0.0
    count = 0
    for user in range(gains.size):
        rate_logit = logits[user] if logits.size > 1 else logits[0]
        if gains[user] != 0.0:
            log_out = log_sigmoid(-rate_logit)
            with_it = log_sigmoid(rate_logit) + gains[user]
            total += max(with_it, log_out) + math.log1p(math.exp(-abs(with_it - log_out)))
        if draw:
            visit.users[user] = bernoulli_logit(stream, rate_logit + gains[user])
        count += np.int64(visit.users[user])
    return total if count > 0 else -math.inf


@kernel
def _visit_rate(
    scene: Scene, launched: float, candidate: Candidate, draw: bool, stream: Stream
) -> tuple[float, FloatArray]:
    """Draw the users' rate around the launch, or given the users; return log(λ/π) − log proposal, and its logit."""
    n_users = float(candidate.users.size)
    owned = float(count_marked(candidate.users))
    if draw:
        rate_logit = beta_logit(stream, launched + 0.5, n_users - launched + 1.0)
    else:
        rate_logit = beta_logit(stream, owned, n_users - owned + 1.0)
    log_in = log_sigmoid(rate_logit)
    weight = math.log(scene.state.hyper[MASS]) - log_in
    weight += log_beta(launched + 0.5, n_users - launched + 1.0)
    weight -= (launched - 0.5) * log_in + (n_users - launched) * log_sigmoid(-rate_logit)
    return weight, np.full(1, rate_logit)


@kernel
def _visit_weights(
    weights: FloatArray, prior: WeightPrior, mode: FloatArray, factor: FloatArray, draw: bool, stream: Stream
) -> float:
    """Draw log odds and traits' weights around the launch, or take them; return log prior − log proposal."""
    if draw:
        weights[:] = draw_weights(mode, factor, _WIDEN, stream)
    return weights_log_prior(weights, prior) - weights_log_proposal(weights, mode, factor, _WIDEN)


@kernel
def _visit_graded(
    scene: Scene, start: GradedLaunch, visit: Candidate, draw: bool, stream: Stream
) -> tuple[float, FloatArray]:
    """Draw all of a graded feature but its users, or take it.

    Returns log prior − log proposal, and users' log odds: of each, or one for all.
    """
    model = scene.model
    if visit.user_weights.size > 0:
        prior, mode, factor = prior_of_users(model), start.user_weights, start.user_factor
        weight = math.log(scene.state.hyper[MASS])
        weight += _visit_weights(visit.user_weights, prior, mode, factor, draw, stream)
        logits = np.empty(visit.users.size)
        fill_logits(model.user_traits, visit.user_weights, logits)
    else:
        weight, logits = _visit_rate(scene, start.n_users, visit, draw, stream)
    if visit.item_weights.size > 0:
        prior, mode, factor = prior_of_items(model), start.item_weights, start.item_factor
        weight += _visit_weights(visit.item_weights, prior, mode, factor, draw, stream)
    return weight + _visit_grades(scene, start, visit, draw, stream), logits


@kernel
def weigh(scene: Scene, candidate: Candidate, draw: bool, step: int) -> float:
    """Return log W of a feature that is absent from the scores, after drawing it when asked to.

    A launch that leads nowhere proposes nothing: the weight of a draw is 0, of a given feature infinite.
    """
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, FEATURE_MOVES, step), 2)
    if scene.state.item_effect.shape[0] > 0:
        graded = graded_launch(scene, step, candidate.grade)
        if not graded.found:
            return -math.inf if draw else math.inf
        weight, logits = _visit_graded(scene, graded, candidate, draw, stream)
    else:
        start = launch(scene, step)
        if not start.found:
            return -math.inf if draw else math.inf
        weight, logits = _visit_rate(scene, float(count_marked(start.users)), candidate, draw, stream)
        weight += _visit_effect_and_items(scene, start, candidate, draw, stream)
    gains = user_gains(scene, candidate.items, candidate.shift, candidate.grade)
    return weight + _visit_users(gains, logits, candidate, draw, stream)


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
def _would_be_grades(scene: Scene, step: int) -> FloatArray:
    """Return how strongly users would hold a feature that is not theirs: from the prior, or 1."""
    grade = np.ones(scene.state.user_words.shape[0])
    if scene.state.user_grade.shape[0] > 0:
        stream = new_stream()
        seek(stream, scene.key, tick(scene.sweep, FEATURE_MOVES, step), 3)
        for user in range(grade.size):
            grade[user] = draw_grade(scene.state, stream)
    return grade


@kernel
def _judge_old(scene: Scene, old: SlotArray, step: int) -> float:
    """Return log W of the features taken out of the scores, in the given order."""
    total = -math.log(2.0) if old.size == 2 else 0.0
    for j in range(old.size):
        candidate = Candidate(
            members_of(scene.state.user_words, old[j]),
            members_of(scene.state.item_words, old[j]),
            _would_be_grades(scene, step + j * STEPS),
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
        total += weigh(scene, candidate, False, step + j * STEPS)
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
            _would_be_grades(scene, base_step + (2 + opened) * STEPS),
            np.zeros(1),
            np.zeros(scene.state.item_words.shape[0]),
            np.zeros(scene.state.user_weights.shape[1]),
            np.zeros(scene.state.item_weights.shape[1]),
        )
        ratio += weigh(scene, candidate, True, base_step + (2 + opened) * STEPS)
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
