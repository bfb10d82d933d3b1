"""Cases in which the posterior is known: nearly exact ratings, one item, no ratings, hardly any mass."""

from __future__ import annotations

import math

import numpy as np

from doublefeature._jit import kernel
from doublefeature.config import Moves, Priors
from doublefeature.kernels.bits import active_slots, count_members
from doublefeature.kernels.gaussian import update_effects_and_offsets
from doublefeature.kernels.latent import update_latent
from doublefeature.kernels.scene import Scene, with_state
from doublefeature.kernels.sweep import Plan, build_plan, build_scene, prepare
from doublefeature.model.generative import draw_parameters
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.parameters import Parameters, state_of
from doublefeature.model.state import MASS, NOISE, USER_SD
from doublefeature.ratings import RatingArrays
from tests.correctness.geweke import at_sweep, compiled_sweep
from tests.correctness.tiny import batch_z, draw_all, pairs, scene_of

BATCHES = 50
EVERY = Moves(settle=0, effect_every=2, noise_slice_every=2, feature_moves=1, offset_flips=0.3)
SUMMARIES = ("K", "ΣA", "ΣB", "θ", "ρ", "α", "τ", "λ", "p", "σ_θ", "σ_ρ", "σ_α")


@kernel
def normal_chain(scene: Scene, out: np.ndarray) -> None:
    """Alternate latent scores with effects and offsets; rows hold effects, item offsets, user offsets."""
    state = scene.state
    slots = active_slots(state.active)
    n_items = state.item_offset.size
    for t in range(out.shape[0]):
        now = at_sweep(scene, t)
        update_latent(now)
        update_effects_and_offsets(now)
        for k in range(slots.size):
            out[t, k] = state.effect[slots[k]]
        out[t, slots.size : slots.size + n_items] = state.item_offset
        if out.shape[1] > slots.size + n_items:
            out[t, slots.size + n_items :] = state.user_offset


