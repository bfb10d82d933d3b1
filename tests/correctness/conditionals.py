"""Blocks with a known conditional against the reference density or against dense linear algebra.

Normal and gamma draws are replayed: with the random number a kernel used at hand, its draw has to be mean
plus spread times that number, exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from math import log

import numpy as np

from doublefeature._jit import kernel
from doublefeature.kernels.cutpoints import cutpoint_log_target
from doublefeature.kernels.effects import effect_log_targets, pairs_of
from doublefeature.kernels.exchanges import offset_flip
from doublefeature.kernels.gaussian import draw_normal, effect_normal, factorise
from doublefeature.kernels.hyper import update_hyper
from doublefeature.kernels.memberships import load_row, new_row
from doublefeature.kernels.noise import noise_log_target, update_noise_given_latent
from doublefeature.kernels.offsets import update_item_offsets, update_user_offsets
from doublefeature.kernels.scene import Scene, longest_row
from doublefeature.kernels.scores import add_offsets, rebuild_effects
from doublefeature.kernels.streams import GAUSSIAN, NOISE_SCALE, OFFSETS, new_stream, seek, tick, uniform
from doublefeature.kernels.sweep import prepare
from doublefeature.kernels.variates import log_gamma_draw, normal
from doublefeature.model.generative import base_of
from doublefeature.model.state import EFFECT_SD, ITEM_SD, MASS, NOISE, RATE, USER_SD, copy_state
from tests.correctness.cases import Case, flipped, random_case
from tests.correctness.tiny import batch_z

Pairs = Iterator[tuple[float, float]]


@kernel
def judge_offset_flip(scene: Scene, item: int, slot: int) -> tuple[float, float]:
    local = new_row(longest_row(scene.items, item, item + 1), scene.state.user_words.shape[1])
    load_row(scene.items, scene.state, scene.like, scene.scores, item, local)
    ratio, move, _ = offset_flip(scene.items, scene.state, scene.model, scene.like, item, slot, local)
    return ratio, move


@kernel
def effect_target(scene: Scene, slot: int, effect: float) -> float:
    return effect_log_targets(scene, pairs_of(scene, slot), np.array([effect]))[0]


@kernel
def replayed(scene: Scene, block: int, step: int, entity: int, normals: np.ndarray) -> np.ndarray:
    """Return the first random numbers of a place, uniform or normal as told."""
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, block, step), entity)
    out = np.empty(normals.size)
    for j in range(normals.size):
        out[j] = normal(stream) if normals[j] else uniform(stream)
    return out


def replayed_normals(scene: Scene, block: int, step: int, entity: int, count: int) -> np.ndarray:
    """Return the first normal random numbers of a place."""
    return replayed(scene, block, step, entity, np.ones(count, np.uint8))


@kernel
def replayed_log_gamma(scene: Scene, block: int, step: int, shape: float) -> float:
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, block, step), 0)
    return log_gamma_draw(stream, shape)


@kernel
def draw_effects(scene: Scene, factor: np.ndarray, linear: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, GAUSSIAN, 0), 0)
    draw_normal(factor, linear, stream)


@kernel
def hyper_draws(scene: Scene, out: np.ndarray) -> None:
    """Draw the hyperparameters again and again, everything else fixed; the last column is slot 0's rate."""
    for t in range(out.shape[0]):
        now = Scene(
            scene.users, scene.items, scene.state, scene.model, scene.like, scene.scores, scene.latent,
            scene.tally, scene.key, t, scene.threads,
        )  # fmt: skip
        update_hyper(now)
        out[t, :6] = scene.state.hyper[:6]
        out[t, 6] = scene.state.item_rate[0]


def fresh_scene(case: Case, with_latent: bool = False) -> Scene:
    """A scene whose state may be changed, with made-up latent scores when asked for."""
    scores = case.scene.scores
    latent = scores + case.rng.normal(0.0, 1.0, scores.size) if with_latent else scores.copy()
    return case.scene._replace(state=copy_state(case.scene.state), scores=scores.copy(), latent=latent)


