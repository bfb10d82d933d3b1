"""Geweke's joint test: draws from the prior against a chain that alternates sweeps with fresh ratings.

If every block keeps the posterior, the alternating chain keeps the joint law of parameters and ratings, whatever
the ratings are, so the averages of any statistic must agree. Nothing has to converge to be tested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from doublefeature._jit import kernel
from doublefeature.config import Moves, Priors
from doublefeature.kernels.bits import active_slots, count_members, has_bit
from doublefeature.kernels.scene import Scene, with_state
from doublefeature.kernels.scores import log_likelihood
from doublefeature.kernels.streams import new_stream, seek, tick
from doublefeature.kernels.sweep import Plan, build_plan, sweep_once
from doublefeature.kernels.variates import normal
from doublefeature.outline import NO_COVARIATES
from tests.correctness.forgetful import NOTHING, forget_ratings
from tests.correctness.tiny import batch_z, columns, draw_all, known_traits, pairs, scene_of

SIZES = (6, 5, 5)
N_RATINGS = 24
BATCHES = 64
FRESH_RATINGS = 200

STATISTICS = (
    "K", "K²", "ΣA", "ΣB", "Σθ²", "Σθ", "singletons", "max m", "Σθmn", "co-members", "ρ₀", "Σρ²", "ρ₀ρ₁",
    "Σα²", "α₀", "τ", "log τ", "τ⁻²", "mean r", "#top", "#mid", "Σrη", "log-lik", "ρ₀r₀", "r₀r₁", "λ", "p",
    "σ_θ", "σ_ρ", "σ_α", "Σp_k", "σ_w", "σ_v", "Σw", "Σw²", "Σ(w−θ)²", "w₀r₀",
    "Σ log scale", "Σ log² scale", "scale₀r₀", "c₂", "c₂²", "c₂c₃", "Σa", "Σd", "Σd²", "Σ dm", "δ₀", "δ²", "Σzα",
    "σ_r", "Σu²", "Σv²", "u₀v₀r₀", "σ_s", "Σs", "Σ(s−1)²", "s₀r₀", "Σb", "Σg²", "Σ gn", "ε²", "Σxρ",
)  # fmt: skip


@kernel
def statistics(scene: Scene, out: np.ndarray) -> None:
    """Add the statistics of the current state and ratings, none of which depends on feature labels."""
    state = scene.state
    slots = active_slots(state.active)
    users = count_members(state.user_words)
    items = count_members(state.item_words)
    k = slots.size
    out[0] += k
    out[1] += k * k
    largest = 0
    for slot in slots:
        out[2] += users[slot]
        out[3] += items[slot]
        out[4] += state.effect[slot] ** 2
        out[5] += state.effect[slot]
        out[6] += users[slot] == 1
        largest = max(largest, users[slot])
        out[8] += state.effect[slot] * users[slot] * items[slot]
        out[9] += has_bit(state.user_words, 0, slot) and has_bit(state.user_words, 1, slot)
        out[30] += state.item_rate[slot]
    out[7] += largest
    rho = state.item_offset
    out[10] += rho[0]
    out[12] += rho[0] * rho[1]
    for i in range(rho.size):
        out[11] += rho[i] ** 2
    for u in range(state.user_offset.size):
        out[13] += state.user_offset[u] ** 2
    out[14] += state.user_offset[0]
    tau = state.hyper[0]
    out[15] += tau
    out[16] += math.log(tau)
    out[17] += 1.0 / (tau * tau)
    levels = scene.users.levels
    top = state.cutpoints.size - 2
    for j in range(levels.size):
        out[18] += levels[j] / levels.size
        out[19] += levels[j] == top
        out[20] += levels[j] == 2
        out[21] += levels[j] * scene.scores[j]
    out[22] += log_likelihood(scene.users, state, scene.like, scene.scores, 1)
    out[23] += rho[scene.users.other[0]] * levels[0]
    out[24] += float(levels[0]) * float(levels[1])
    for h in range(1, 6):
        out[24 + h] += state.hyper[h]
    out[31] += state.hyper[6]
    out[32] += state.hyper[7]
    for slot in slots:
        for item in range(state.item_effect.shape[0]):
            w = state.item_effect[item, slot]
            out[33] += w
            out[34] += w * w
            if has_bit(state.item_words, item, slot):
                out[35] += (w - state.effect[slot]) ** 2
            if item == scene.users.other[0]:
                out[36] += w * levels[0]
    out[50] += state.hyper[9]
    for d in range(state.user_factor.shape[1]):
        for u in range(state.user_factor.shape[0]):
            out[51] += state.user_factor[u, d] ** 2
        for i in range(state.item_factor.shape[0]):
            out[52] += state.item_factor[i, d] ** 2
        out[53] += state.user_factor[0, d] * state.item_factor[scene.users.other[0], d] * levels[0]
    out[54] += state.hyper[8]
    for slot in slots:
        for u in range(state.user_grade.shape[0]):
            if has_bit(state.user_words, u, slot):
                out[55] += state.user_grade[u, slot]
                out[56] += (state.user_grade[u, slot] - 1.0) ** 2
        if state.user_grade.shape[0] > 0:
            out[57] += state.user_grade[0, slot] * levels[0]
    for u in range(state.user_scale.size):
        log_scale = math.log(scene.model.scales[state.user_scale[u]])
        out[37] += log_scale
        out[38] += log_scale * log_scale
    out[39] += math.log(scene.model.scales[state.user_scale[0]]) * abs(levels[0] - 2.0)
    for slot in slots:
        for t in range(state.user_weights.shape[1]):
            if t == 0:
                out[43] += state.user_weights[slot, 0]
            else:
                out[44] += state.user_weights[slot, t]
                out[45] += state.user_weights[slot, t] ** 2
                out[46] += state.user_weights[slot, t] * users[slot]
        for t in range(state.item_weights.shape[1]):
            if t == 0:
                out[58] += state.item_weights[slot, 0]
            else:
                out[59] += state.item_weights[slot, t] ** 2
                out[60] += state.item_weights[slot, t] * items[slot]
    for t in range(state.user_offset_weights.size):
        out[47] += state.user_offset_weights[t] * (t == 0)
        out[48] += state.user_offset_weights[t] ** 2
        for u in range(state.user_offset.size):
            out[49] += scene.model.user_offset_traits[u, t] * state.user_offset[u]
    for t in range(state.item_offset_weights.size):
        out[61] += state.item_offset_weights[t] ** 2
        for i in range(rho.size):
            out[62] += scene.model.item_traits[i, t] * rho[i]
    out[40] += state.cutpoints[2]
    out[41] += state.cutpoints[2] ** 2
    out[42] += state.cutpoints[2] * state.cutpoints[3]


@kernel
def fresh_ratings(scene: Scene) -> None:
    """Draw all ratings anew given the parameters."""
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, FRESH_RATINGS, 0), 0)
    inner = scene.state.cutpoints.size - 2
    for user in range(scene.state.user_scale.size):
        noise = scene.state.hyper[0] * scene.model.scales[scene.state.user_scale[user]]
        for j in range(scene.users.ptr[user], scene.users.ptr[user + 1]):
            latent = scene.scores[j] + noise * normal(stream)
            level = 0
            while level < inner and latent > scene.state.cutpoints[level + 1]:
                level += 1
            scene.users.levels[j] = level


compiled_sweep = kernel(sweep_once)


@kernel
def at_sweep(scene: Scene, number: int) -> Scene:
    return Scene(
        scene.users, scene.items, scene.state, scene.model, scene.like, scene.scores, scene.latent,
        scene.tally, scene.key, number, scene.threads,
    )  # fmt: skip


@kernel
def joint_chain(scene: Scene, plan: Plan, forgets: int, n_sweeps: int, out: np.ndarray) -> None:
    """Alternate sweeps with fresh ratings; average the statistics in batches. A block may forget the ratings."""
    per_batch = n_sweeps // out.shape[0]
    for t in range(per_batch * out.shape[0]):
        scene = at_sweep(scene, t)
        if forgets != NOTHING:
            forget_ratings(scene, forgets)
        state, _ = compiled_sweep(scene, plan)
        scene = with_state(scene, state)
        fresh_ratings(scene)
        statistics(scene, out[t // per_batch])
    out /= per_batch


@dataclass(frozen=True)
class Engine:
    """A choice of model switches and moves to be proven."""

    name: str
    priors: Priors
    moves: Moves
    threads: int = 1
    columns: bool = False  # whether users and items have columns of covariates
    sweeps: int = 200_000  # in the full tier
    quick: bool = True  # whether `make test` runs it, with fewer sweeps


BASE = Priors(mass=1.0, item_rate=0.4, effect_sd=1.0, item_offset_sd=0.7, user_offset_sd=0.7)
_ALPHA = Priors(mass=1.0, item_rate=0.4, effect_sd=1.0, item_offset_sd=0.7, user_offsets=True, user_offset_sd=0.7)
_BY_FEATURE = Priors(
    mass=1.0, item_rate=0.4, effect_sd=1.0, item_offset_sd=0.7, item_rate_by_feature=True, learn=("mass",)
)
_NO_RHO = Priors(mass=1.0, item_rate=0.4, effect_sd=1.0, item_offsets=False)
_ALPHA_ONLY = Priors(mass=1.0, item_rate=0.4, effect_sd=1.0, item_offsets=False, user_offsets=True, user_offset_sd=0.7)
_LISTED = Priors(mass=1.0, item_rate=0.4, effect_values=(-1.2, 1.2, 0.5), item_offset_sd=0.7)
_PLAIN = Moves(
    user_scan="serial", collapsed_singletons=0.0, feature_moves=0, complements=False, offset_flips=0.0,
    effect_every=0, noise_slice_every=0, settle=0,
)  # fmt: skip


def _moves(**changes) -> Moves:
    return Moves(**{**_PLAIN.to_dict(), **changes})


_GRADED = replace(BASE, graded=True, effect_sd=0.8, grade_sd=0.6)
_SCALES = replace(BASE, user_scales=True, free_cutpoints=True, learn=("user_scale_sd",))
_MORE = {"graded": True, "effect_sd": 0.8, "grade_sd": 0.6, "user_scales": True, "free_cutpoints": True}
_FULL = replace(_ALPHA, **_MORE).with_everything_learnt()
_FULL_RATES = replace(_ALPHA, item_rate_by_feature=True, **_MORE).with_everything_learnt()
_CHOICES = replace(_ALPHA, graded=True, effect_sd=0.8, grade_sd=0.6, choices=1, choice_sd=0.4)
_FULL_CHOICES = replace(_ALPHA, **_MORE, choices=2, choice_sd=0.3).with_everything_learnt()
_ITEM_CHOICES = replace(_CHOICES, item_choices=True)
_FULL_ITEM_CHOICES = replace(_ALPHA, **_MORE, choices=2, choice_sd=0.3, item_choices=True).with_everything_learnt()
_USER_GRADES = replace(_GRADED, user_grades=True, user_offsets=True)
_FULL_BOTH = replace(_FULL_ITEM_CHOICES, user_grades=True).with_everything_learnt()
_COLUMNS = replace(_ALPHA, **_MORE, choice_sd=0.4)
_ALL = Moves(settle=0, effect_every=2, noise_slice_every=2, feature_moves=1, offset_flips=0.3)

_FEATURES_ONLY = _moves(user_scan="parallel", prior_singletons=False, feature_moves=2)

ENGINES = (
    Engine("serial A, prior singletons, τ | Z", BASE, _PLAIN, sweeps=2_000_000),
    Engine("parallel A", BASE, _moves(user_scan="parallel"), sweeps=2_000_000),
    Engine("collapsed singletons", BASE, _moves(prior_singletons=False, collapsed_singletons=1.0)),
    Engine("feature moves only", BASE, _moves(prior_singletons=False, feature_moves=2)),
    Engine("complements, offset flips", BASE, _moves(complements=True, offset_flips=0.5)),
    Engine("direct effects, τ slice", BASE, _moves(effect_every=1, noise_slice_every=1)),
    Engine("no item offsets", _NO_RHO, _ALL),
    Engine("user offsets", _ALPHA, _ALL, quick=False),
    Engine("user offsets only", _ALPHA_ONLY, _ALL, quick=False),
    Engine("everything learnt", _ALPHA.with_everything_learnt(), _ALL),
    Engine("a rate per feature", _BY_FEATURE, _ALL),
    Engine("listed effects", _LISTED, _ALL, quick=False),
    Engine("graded, private births only", _GRADED, _moves(user_scan="parallel"), quick=False),
    Engine("graded, feature moves only", _GRADED, _moves(prior_singletons=False, feature_moves=2), quick=False),
    Engine("user scales, free cutpoints", _SCALES, _moves(cutpoints_every=1)),
    Engine("the full model", _FULL, _ALL, quick=False),
    Engine("the full model, a rate per feature", _FULL_RATES, _ALL, quick=False),
    Engine("choices, private births only", _CHOICES, _moves(user_scan="parallel"), quick=False),
    Engine("choices, feature moves only", _CHOICES, _FEATURES_ONLY, quick=False),
    Engine("choices, everything", _FULL_CHOICES, _ALL, quick=False),
    Engine("choices of both, private births only", _ITEM_CHOICES, _moves(user_scan="parallel"), quick=False),
    Engine("choices of both, feature moves only", _ITEM_CHOICES, _FEATURES_ONLY, quick=False),
    Engine("choices of both, everything", _FULL_ITEM_CHOICES, _ALL, quick=False),
    Engine("graded users, private births only", _USER_GRADES, _moves(user_scan="parallel"), quick=False),
    Engine(
        "graded users, feature moves only", _USER_GRADES, _moves(prior_singletons=False, feature_moves=2), quick=False
    ),
    Engine("the default model", _FULL_BOTH, _ALL),
    Engine("buffet of items", replace(_ALPHA, item_prior="ibp"), _ALL),
    Engine("buffet of items, graded", replace(_USER_GRADES, item_prior="ibp"), _ALL, quick=False),
    Engine("remainder", replace(_ALPHA, remainder=2, remainder_sd=0.5).with_everything_learnt(), _ALL),
    Engine("columns", _COLUMNS, _ALL, columns=True, quick=False),
    Engine("columns of items, private births only", _COLUMNS, _moves(user_scan="parallel"), columns=True, quick=False),
    Engine("columns beside choices", _FULL_BOTH, _ALL, columns=True, quick=False),
    Engine(
        "everything, table",
        _ALPHA.with_everything_learnt(),
        Moves(**{**_ALL.to_dict(), "table_from": 1}),
        sweeps=50_000,
        quick=False,
    ),
    Engine("everything, 2 threads", _ALPHA.with_everything_learnt(), _ALL, threads=2, quick=False),
)


def forward_means(engine: Engine, n_draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard error of the statistics under the prior."""
    rng = np.random.default_rng(seed)
    total = np.zeros(len(STATISTICS))
    squares = np.zeros(len(STATISTICS))
    for _ in range(n_draws):
        out = np.zeros(len(STATISTICS))
        statistics(draw_scene(engine, rng), out)
        total += out
        squares += out * out
    mean = total / n_draws
    return mean, np.sqrt(np.maximum(squares / n_draws - mean * mean, 0.0) / n_draws)


