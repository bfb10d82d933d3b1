r"""The model forwards, slowly and obviously: draw parameters, draw ratings, write down the joint density.

    A ~ IBP(λ)                      users' memberships
    B_ik ~ Bernoulli(p_k)           items' memberships
    θ_k ~ N(0, σ_θ²)                effects
    w_ik ~ N(θ_k, σ_w²)             graded: every item's own, in place of θ_k
    ρ_i ~ N(0, σ_ρ²), α_u ~ N(0, σ_α²), τ² ~ InvGamma(a, b)
    η_ui = b0 + ρ_i + α_u + Σ_k A_uk B_ik θ_k
    P(level r) = Φ((c_{r+1} − η)/τ_u) − Φ((c_r − η)/τ_u)

Users' noise scales τ_u are τ, or multiples of it whose logarithms are normal around 0 on a grid. Cutpoints are whole
numbers, or uniform in order between the first and the last.

Nothing here is used by the sampler. Tests hold the sampler against it.
"""

from __future__ import annotations

from math import lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Priors
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.parameters import Parameters
from doublefeature.model.state import (
    ITEM_LOGIT_SD,
    Traits,
    no_traits,
    scales_of,
)

FloatArray = NDArray[np.float64]
BoolMatrix = NDArray[np.bool_]
Codes = NDArray[np.int64]

_LOG_2PI = log(2.0 * np.pi)


def base_of(priors: Priors, n_levels: int) -> float:
    """Return b0."""
    return n_levels / 2 if priors.base is None else priors.base


def draw_parameters(
    priors: Priors,
    n_users: int,
    n_items: int,
    rng: np.random.Generator,
    n_levels: int = 5,
    traits: Traits | None = None,
) -> Parameters:
    """Draw all parameters from the prior, given traits if there are any."""
    priors = priors.on_scale(n_levels)
    learnt = priors.learn
    traits = traits or no_traits(n_users, n_items)
    mass = rng.gamma(priors.mass_shape, priors.mass / priors.mass_shape) if "mass" in learnt else priors.mass
    inside = priors.item_rate_weight * priors.item_rate
    outside = priors.item_rate_weight - inside
    rate = rng.beta(inside, outside) if "item_rate" in learnt else priors.item_rate
    effect_sd = _draw_sd(priors, "effect_sd", rng)
    item_sd = _draw_sd(priors, "item_offset_sd", rng)
    user_sd = _draw_sd(priors, "user_offset_sd", rng)
    grade_sd = _draw_sd(priors, "grade_sd", rng)
    scale_sd = _draw_sd(priors, "user_scale_sd", rng)
    scales = scales_of(priors)
    noise = priors.noise_scale
    if noise is None:
        noise = float((priors.noise_rate / rng.gamma(priors.noise_shape)) ** 0.5)
    user_weights, item_weights = None, None
    if traits.users.shape[1] == traits.items.shape[1] == 0:
        user_members = draw_buffet(mass, n_users, rng)
    else:
        user_members, user_weights = draw_tilted_buffet(mass, traits.users, priors.choice_sd, rng)
    n_features = user_members.shape[1]
    rates: FloatArray = np.full(n_features, rate)
    if priors.item_rate_by_feature:
        rates = np.asarray(rng.beta(inside, outside, n_features))
    if priors.effect_values:
        effect = rng.choice(np.array(priors.effect_values), n_features)
    else:
        effect = effect_sd * rng.standard_normal(n_features)
    item_chances = np.tile(rates, (n_items, 1))
    if traits.items.shape[1]:
        item_weights = priors.choice_sd * rng.standard_normal((n_features, traits.items.shape[1] + 1))
        centre = log(priors.item_rate) - log1p(-priors.item_rate)
        item_weights[:, 0] = centre + ITEM_LOGIT_SD * rng.standard_normal(n_features)
        item_chances = 1.0 / (1.0 + np.exp(-(item_weights[:, 0] + traits.items @ item_weights[:, 1:].T)))
        rates = item_chances.mean(axis=0)
    item_members = rng.random((n_items, n_features)) < item_chances
    if priors.item_prior == "ibp":
        item_members = draw_buffet_columns(n_items, n_features, rng)
        rates = rng.beta(item_members.sum(axis=0), n_items - item_members.sum(axis=0) + 1.0)
    grades = None
    if priors.graded:
        grades = np.where(item_members, effect + grade_sd * rng.standard_normal((n_items, n_features)), 0.0)
    user_grade_sd, user_grade = _draw_sd(priors, "user_grade_sd", rng), None
    if priors.user_grades:
        user_grade = np.where(user_members, 1.0 + user_grade_sd * rng.standard_normal((n_users, n_features)), 0.0)
    remainder_sd = _draw_sd(priors, "remainder_sd", rng)
    factors = [remainder_sd * np.asarray(rng.standard_normal((rows, priors.remainder))) for rows in (n_users, n_items)]
    user_scale = np.zeros(n_users, np.uint8)
    if priors.user_scales:
        user_scale[:] = rng.choice(scales.size, n_users, p=np.exp(scale_log_weights(scales, scale_sd)))
    of_users = np.hstack([traits.users, traits.user_offsets])
    user_offset_weights = priors.trait_offset_sd * np.asarray(rng.standard_normal(of_users.shape[1]))
    item_offset_weights = priors.trait_offset_sd * np.asarray(rng.standard_normal(traits.items.shape[1]))
    user_offset = of_users @ user_offset_weights + user_sd * rng.standard_normal(n_users)
    item_offset = traits.items @ item_offset_weights + item_sd * rng.standard_normal(n_items)
    return Parameters(
        user_members=user_members,
        item_members=item_members,
        user_weights=user_weights,
        item_weights=item_weights,
        user_offset_weights=user_offset_weights,
        item_offset_weights=item_offset_weights,
        effect=effect,
        item_rate=rates,
        item_offset=item_offset * priors.item_offsets,
        user_offset=user_offset * priors.user_offsets,
        noise=noise,
        mass=float(mass),
        rate=float(rate),
        effect_sd=effect_sd,
        item_sd=item_sd,
        user_sd=user_sd,
        grade_sd=grade_sd,
        scale_sd=scale_sd,
        item_effect=grades,
        remainder_sd=remainder_sd,
        user_factor=factors[0],
        item_factor=factors[1],
        user_grade_sd=user_grade_sd,
        user_grade=user_grade,
        user_scale=user_scale,
        scales=scales,
        cutpoints=_draw_cutpoints(priors, n_levels, rng),
    )


