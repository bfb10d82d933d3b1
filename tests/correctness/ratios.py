"""Every ratio the kernels use against differences of the log joint density computed from scratch.

Checks are generators of pairs (what the kernel uses, what the reference says). Features carry no order here,
so the reference adds log K! to the density of memberships with columns in random order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import lgamma, log

import numpy as np

from doublefeature._jit import kernel
from doublefeature.kernels.candidates import Candidate, weigh
from doublefeature.kernels.exchanges import complement, item_complement_log_ratio, user_complement_log_ratio
from doublefeature.kernels.launch import launch
from doublefeature.kernels.memberships import flip_log_odds, load_row, mark_touched, new_row
from doublefeature.kernels.scene import Scene, longest_row
from doublefeature.kernels.scores import rebuild_scores
from doublefeature.kernels.singletons import (
    _candidate_log_density,
    _candidates,
    birth_log_weight,
    row_log_likelihood,
)
from doublefeature.kernels.streams import FEATURE_MOVES, new_stream, seek, tick
from doublefeature.kernels.variates import beta_logit
from doublefeature.model.generative import base_of
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.parameters import Parameters, parameters_of
from doublefeature.model.state import copy_state
from tests.correctness.cases import (
    DIRECT,
    Case,
    flipped,
    log_beta_density,
    log_odds,
    log_sigmoid,
    random_case,
    with_feature,
)
from tests.correctness.conditionals import CONDITIONALS

Pairs = Iterator[tuple[float, float]]
_GRID, _REACH, _WIDEN, _FLATTEN = 33, 4.0, 1.3, 0.1


@kernel
def flip_gain(scene: Scene, of_users: bool, row: int, slot: int) -> float:
    side = scene.users if of_users else scene.items
    others = scene.state.item_words if of_users else scene.state.user_words
    local = new_row(longest_row(side, row, row + 1), others.shape[1])
    load_row(side, scene.state, scene.like, scene.scores, row, local)
    mark_touched(side, others, row, local.touched, local.scratch)
    return flip_log_odds(side, scene.state, scene.like, row, slot, local)


@kernel
def judge_birth(scene: Scene, user: int, effect: float, rate: float) -> tuple[float, float]:
    found = _candidates(scene, user, rate)
    listed = scene.model.effect_values.size > 0
    weight = birth_log_weight(scene, user, effect, rate, found)
    return weight, _candidate_log_density(effect, found[0], found[1], listed)


@kernel
def row_likelihood(scene: Scene, user: int) -> float:
    return row_log_likelihood(scene, user)


@kernel
def proposed_logit(scene: Scene, step: int, inside: float, outside: float) -> float:
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, FEATURE_MOVES, step), 2)
    return beta_logit(stream, inside, outside)


def buffet_log_odds(others: int, n_users: int) -> float:
    """Prior log odds of one user's membership with the rate integrated out."""
    return log(others) - log(n_users - others)


def user_flips(case: Case, prior: Callable[[int, int], float] = buffet_log_odds) -> Pairs:
    p = case.parameters
    for k, user in itertools.product(range(p.n_features), range(case.sizes[0])):
        others = int(p.user_members[:, k].sum() - p.user_members[user, k])
        if others > 0:
            sign = -1.0 if p.user_members[user, k] else 1.0
            used = flip_gain(case.scene, True, user, k) + sign * prior(others, case.sizes[0])
            yield used, case.density(flipped(p, "user_members", user, k)) - case.density(p)


def item_flips(case: Case) -> Pairs:
    p = case.parameters
    for k, item in itertools.product(range(p.n_features), range(case.sizes[1])):
        sign = -1.0 if p.item_members[item, k] else 1.0
        used = flip_gain(case.scene, False, item, k) + sign * log_odds(p.item_rate[k])
        yield used, case.density(flipped(p, "item_members", item, k)) - case.density(p)


def _density_with_rate(case: Case, p: Parameters, k: int, logit: float, rank: np.ndarray) -> float:
    """The density with feature k's rate π given its first owner: λ π⁻¹ (1 − π)^before π ∏ Bern."""
    owners = p.user_members[:, k]
    m, n = int(owners.sum()), owners.size
    first = rank[owners].min()
    after = owners[rank > first]
    column = first * log_sigmoid(-logit)
    column += after.sum() * log_sigmoid(logit) + (~after).sum() * log_sigmoid(-logit)
    return case.density(p) - (lgamma(m) + lgamma(n - m + 1) - lgamma(n + 1)) + column


def ordered_flips(case: Case) -> Pairs:
    p = case.parameters
    n = case.sizes[0]
    for k in range(p.n_features):
        m = int(p.user_members[:, k].sum())
        logit = log_odds(min(max(case.rng.beta(m, n - m + 1), 1e-6), 1.0 - 1e-6))
        rank = case.rng.permutation(n)
        here = _density_with_rate(case, p, k, logit, rank)
        yield here, case.density(p) + log_beta_density(logit, m, n - m + 1)
        for user in np.flatnonzero(rank > rank[p.user_members[:, k]].min()):
            sign = -1.0 if p.user_members[user, k] else 1.0
            there = _density_with_rate(case, flipped(p, "user_members", user, k), k, logit, rank)
            yield flip_gain(case.scene, True, int(user), k) + sign * logit, there - here