@kernel
def summary_chain(scene: Scene, plan: Plan, thin: int, out: np.ndarray) -> None:
    """Run full sweeps and keep the summaries of every `thin`-th state (θ of nobody is NaN)."""
    for t in range(out.shape[0] * thin):
        state, _ = compiled_sweep(at_sweep(scene, t), plan)
        scene = with_state(scene, state)
        if (t + 1) % thin != 0:
            continue
        row = out[t // thin]
        slots = active_slots(state.active)
        row[0] = slots.size
        row[1] = count_members(state.user_words).sum()
        row[2] = count_members(state.item_words).sum()
        row[3] = state.effect[slots[t % slots.size]] if slots.size > 0 else math.nan
        row[4] = state.item_offset[0]
        row[5] = state.user_offset[0]
        row[6] = state.hyper[NOISE]
        row[7:12] = state.hyper[MASS : USER_SD + 1]


def _dense_scene(priors: Priors, seed: int) -> tuple[Scene, Parameters, tuple, np.ndarray]:
    """A scene with 250 narrow levels, its parameters, users, items and the latent scores they pin down."""
    rng = np.random.default_rng(seed)
    n_users, n_items, n_levels, width = 9, 5, 250, 0.04
    parameters = draw_parameters(priors, n_users, n_items, rng, n_levels)
    while parameters.n_features != 3:
        parameters = draw_parameters(priors, n_users, n_items, rng, n_levels)
    users, items = pairs(n_users, n_items, 36, seed)
    scores = parameters.scores(users, items, 0.0)
    cutpoints = (np.arange(n_levels + 1) - n_levels / 2) * width
    latent = scores + parameters.noise * rng.standard_normal(scores.size)
    levels = np.floor(latent / width + n_levels / 2).astype(int)
    assert levels.min() > 0
    assert levels.max() < n_levels - 1
    scene = scene_of(parameters, priors, Moves(), (users, items, levels), n_levels, (seed, 0))
    scene.state.cutpoints[1:-1] = cutpoints[1:-1]
    prepare(scene)
    return scene, parameters, (users, items), cutpoints[levels] + 0.5 * width


def dense_levels_z(user_offsets: bool, n_sweeps: int, seed: int, shrink: float = 1.0) -> np.ndarray:
    """Return z of all means and covariances of effects and offsets against the closed form normal.

    Memberships are fixed and levels so narrow that ratings are latent scores; `shrink` spoils the truth.
    """
    priors = Priors(
        mass=1.0, item_rate=0.5, effect_sd=0.8, item_offset_sd=0.5, user_offsets=user_offsets,
        user_offset_sd=0.5, noise_scale=0.8, base=0.0,
    )  # fmt: skip
    scene, p, (users, items), latent = _dense_scene(priors, seed)
    columns = [p.user_members[users] & p.item_members[items], items[:, None] == np.arange(5)]
    sds = [np.full(3, priors.effect_sd), np.full(5, priors.item_offset_sd)]
    if user_offsets:
        columns.append(users[:, None] == np.arange(9))
        sds.append(np.full(9, priors.user_offset_sd))
    design = np.hstack(columns).astype(float)
    covariance = np.linalg.inv(design.T @ design / p.noise**2 + np.diag(np.concatenate(sds) ** -2.0))
    mean = covariance @ design.T @ latent / p.noise**2
    draws = np.zeros((n_sweeps, mean.size))
    normal_chain(scene, draws)
    away = draws - mean
    upper = np.triu_indices(mean.size)
    products = away[:, upper[0]] * away[:, upper[1]]
    batches = np.hstack([away, products]).reshape(BATCHES, -1, mean.size + upper[0].size).mean(axis=1)
    return batch_z(batches, np.concatenate([np.zeros(mean.size), shrink * covariance[upper]]))


def one_item_z(n_sweeps: int, seed: int, shape_error: float = 0.0) -> np.ndarray:
    """Return z of moments of ρ and τ, one item and no features, against quadrature.

    `shape_error` spoils the truth.
    """
    priors = Priors(item_offset_sd=0.8)
    levels = np.array([0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 2, 3])
    users, items = np.arange(levels.size), np.zeros(levels.size, int)
    p = draw_parameters(Priors(mass=1e-9, item_offset_sd=0.8), levels.size, 1, np.random.default_rng(seed))
    scene = scene_of(p, priors, EVERY, (users, items, levels), 5, (seed, 0))
    plan = build_plan(EVERY, levels.size)._replace(prior_singletons=False, collapsed_share=0.0, feature_moves=0)
    draws = np.zeros((n_sweeps, len(SUMMARIES)))
    summary_chain(scene, plan, 1, draws)
    assert not draws[:, 0].any()

    def moments(rho, tau):
        return np.stack([rho, rho**2, tau, tau**2, np.log(tau), rho * tau, tau**-2.0], axis=-1)

    rho, x = np.meshgrid(np.linspace(-4.0, 4.0, 801), np.linspace(-2.0, 2.0, 801), indexing="ij")
    tau = np.exp(x)
    shape = priors.noise_shape + shape_error
    logs = -0.5 * (rho / 0.8) ** 2 - 2.0 * shape * x - priors.noise_rate * tau**-2.0
    table = level_probabilities((2.5 + rho).ravel(), tau.ravel(), level_cutpoints(5))
    with np.errstate(divide="ignore"):
        logs += (np.log(table) @ np.bincount(levels, minlength=5)).reshape(rho.shape)
    weights = np.exp(logs - logs.max())
    truth = (weights[..., None] * moments(rho, tau)).sum(axis=(0, 1)) / weights.sum()
    batches = moments(draws[:, 4], draws[:, 6]).reshape(BATCHES, -1, 7).mean(axis=1)
    return batch_z(batches, truth)


def _no_ratings(n_users: int, n_items: int) -> RatingArrays:
    codes = np.zeros(0, np.uint32)
    rows = np.zeros(n_users + 1, np.int64), np.zeros(n_items + 1, np.int64)
    return RatingArrays(rows[0], codes, np.zeros(0, np.uint8), rows[1], codes.copy(), codes.copy())


def no_data_priors() -> Priors:
    return Priors(
        mass=1.0, item_rate=0.4, effect_sd=1.0, item_offset_sd=0.7, user_offsets=True, user_offset_sd=0.7
    ).with_everything_learnt()


def without_data(n_draws: int, thin: int, seed: int, moves: Moves = EVERY) -> np.ndarray:
    """Return summaries of thinned full sweeps on no ratings at all (6 users, 5 items)."""
    priors = no_data_priors()
    start = state_of(draw_parameters(priors, 6, 5, np.random.default_rng(seed)), priors, 5)
    scene = build_scene(_no_ratings(6, 5), priors, moves, start, (seed, 0))
    draws = np.zeros((n_draws, len(SUMMARIES)))
    summary_chain(scene, build_plan(moves, 6), thin, draws)
    return draws


def prior_summaries(n_draws: int, seed: int, priors: Priors | None = None) -> np.ndarray:
    """Return the same summaries of draws from the prior."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_draws):
        p = draw_parameters(priors or no_data_priors(), 6, 5, rng)
        theta = rng.choice(p.effect) if p.n_features else math.nan
        sums = p.n_features, p.user_members.sum(), p.item_members.sum()
        scales = p.noise, p.mass, p.rate, p.effect_sd, p.item_sd, p.user_sd
        rows.append([*sums, theta, p.item_offset[0], p.user_offset[0], *scales])
    return np.array(rows, float)


def share_with_features(mass: float, n_sweeps: int, seed: int) -> float:
    """Return how often there is a feature at all, starting with some, on ratings that need none."""
    small = Priors(mass=mass, item_offset_sd=0.7)
    users, items = pairs(6, 5, 24)
    rng = np.random.default_rng(seed)
    _, levels = draw_all(Priors(mass=1e-9, item_offset_sd=0.7), users, items, (6, 5, 5), rng)
    start = draw_parameters(Priors(mass=1.5, item_offset_sd=0.7), 6, 5, rng)
    start.mass = mass
    scene = scene_of(start, small, EVERY, (users, items, levels), 5, (seed, 0))
    draws = np.zeros((n_sweeps, len(SUMMARIES)))
    summary_chain(scene, build_plan(EVERY, 6), 1, draws)
    return float((draws[n_sweeps // 10 :, 0] > 0).mean())
