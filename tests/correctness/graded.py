"""Graded features, scales and cutpoints against the reference density, on small random states."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from doublefeature._jit import kernel
from doublefeature.config import Moves
from doublefeature.kernels.candidates import Candidate, weigh
from doublefeature.kernels.graded_launch import GradedLaunch, graded_launch
from doublefeature.kernels.grades import grade_conditional
from doublefeature.kernels.logistic import prior_of_items, prior_of_users, weights_log_target
from doublefeature.kernels.private import private_log_weight
from doublefeature.kernels.scales import scale_log_weights, spread_log_target
from doublefeature.kernels.scene import Scene
from doublefeature.model.generative import buffet_columns_log_probability, log_prior
from doublefeature.model.generative import scale_log_weights as reference_weights
from doublefeature.model.parameters import Parameters
from doublefeature.model.state import SCALES
from tests.correctness.cases import DIRECT, Case, log_beta_density, log_odds, log_sigmoid
from tests.correctness.ratios import Pairs, new_candidate, proposed_logit
from tests.correctness.tiny import scene_of

SUREST, WIDEN, WIDEN_WEIGHTS = 7.0, 1.15, 1.3


@kernel
def launched(scene: Scene, step: int, grade: np.ndarray) -> GradedLaunch:
    return graded_launch(scene, step, grade)


def normal_log_density(x: np.ndarray | float, mean: np.ndarray | float, sd: np.ndarray | float) -> np.ndarray:
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * math.log(2.0 * math.pi)


def with_graded(p: Parameters, candidate: Candidate, centre: float, rate: float) -> Parameters:
    assert p.item_effect is not None
    inside = candidate.items.astype(bool)
    return replace(
        p,
        user_members=np.column_stack([p.user_members, candidate.users.astype(bool)]),
        item_members=np.column_stack([p.item_members, inside]),
        effect=np.append(p.effect, centre),
        item_rate=np.append(p.item_rate, rate),
        item_effect=np.column_stack([p.item_effect, np.where(inside, candidate.shift, 0.0)]),
        user_grade=None
        if p.user_grade is None
        else np.column_stack([p.user_grade, np.where(candidate.users, candidate.grade, 0.0)]),
        user_weights=None if p.user_weights is None else np.vstack([p.user_weights, candidate.user_weights]),
        item_weights=None if p.item_weights is None else np.vstack([p.item_weights, candidate.item_weights]),
    )


def weights_log_density(weights: np.ndarray, mode: np.ndarray, factor: np.ndarray) -> float:
    """Log density of a normal whose precision has this lower Cholesky factor, widened."""
    lower = np.tril(factor) / WIDEN_WEIGHTS
    return float(normal_log_density(lower.T @ (weights - mode), 0.0, 1.0).sum() + np.log(np.diag(lower)).sum())


def centre_log_density(p: Parameters, grades: np.ndarray, centre: float) -> float:
    """log p(θ | w): what has to be divided out, because the weight has θ summed over."""
    precision = 1.0 / p.effect_sd**2 + grades.size / p.grade_sd**2
    mean = grades.sum() / p.grade_sd**2 / precision
    return float(normal_log_density(centre, mean, precision**-0.5))


def graded_weight(case: Case, candidate: Candidate, draw: bool, step: int, centre: float = 0.3) -> float:
    """The weight of a whole graded feature; the centre it is written down with must not matter."""
    start = launched(case.scene, step, candidate.grade)
    n_users, n_items = case.sizes
    owned, inside = int(candidate.users.sum()), candidate.items.astype(bool)
    if not start.found or owned == 0:
        return -math.inf if draw else math.inf
    if case.priors.item_prior == "ibp" and not inside.any():
        return -math.inf
    law = (start.n_users + 0.5, n_users - start.n_users + 1.0)
    weighted = candidate.user_weights.size > 0
    if weighted:
        logits = candidate.user_weights[0] + case.traits.users @ candidate.user_weights[1:]
    else:
        logit = proposed_logit(case.scene, step, *(law if draw else (float(owned), n_users - owned + 1.0)))
        logits = np.full(n_users, logit)
    by_feature = case.priors.item_rate_by_feature
    rate = 0.37 if by_feature else case.parameters.rate
    more = with_graded(case.parameters, candidate, centre, rate)
    total = case.density(more) - case.density(case.parameters)
    if more.user_grade is not None:
        held = candidate.grade[candidate.users.astype(bool)]
        total -= float(normal_log_density(held, 1.0, case.parameters.user_grade_sd).sum())
    total -= centre_log_density(case.parameters, candidate.shift[inside], centre)
    if by_feature:
        first = case.priors.item_rate_weight * case.priors.item_rate
        last = case.priors.item_rate_weight - first
        total -= log_beta_density(log_odds(rate), first + inside.sum(), last + n_items - inside.sum())
    if weighted:
        total -= weights_log_density(candidate.user_weights, start.user_weights, start.user_factor)
    else:
        total += log_beta_density(logit, owned, n_users - owned + 1.0) - log_beta_density(logit, *law)
    item_logits = np.full(n_items, start.item_weights[0])
    if candidate.item_weights.size:
        total -= weights_log_density(candidate.item_weights, start.item_weights, start.item_factor)
        item_logits = candidate.item_weights[0] + case.traits.items @ candidate.item_weights[1:]
    odds = np.clip(item_logits + start.gain, -SUREST, SUREST)
    total -= sum(log_sigmoid(value if member else -value) for value, member in zip(odds, inside, strict=True))
    total -= float(normal_log_density(candidate.shift, start.mean, WIDEN * start.sd)[inside].sum())
    for user in range(n_users):
        alone = candidate._replace(users=np.eye(n_users, dtype=np.uint8)[user])
        gain = case.likelihood(with_graded(case.parameters, alone, centre, rate)) - case.likelihood(case.parameters)
        total -= log_sigmoid((logits[user] + gain) * (1.0 if candidate.users[user] else -1.0))
    return total


def whole_graded_features(case: Case) -> Pairs:
    candidate = new_candidate(case.scene)
    yield weigh(case.scene, candidate, True, 8), graded_weight(case, candidate, True, 8)
    if not candidate.users.any():
        candidate.users[0] = 1
    given = candidate._replace(
        shift=np.where(candidate.items, 0.8 * candidate.shift + 0.1, 0.0),
        user_weights=0.9 * candidate.user_weights - 0.1,
        item_weights=0.9 * candidate.item_weights + 0.1,
    )
    yield weigh(case.scene, given, False, 16), graded_weight(case, given, False, 16)
    yield graded_weight(case, given, False, 16, centre=-1.1), graded_weight(case, given, False, 16)


def conditionals(rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """Odds, mean and spread of one item's membership and effect, against sums over a fine grid of effects."""
    centre, sd, odds = rng.normal(), rng.uniform(0.2, 1.0), rng.normal()
    g, gaps = rng.uniform(0.3, 3.0, 5), rng.normal(size=5)
    found = grade_conditional(odds, centre, sd, float(g.sum()), float((g * gaps).sum()))
    grid = np.linspace(-12.0, 12.0, 200_001)
    fit = -0.5 * (g * (gaps - grid[:, None]) ** 2).sum(axis=1) + 0.5 * (g * gaps**2).sum()
    weights = np.exp(normal_log_density(grid, centre, sd) + fit)
    step = grid[1] - grid[0]
    mass, mean = weights.sum() * step, (weights * grid).sum() / weights.sum()
    spread = math.sqrt((weights * (grid - mean) ** 2).sum() / weights.sum())
    yield from zip(found, (odds + math.log(mass), mean, spread), strict=True)