def _private_gain(case: Case, user: int, effect: float, rate: float) -> float:
    """What a private feature gains with its items integrated out, by the product formula."""
    users, items, levels = case.observed
    own = users == user
    scores = case.parameters.scores(users[own], items[own], base_of(case.priors, case.n_levels))
    cuts = level_cutpoints(case.n_levels)
    rows = np.arange(own.sum())
    now = level_probabilities(scores, case.parameters.noise, cuts)[rows, levels[own]]
    then = level_probabilities(scores + effect, case.parameters.noise, cuts)[rows, levels[own]]
    return float(np.log(1.0 - rate + rate * then / now).sum())


def _private_proposal(case: Case, user: int, effect: float, rate: float) -> float:
    """Log density of the proposal for a private feature's effect."""
    values = np.array(case.priors.effect_values)
    sd = case.parameters.effect_sd
    width = 2.0 * _REACH * sd / _GRID
    grid = values if values.size else (np.arange(_GRID) + 0.5) * width - _REACH * sd
    prior = np.zeros(grid.size) if values.size else -0.5 * (grid / sd) ** 2
    logs = prior + [_private_gain(case, user, value, rate) for value in grid]
    logs -= np.logaddexp.reduce(logs)
    if values.size:
        return float(logs[values == effect][0])
    return float(logs[int((effect + _REACH * sd) / width)] - log(width))


def births(case: Case, among_items: bool = False) -> Pairs:
    """Private features: intensity × likelihood summed over all sets of items, over the proposal density."""
    p, rng = case.parameters, case.rng
    n_users, n_items = case.sizes
    user = int(rng.integers(n_users))
    values = case.priors.effect_values
    effect = float(rng.choice(values)) if values else float(rng.uniform(-3.9, 3.9) * p.effect_sd)
    rate = float(rng.uniform(0.05, 0.95)) if case.priors.item_rate_by_feature else p.rate
    owner = np.arange(n_users) == user
    sets = [np.array(bits) for bits in itertools.product((0, 1), repeat=n_items)]
    total = np.logaddexp.reduce([case.density(with_feature(p, owner, items, effect, rate)) for items in sets])
    total -= case.density(p)
    if case.priors.item_rate_by_feature:
        inside = case.priors.item_rate_weight * case.priors.item_rate
        total -= log_beta_density(log_odds(rate), inside, case.priors.item_rate_weight - inside)
    total += log(n_users / n_items) if among_items else 0.0
    weight, proposal = judge_birth(case.scene, user, effect, rate)
    yield proposal, _private_proposal(case, user, effect, rate)
    yield weight, total - _private_proposal(case, user, effect, rate)


def row_likelihoods(case: Case) -> Pairs:
    total = sum(row_likelihood(case.scene, user) for user in range(case.sizes[0]))
    yield total, case.likelihood(case.parameters)


def _effect_proposal(case: Case, start, effect: float) -> float:
    values = np.array(case.priors.effect_values)
    if not values.size:
        sd = _WIDEN * start.effect_sd
        return -0.5 * ((effect - start.effect) / sd) ** 2 - log(sd) - 0.5 * log(2.0 * math.pi)
    logs = np.array([case.gain(start.users, start.items, value) for value in values])
    weights = (1.0 - _FLATTEN) * np.exp(logs - np.logaddexp.reduce(logs)) + _FLATTEN / values.size
    return log(weights[values == effect][0])


def _weight(case: Case, candidate: Candidate, draw: bool, step: int) -> float:
    """The weight of a whole feature: density ratio over the density of everything that was drawn."""
    start = launch(case.scene, step)
    n_users, n_items = case.sizes
    owned, launched, size = (int(mask.sum()) for mask in (candidate.users, start.users, candidate.items))
    if not start.found or owned == 0:
        return -math.inf if draw else math.inf
    law = (launched + 0.5, n_users - launched + 1.0)
    logit = proposed_logit(case.scene, step, *(law if draw else (float(owned), n_users - owned + 1.0)))
    effect = candidate.effect[0]
    by_feature = case.priors.item_rate_by_feature
    rate = 0.37 if by_feature else case.parameters.rate
    more = with_feature(case.parameters, candidate.users, candidate.items, effect, rate)
    total = case.density(more) - case.density(case.parameters)
    if by_feature:
        inside = case.priors.item_rate_weight * case.priors.item_rate
        outside = case.priors.item_rate_weight - inside
        total -= log_beta_density(log_odds(rate), inside + size, outside + n_items - size)
    total += log_beta_density(logit, owned, n_users - owned + 1.0) - log_beta_density(logit, *law)
    total -= _effect_proposal(case, start, effect)
    for item, row in enumerate(np.eye(n_items)):
        odds = start.item_log_odds + case.gain(start.users, row, effect)
        total -= log_sigmoid(odds if candidate.items[item] else -odds)
    for user, row in enumerate(np.eye(n_users)):
        odds = logit + case.gain(row, candidate.items, effect)
        total -= log_sigmoid(odds if candidate.users[user] else -odds)
    return total