def offset_flips(case: Case) -> Pairs:
    """The flip with a moving offset, and its way back."""
    p = case.parameters
    if not case.priors.item_offsets:
        return
    for k, item in itertools.product(range(p.n_features), range(case.sizes[1])):
        ratio, move = judge_offset_flip(case.scene, item, k)
        offset = p.item_offset + move * (np.arange(case.sizes[1]) == item)
        after = replace(flipped(p, "item_members", item, k), item_offset=offset)
        yield ratio, case.density(after) - case.density(p)
        scene = fresh_scene(case)
        scene.state.item_words[item, k // 64] ^= np.uint64(1) << np.uint64(k % 64)
        scene.state.item_offset[item] += move
        prepare(scene)
        back, way = judge_offset_flip(scene, item, k)
        yield back, -ratio
        yield way, -move


def noise(case: Case, jacobian: float = 2.0) -> Pairs:
    """Differences of the target of log τ; τ² has the density of the reference, hence a Jacobian 2 log τ."""
    if case.priors.noise_scale is not None:
        return
    scene = fresh_scene(case)
    values = case.parameters.noise * np.exp(case.rng.uniform(-0.3, 0.3, 2))
    used = [noise_log_target(scene, log(value)) for value in values]
    truth = [case.density(replace(case.parameters, noise=v)) + jacobian * log(v) for v in values]
    noise_log_target(scene, log(case.parameters.noise))
    yield used[1] - used[0], truth[1] - truth[0]


def cutpoints(case: Case, power: float = 0.0) -> Pairs:
    """Differences of the target of one cutpoint, whose prior is flat: the power 0 of its value."""
    if not case.priors.free_cutpoints:
        return
    scene = fresh_scene(case)
    there = case.parameters.cutpoints
    for place in range(2, there.size - 2):
        values = case.rng.uniform(there[place - 1], there[place + 1], 2)
        moved = [np.where(np.arange(there.size) == place, value, there) for value in values]
        truth = [case.density(replace(case.parameters, cutpoints=cut)) + power * log(cut[place]) for cut in moved]
        used = [cutpoint_log_target(scene, place, value) for value in values]
        cutpoint_log_target(scene, place, there[place])
        yield used[1] - used[0], truth[1] - truth[0]


def noise_given_latent(case: Case) -> Pairs:
    scene = fresh_scene(case, with_latent=True)
    update_noise_given_latent(scene)
    shape = case.priors.noise_shape + 0.5 * scene.scores.size
    rate = case.priors.noise_rate + 0.5 * float(((scene.latent - scene.scores) ** 2).sum())
    drawn = replayed_log_gamma(scene, NOISE_SCALE, 1, shape)
    yield -2.0 * log(scene.state.hyper[NOISE]), drawn - log(rate)


def effects(case: Case) -> Pairs:
    """Differences of the target of one effect with the latent scores integrated out."""
    p = case.parameters
    values = case.priors.effect_values
    for k in range(p.n_features):
        two = values[:2] if values else case.rng.normal(0.0, p.effect_sd, 2)
        chosen = np.arange(p.n_features) == k
        truth = [case.density(replace(p, effect=np.where(chosen, value, p.effect))) for value in two]
        used = [effect_target(case.scene, k, float(value)) for value in two]
        yield used[1] - used[0], truth[1] - truth[0]


def _dense(case: Case, scene: Scene, of_users: bool) -> tuple[np.ndarray, np.ndarray]:
    """Precision and linear term of the effects, one side's offsets eliminated from the dense joint normal."""
    p = case.parameters
    users, items, _ = case.observed
    own, other = (users, p.item_offset[items]) if of_users else (items, p.user_offset[users])
    with_offset = case.priors.user_offsets if of_users else case.priors.item_offsets
    n_rows = case.sizes[0 if of_users else 1] if with_offset else 0
    sd = p.user_sd if of_users else p.item_sd
    design = np.hstack([
        (p.user_members[users] & p.item_members[items]).astype(float),
        (own[:, None] == np.arange(n_rows)).astype(float),
    ])  # fmt: skip
    g = p.noise**-2
    prior = np.concatenate([np.full(p.n_features, p.effect_sd**-2), np.full(n_rows, sd**-2)])
    precision = g * design.T @ design + np.diag(prior)
    linear = g * design.T @ (scene.latent - base_of(case.priors, case.n_levels) - other)
    k = p.n_features
    cross = np.linalg.solve(precision[k:, k:], np.column_stack([precision[k:, :k], linear[k:]]))
    return precision[:k, :k] - precision[:k, k:] @ cross[:, :k], linear[:k] - precision[:k, k:] @ cross[:, k]


def effect_normals(case: Case) -> Pairs:
    """The joint normal of the effects, its factor and the draw made from it."""
    k = case.parameters.n_features
    for of_users in (False, True) if k else ():
        scene = fresh_scene(case, with_latent=True)
        factor, linear = effect_normal(scene, scene.users if of_users else scene.items, np.arange(k))
        precision, truth = _dense(case, scene, of_users)
        yield float(np.abs(np.tril(factor - precision)).max()), 0.0
        yield float(np.abs(linear - truth).max()), 0.0
        factorise(factor)
        lower = np.linalg.cholesky(precision)
        yield float(np.abs(np.tril(factor) - lower).max()), 0.0
        draw_effects(scene, factor, linear)
        numbers = replayed_normals(scene, GAUSSIAN, 0, 0, k)[::-1]
        drawn = np.linalg.solve(precision, truth) + np.linalg.solve(lower.T, numbers)
        yield float(np.abs(linear - drawn).max()), 0.0


def offsets(case: Case) -> Pairs:
    """Offsets of either side given latent scores, effects and the other side's offsets."""
    p = case.parameters
    users, items, _ = case.observed
    for step, (rows, here, sd, update, name) in enumerate((
        (items, p.item_offset, p.item_sd, update_item_offsets, "item_offset"),
        (users, p.user_offset, p.user_sd, update_user_offsets, "user_offset"),
    )):  # fmt: skip
        scene = fresh_scene(case, with_latent=True)
        rest = scene.latent - scene.scores + here[rows]
        rebuild_effects(scene)
        update(scene)
        add_offsets(scene)
        drawn = getattr(scene.state, name)
        for row in range(here.size):
            precision = (rows == row).sum() / p.noise**2 + sd**-2
            mean = rest[rows == row].sum() / p.noise**2 / precision
            number = replayed_normals(scene, OFFSETS, step, row, 1)[0]
            yield drawn[row], mean + number / math.sqrt(precision)
        yield float(np.abs(scene.latent - scene.scores - rest + drawn[rows]).max(initial=0.0)), 0.0


def _gamma_moments(shape: float, rate: float) -> tuple[float, float]:
    return shape / rate, shape / rate**2


def _beta_moments(inside: float, outside: float) -> tuple[float, float]:
    total = inside + outside
    return inside / total, inside * outside / total**2 / (total + 1.0)


def _hyper_conditionals(case: Case) -> Iterator[tuple[int, bool, float, float]]:
    """Column, whether the law is that of 1/x², mean and variance of every hyperparameter that is learnt."""
    p, priors = case.parameters, case.priors
    n_users, n_items = case.sizes
    size = int(p.item_members.sum())
    inside = priors.item_rate_weight * priors.item_rate
    outside = priors.item_rate_weight - inside
    if "mass" in priors.learn:
        rate = priors.mass_shape / priors.mass + sum(1.0 / j for j in range(1, n_users + 1))
        yield MASS, False, *_gamma_moments(priors.mass_shape + p.n_features, rate)
    if "item_rate" in priors.learn:
        yield RATE, False, *_beta_moments(inside + size, outside + n_items * p.n_features - size)
    if priors.item_rate_by_feature and p.n_features:
        own = int(p.item_members[:, 0].sum())
        yield 6, False, *_beta_moments(inside + own, outside + n_items - own)
    for column, name, values in (
        (EFFECT_SD, "effect_sd", p.effect),
        (ITEM_SD, "item_offset_sd", p.item_offset),
        (USER_SD, "user_offset_sd", p.user_offset),
    ):
        if name in priors.learn:
            rate = (priors.sd_shape - 1.0) * getattr(priors, name) ** 2 + 0.5 * float((values**2).sum())
            yield column, True, *_gamma_moments(priors.sd_shape + 0.5 * values.size, rate)


def worst_hyper_z(n_states: int, n_draws: int, seed: int, inflate: float = 1.0) -> float:
    """Return the largest |z| of mean and variance of hyperparameter draws over random states."""
    rng = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(n_states):
        case = random_case(rng)
        draws = np.zeros((n_draws, 7))
        hyper_draws(fresh_scene(case), draws)
        for column, inverse, mean, variance in _hyper_conditionals(case):
            x = draws[:, column] ** -2 if inverse else draws[:, column]
            both = np.column_stack([x, (x - mean) ** 2]).reshape(50, -1, 2).mean(axis=1)
            worst = max(worst, np.abs(batch_z(both, np.array([mean * inflate, variance]))).max())
    return float(worst)


CONDITIONALS = {
    "offset flips": offset_flips,
    "noise": noise,
    "noise given latent": noise_given_latent,
    "effects": effects,
    "effect normals": effect_normals,
    "offsets": offsets,
}
