r"""Whole features that are not part of the state, and their weight: what `features.py` accepts moves by.

With C_u = 1 − π + π exp(D_u), the weight of a feature x proposed around a launch state is

    W = λ π⁻¹ ∏ C_u · p(θ) p(B) / [q(π) q(θ) q(B)],

with p(w | B) / q(w) besides when features are graded, their own effect θ integrated out of p(w | B) and not proposed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.graded_launch import GradedLaunch, graded_launch
from doublefeature.kernels.grades import draw_centre
from doublefeature.kernels.launch import (
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
    draw_grade,
    effect_log_prior,
    item_set_log_prior,
    log_beta,
    normal_log_density,
)
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.streams import FEATURE_MOVES, Stream, new_stream, seek, tick
from doublefeature.kernels.variates import bernoulli_logit, beta_logit, normal, normalise_logs, pick_by_logs
from doublefeature.model.state import EFFECT_SD, GRADE_SD, MASS, State

FloatArray = NDArray[np.float64]

_WIDEN = 1.3
_WIDEN_GRADES = 1.15
_SUREST = 7.0
"""Log odds of an item in a graded proposal are cut here: launches are rough."""
_FLATTEN = 0.1


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


@kernel
def would_be_grades(scene: Scene, step: int) -> FloatArray:
    """Return how strongly users would hold a feature that is not theirs: from the prior, or 1."""
    grade = np.ones(scene.state.user_words.shape[0])
    if scene.state.user_grade.shape[0] > 0:
        stream = new_stream()
        seek(stream, scene.key, tick(scene.sweep, FEATURE_MOVES, step), 3)
        for user in range(grade.size):
            grade[user] = draw_grade(scene.state, stream)
    return grade