def would_be_grades(scene: Scene) -> np.ndarray:
    """Some grades for a feature: any will do."""
    n_users = scene.state.user_offset.size
    if not scene.state.user_grade.shape[0]:
        return np.ones(n_users)
    return 1.0 + 0.5 * np.random.default_rng(n_users).standard_normal(n_users)


def new_candidate(scene: Scene) -> Candidate:
    state = scene.state
    n_users, n_items = state.user_offset.size, state.item_offset.size
    return Candidate(
        np.zeros(n_users, np.uint8), np.zeros(n_items, np.uint8), would_be_grades(scene), np.zeros(1),
        np.zeros(n_items), np.zeros(state.user_weights.shape[1]), np.zeros(state.item_weights.shape[1]),
    )  # fmt: skip


def whole_features(case: Case) -> Pairs:
    candidate = new_candidate(case.scene)
    yield weigh(case.scene, candidate, True, 8), _weight(case, candidate, True, 8)
    if not candidate.users.any():
        candidate.users[0] = 1
        candidate.effect[0] = case.priors.effect_values[0] if case.priors.effect_values else 0.7
    yield weigh(case.scene, candidate, False, 16), _weight(case, candidate, False, 16)


def _complemented(p: Parameters, own: str, k: int, sign: float) -> Parameters:
    """Members and non-members of k on one side exchanged, the other side's offsets taking up the effect."""
    other, offset = "user_members", "user_offset"
    if own == "user_members":
        other, offset = "item_members", "item_offset"
    chosen = np.arange(p.n_features) == k
    moved = getattr(p, offset) + sign * p.effect[k] * getattr(p, other)[:, k]
    effect = np.where(chosen, -p.effect, p.effect)
    return replace(p, effect=effect, **{own: getattr(p, own) ^ chosen, offset: moved})


def complements(case: Case, sign: float = 1.0) -> Pairs:
    """Both complements; the kernel's change of state must be the reference's, with scores unchanged."""
    p, values = case.parameters, case.priors.effect_values
    for k, own in itertools.product(range(p.n_features), ("user_members", "item_members")):
        of_users = own == "user_members"
        if not (case.priors.item_offsets if of_users else case.priors.user_offsets):
            continue
        state = copy_state(case.scene.state)
        scene = case.scene._replace(state=state)
        judge = user_complement_log_ratio if of_users else item_complement_log_ratio
        after = _complemented(p, own, k, sign)
        possible = not values or -p.effect[k] in values
        used = judge(scene, k, int(getattr(p, own)[:, k].sum()))
        yield used, case.density(after) - case.density(p) if possible else -math.inf
        words = (state.user_words, state.item_words) if of_users else (state.item_words, state.user_words)
        complement(*words, state, k, state.item_offset if of_users else state.user_offset)
        scores = np.zeros_like(scene.scores)
        rebuild_scores(scene._replace(state=state, scores=scores))
        yield float(np.abs(scores - scene.scores).max(initial=0.0)), 0.0
        got = parameters_of(state)
        for name in ("user_members", "item_members", "effect", "item_offset", "user_offset"):
            yield float(np.abs(getattr(got, name) * 1.0 - getattr(after, name)).max()), 0.0


CHECKS: dict[str, Callable[[Case], Pairs]] = {
    "user flips": user_flips,
    "item flips": item_flips,
    "ordered user flips": ordered_flips,
    "rows": row_likelihoods,
    "private births": births,
    "whole features": whole_features,
    "complements": complements,
    **CONDITIONALS,
}


def error(used: float, truth: float) -> float:
    """Absolute difference; equal infinities agree, anything undefined is infinitely wrong."""
    if used == truth:
        return 0.0
    gap = abs(used - truth)
    return gap if math.isfinite(gap) else math.inf


def worst_error(check: Callable[[Case], Pairs], n_states: int, seed: int, table_from: int = DIRECT) -> float:
    """Return the largest error of one check over random states."""
    rng = np.random.default_rng(seed)
    cases = (random_case(rng, table_from) for _ in range(n_states))
    return max((error(*pair) for case in cases for pair in check(case)), default=0.0)


def worst_ratio_error(n_states: int, seed: int, table_from: int = DIRECT) -> dict[str, float]:
    """Return the largest error of every check over random states."""
    rng = np.random.default_rng(seed)
    worst = dict.fromkeys(CHECKS, 0.0)
    for _ in range(n_states):
        case = random_case(rng, table_from)
        for name, check in CHECKS.items():
            worst[name] = max([worst[name], *(error(*pair) for pair in check(case))])
    return worst