def scale_log_weights(scales: FloatArray, sd: float) -> FloatArray:
    """Return the log prior probability of every multiple of τ: a normal on their logarithms, cut to the grid."""
    weights = -0.5 * (np.log(scales) / sd) ** 2
    normalised: FloatArray = weights - np.log(np.exp(weights).sum())
    return normalised


def _draw_cutpoints(priors: Priors, n_levels: int, rng: np.random.Generator) -> FloatArray:
    cutpoints = level_cutpoints(n_levels)
    if priors.free_cutpoints and n_levels > 3:
        cutpoints[2:-2] = np.sort(rng.uniform(1.0, n_levels - 1.0, n_levels - 3))
    return cutpoints


def _draw_sd(priors: Priors, name: str, rng: np.random.Generator) -> float:
    centre: float = getattr(priors, name)
    if name not in priors.learn:
        return centre
    rate = (priors.sd_shape - 1.0) * centre**2
    return float((rate / rng.gamma(priors.sd_shape)) ** 0.5)


def draw_buffet(mass: float, n_users: int, rng: np.random.Generator) -> BoolMatrix:
    """Draw memberships from the Indian buffet process, user by user; columns in random order."""
    columns: list[BoolMatrix] = []
    for user in range(n_users):
        for column in columns:
            column[user] = rng.random() < column[:user].sum() / (user + 1)
        for _ in range(rng.poisson(mass / (user + 1))):
            column = np.zeros(n_users, bool)
            column[user] = True
            columns.append(column)
    matrix = np.stack(columns, axis=1) if columns else np.zeros((n_users, 0), bool)
    return matrix[:, rng.permutation(matrix.shape[1])]


def draw_buffet_columns(n_rows: int, n_features: int, rng: np.random.Generator) -> BoolMatrix:
    """Draw so many columns of the Indian buffet process, none empty: a size j with weight 1/j, then a subset."""
    weights = 1.0 / np.arange(1, n_rows + 1)
    matrix = np.zeros((n_rows, n_features), bool)
    for k, size in enumerate(rng.choice(np.arange(1, n_rows + 1), n_features, p=weights / weights.sum())):
        matrix[rng.permutation(n_rows)[:size], k] = True
    return matrix