def draw_scene(engine: Engine, rng: np.random.Generator, seed: int = 0) -> Scene:
    """Draw parameters and ratings from the prior."""
    users, items = pairs(SIZES[0], SIZES[1], N_RATINGS)
    given = columns(SIZES[0], SIZES[1]) if engine.columns else NO_COVARIATES
    traits = known_traits(engine.priors, users, items, SIZES, given)
    parameters, levels = draw_all(engine.priors, users, items, SIZES, rng, traits)
    return scene_of(parameters, engine.priors, engine.moves, (users, items, levels), SIZES[2], (seed, 0), traits)


def start_scene(engine: Engine, seed: int) -> Scene:
    """Return the scene a chain starts from."""
    return draw_scene(engine, np.random.default_rng(seed), seed)._replace(threads=engine.threads)


def geweke_z(engine: Engine, n_sweeps: int, n_forward: int, seed: int = 2) -> np.ndarray:
    """Return the z of every statistic for an engine."""
    mean, error = forward_means(engine, n_forward, seed)
    scene = start_scene(engine, seed)
    batches = np.zeros((BATCHES, len(STATISTICS)))
    joint_chain(scene, build_plan(engine.moves, SIZES[0]), NOTHING, n_sweeps, batches)
    return batch_z(batches, mean, error)