def spreads(rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """The prior of users' scales, and the density of their spread up to a constant."""
    counts, shape = rng.integers(0, 9, SCALES.size).astype(float), (rng.uniform(1.5, 4.0), rng.uniform(0.1, 0.5))
    here, there = rng.uniform(-2.0, 0.0, 2)
    used = spread_log_target(SCALES, counts, there, shape) - spread_log_target(SCALES, counts, here, shape)

    def density(log_sd: float) -> float:
        inverse_gamma = -(shape[0] + 1.0) * 2.0 * log_sd - shape[1] * math.exp(-2.0 * log_sd)
        jacobian = 2.0 * log_sd
        return inverse_gamma + jacobian + float(counts @ reference_weights(SCALES, math.exp(log_sd)))

    yield used, density(there) - density(here)
    yield float(np.abs(scale_log_weights(SCALES, 0.4) - reference_weights(SCALES, 0.4)).max()), 0.0


def trait_weights(case: Case) -> Pairs:
    """Weights of a feature given who belongs, and the birth of a private feature, against the reference density."""
    p = case.parameters
    if p.user_weights is None or p.n_features == 0:
        return
    k = int(case.rng.integers(p.n_features))
    sides = [("user", case.traits.users, p.user_members, prior_of_users(case.scene.model))]
    if p.item_weights is not None:
        sides.append(("item", case.traits.items, p.item_members, prior_of_items(case.scene.model)))
    for side, traits, inside, prior in sides:
        here = getattr(p, f"{side}_weights")
        there = here.copy()
        there[k] += 0.3 * case.rng.standard_normal(there.shape[1])
        mask = inside[:, k].astype(np.uint8)
        used = weights_log_target(traits, mask, there[k], prior) - weights_log_target(traits, mask, here[k], prior)
        yield used, case.density(replace(p, **{f"{side}_weights": there})) - case.density(p)
    alone = replace(p, user_members=p.user_members.copy())
    alone.user_members[:, k] = np.arange(p.user_offset.size) == 0
    if p.user_grade is not None:
        alone.user_grade = np.where(alone.user_members, 1.2, 0.0)
    scene = scene_of(alone, case.priors, Moves(table_from=DIRECT), case.observed, case.n_levels)
    used = private_log_weight(scene, k, 0)
    rest = without(alone, k)
    weights = p.user_weights[k]
    ratio = log_prior(alone, case.priors, case.traits) - log_prior(rest, case.priors, case.traits)
    ratio += math.log(alone.n_features) - feature_log_prior(alone, case, k)
    n_users = p.user_offset.size
    proposal = log_sigmoid(weights[0]) + n_users * log_sigmoid(-weights[0])
    yield used, ratio - proposal


def without(p: Parameters, k: int) -> Parameters:
    """The parameters less one feature."""
    cut = {name: np.delete(getattr(p, name), k, axis=1) for name in ("user_members", "item_members", "item_effect")}
    if p.user_grade is not None:
        cut["user_grade"] = np.delete(p.user_grade, k, axis=1)
    names = ("effect", "item_rate") + (("item_weights",) if p.item_weights is not None else ())
    cut |= {name: np.delete(getattr(p, name), k, axis=0) for name in (*names, "user_weights")}
    return replace(p, **cut)


def feature_log_prior(p: Parameters, case: Case, k: int) -> float:
    """What a private birth draws from the prior: effect, rate, items, their effects, and all weights but users' a."""
    assert p.item_effect is not None
    assert p.user_weights is not None
    priors, inside = case.priors, p.item_members[:, k]
    total = float(normal_log_density(p.effect[k], 0.0, p.effect_sd))
    total += float(normal_log_density(p.item_effect[inside, k], p.effect[k], p.grade_sd).sum())
    total += float(normal_log_density(p.user_weights[k, 1:], 0.0, priors.choice_sd).sum())
    if p.user_grade is not None:
        total += float(normal_log_density(p.user_grade[p.user_members[:, k], k], 1.0, p.user_grade_sd).sum())
    if priors.item_prior == "ibp":
        return total + buffet_columns_log_probability(inside[:, None])
    logits = np.full(inside.size, log_odds(p.item_rate[k]))
    if p.item_weights is not None:
        weights, prior = p.item_weights[k], prior_of_items(case.scene.model)
        total += float(normal_log_density(weights[0], prior.centre, prior.spread))
        total += float(normal_log_density(weights[1:], 0.0, priors.choice_sd).sum())
        logits = weights[0] + case.traits.items @ weights[1:]
    elif priors.item_rate_by_feature:
        first = priors.item_rate_weight * priors.item_rate
        total += log_beta_density(log_odds(p.item_rate[k]), first, priors.item_rate_weight - first)
    return total + sum(log_sigmoid(x if member else -x) for x, member in zip(logits, inside, strict=True))