def draw_tilted_buffet(
    mass: float, traits: FloatArray, sd: float, rng: np.random.Generator
) -> tuple[BoolMatrix, FloatArray]:
    """Draw memberships and weights where traits shift the log odds of belonging; columns in random order.

    User by user, features whose first member is that user come from a Poisson process with intensity
    λ π⁻¹ p_u Π_{v<u} (1 − p_v) dπ N(d) dd, thinned from π uniform and d normal with rate λ c: p_u/π is below c but
    for shifts beyond five standard deviations.
    """
    n_users = traits.shape[0]
    columns, weights = [], []
    most = float(np.exp(5.0 * sd * np.sqrt((traits**2).sum(axis=1)).max()))
    for user in range(n_users):
        n_tries = rng.poisson(mass * most)
        rate, slopes = rng.random(n_tries), sd * rng.standard_normal((n_tries, traits.shape[1]))
        start = np.log(rate) - np.log1p(-rate)
        chances = 1.0 / (1.0 + np.exp(-(start[:, None] + slopes @ traits.T)))
        share = chances[:, user] / (rate * most) * np.prod(1.0 - chances[:, :user], axis=1)
        for found in np.flatnonzero(rng.random(n_tries) < share):
            column = rng.random(n_users) < chances[found]
            column[: user + 1] = np.arange(user + 1) == user
            columns.append(column)
            weights.append(np.append(start[found], slopes[found]))
    order = rng.permutation(len(columns))
    if not columns:
        return np.zeros((n_users, 0), bool), np.zeros((0, traits.shape[1] + 1))
    return np.stack(columns, axis=1)[:, order], np.stack(weights)[order]


def draw_levels(
    scores: FloatArray, noise: float | FloatArray, cutpoints: FloatArray, rng: np.random.Generator
) -> Codes:
    """Draw a level code for every score."""
    latent = scores + noise * rng.standard_normal(scores.shape)
    codes: Codes = np.searchsorted(cutpoints[1:-1], latent, side="left")
    return codes


def log_joint(
    parameters: Parameters,
    priors: Priors,
    users: Codes,
    items: Codes,
    levels: Codes,
    n_levels: int,
    traits: Traits | None = None,
) -> float:
    """Return the log joint density of parameters and ratings.

    Memberships are the matrix with its columns in uniformly random order; τ² and the squares of learnt standard
    deviations are densities in the squares.
    """
    scores = parameters.scores(users, items, base_of(priors, n_levels))
    table = level_probabilities(scores, parameters.noise_of(users), parameters.cutpoints)
    likelihood = np.log(table[np.arange(levels.size), levels]).sum()
    return float(likelihood) + log_prior(parameters, priors, traits)


def log_prior(parameters: Parameters, priors: Priors, traits: Traits | None = None) -> float:
    """Return the log prior density of all parameters that are random under these priors.

    Where traits shift users' memberships it is less the log of the expected number of features, which has no closed
    form and depends on nothing that is sampled.
    """
    p = parameters
    priors = priors.on_scale(p.cutpoints.size - 1)
    traits = traits or no_traits(p.user_offset.size, p.item_offset.size)
    inside = priors.item_rate_weight * priors.item_rate
    outside = priors.item_rate_weight - inside
    if p.user_weights is None:
        total = buffet_log_probability(p.user_members, p.mass)
    else:
        total = p.n_features * log(p.mass) - lgamma(p.n_features + 1)
        total -= float(np.log1p(np.exp(p.user_weights[:, 0])).sum())
        total += _normal_log_density(p.user_weights[:, 1:], priors.choice_sd)
        total += _membership_log_probability(p.user_members, p.user_weights, traits.users)
    counts = p.item_members.sum(axis=0)
    n_items = p.item_members.shape[0]
    if priors.item_prior == "ibp":
        total += buffet_columns_log_probability(p.item_members)
    elif p.item_weights is None:
        total += float((counts * np.log(p.item_rate) + (n_items - counts) * np.log1p(-p.item_rate)).sum())
    else:
        centre = log(priors.item_rate) - log1p(-priors.item_rate)
        total += _normal_log_density(p.item_weights[:, 0] - centre, ITEM_LOGIT_SD)
        total += _normal_log_density(p.item_weights[:, 1:], priors.choice_sd)
        total += _membership_log_probability(p.item_members, p.item_weights, traits.items)
    if priors.item_rate_by_feature:
        total += sum(_beta_log_density(rate, inside, outside) for rate in p.item_rate)
    if priors.effect_values:
        total -= p.n_features * log(len(priors.effect_values))
    else:
        total += _normal_log_density(p.effect, p.effect_sd)
    if p.item_effect is not None:
        total += _normal_log_density((p.item_effect - p.effect)[p.item_members], p.grade_sd)
    total += _normal_log_density(p.user_factor, p.remainder_sd) + _normal_log_density(p.item_factor, p.remainder_sd)
    if p.user_grade is not None:
        total += _normal_log_density(p.user_grade[p.user_members] - 1.0, p.user_grade_sd)
    if priors.user_scales:
        total += float(scale_log_weights(p.scales, p.scale_sd)[p.user_scale].sum())
    if priors.free_cutpoints:
        n_free = max(0, p.cutpoints.size - 4)
        total += lgamma(n_free + 1) - n_free * log(max(p.cutpoints.size - 3, 1))
    if priors.item_offsets:
        total += _normal_log_density(p.item_offset - traits.items @ p.item_offset_weights, p.item_sd)
        total += _normal_log_density(p.item_offset_weights, priors.trait_offset_sd)
    if priors.user_offsets:
        of_users = np.hstack([traits.users, traits.user_offsets])
        total += _normal_log_density(p.user_offset - of_users @ p.user_offset_weights, p.user_sd)
        total += _normal_log_density(p.user_offset_weights, priors.trait_offset_sd)
    if priors.noise_scale is None:
        total += _inverse_gamma_log_density(p.noise**2, priors.noise_shape, priors.noise_rate)
    if "mass" in priors.learn:
        rate = priors.mass_shape / priors.mass
        total += (priors.mass_shape - 1.0) * log(p.mass) - rate * p.mass
        total += priors.mass_shape * log(rate) - lgamma(priors.mass_shape)
    if "item_rate" in priors.learn:
        total += _beta_log_density(p.rate, inside, outside)
    for name, value in (
        ("effect_sd", p.effect_sd),
        ("item_offset_sd", p.item_sd),
        ("user_offset_sd", p.user_sd),
        ("grade_sd", p.grade_sd),
        ("user_scale_sd", p.scale_sd),
        ("user_grade_sd", p.user_grade_sd),
        ("remainder_sd", p.remainder_sd),
    ):
        if name in priors.learn:
            scale = (priors.sd_shape - 1.0) * getattr(priors, name) ** 2
            total += _inverse_gamma_log_density(value**2, priors.sd_shape, scale)
    return total


def buffet_log_probability(user_members: BoolMatrix, mass: float) -> float:
    """Return log p(A) of the Indian buffet process, columns in uniformly random order."""
    n_users, n_features = user_members.shape
    total = n_features * log(mass) - lgamma(n_features + 1) - mass * _harmonic(n_users)
    return float(total + _columns_log_weight(user_members))


def buffet_columns_log_probability(members: BoolMatrix) -> float:
    """Return the log probability of columns of the Indian buffet process given how many they are."""
    n_rows, n_features = members.shape
    return float(_columns_log_weight(members) - n_features * log(_harmonic(n_rows)))


def _columns_log_weight(members: BoolMatrix) -> float:
    """Return Σ log[(m_k − 1)! (m − m_k)! / m!] over columns; −∞ if one is empty."""
    n_rows = members.shape[0]
    total = 0.0
    for count in members.sum(axis=0):
        if count == 0:
            return -np.inf
        total += lgamma(count) + lgamma(n_rows - count + 1) - lgamma(n_rows + 1)
    return total


def _harmonic(n: int) -> float:
    return sum(1.0 / j for j in range(1, n + 1))


def _membership_log_probability(inside: BoolMatrix, weights: FloatArray, traits: FloatArray) -> float:
    """Return the log probability of memberships given every feature's log odds and how traits shift them."""
    logits = weights[:, 0] + traits @ weights[:, 1:].T
    return float((np.where(inside, logits, 0.0) - np.logaddexp(0.0, logits)).sum())


def _normal_log_density(values: FloatArray, sd: float) -> float:
    return float(-0.5 * ((values / sd) ** 2).sum() - values.size * (log(sd) + 0.5 * _LOG_2PI))


def _inverse_gamma_log_density(value: float, shape: float, scale: float) -> float:
    return shape * log(scale) - lgamma(shape) - (shape + 1.0) * log(value) - scale / value


def _beta_log_density(value: float, inside: float, outside: float) -> float:
    constant = lgamma(inside + outside) - lgamma(inside) - lgamma(outside)
    return constant + (inside - 1.0) * log(value) + (outside - 1.0) * log1p(-value)
