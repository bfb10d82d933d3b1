"""Blocks of the sweep that only draw, against laws read off the joint density; each with planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from doublefeature.config import Moves, Priors
from doublefeature.kernels.grades import update_grades_and_offsets
from doublefeature.kernels.remainder import update_remainder
from doublefeature.kernels.scales import update_user_scales
from doublefeature.kernels.streams import USER_SCALES
from doublefeature.kernels.sweep import build_scene
from doublefeature.kernels.traits import update_traits
from doublefeature.kernels.user_grades import update_user_grades
from doublefeature.model.generative import scale_log_weights
from doublefeature.model.parameters import Parameters, parameters_of, state_of
from doublefeature.model.state import SCALE_SD
from tests.correctness.cases import DIRECT, Case, random_case, random_graded_priors, random_priors
from tests.correctness.conditionals import fresh_scene, replayed
from tests.correctness.gibbs import (
    Bug,
    Place,
    graded_flips,
    grades_and_offsets,
    item_places,
    item_z,
    moments_z,
    no_bug,
    offset_weights,
    remainders,
    repeat,
    scale_z,
    user_grades,
    user_places,
)
from tests.correctness.graded import normal_log_density
from tests.correctness.tiny import ratings_of, scene_of

EXACT, MOST_Z = 1e-9, 4.5
CLEAR, CLEAR_Z = 0.1, 8.0
"""What a planted bug has to show at least."""

Draw = Callable[[np.random.Generator], Priors]


def log_density(values: np.ndarray, mean: np.ndarray | float, sd: float) -> float:
    return float(normal_log_density(values, mean, sd).sum())


def with_user_grades(rng: np.random.Generator) -> Priors:
    sd = rng.uniform(0.3, 0.9)
    return replace(random_graded_priors(rng), user_grades=True, user_grade_sd=sd, remainder=int(rng.integers(3)))


def with_remainder(rng: np.random.Generator) -> Priors:
    priors = random_graded_priors(rng)
    if rng.random() < 0.5:
        priors = replace(random_priors(rng), user_scales=bool(rng.random() < 0.5))
    return replace(priors, remainder=int(rng.integers(1, 4)), remainder_sd=rng.uniform(0.2, 0.8))


def graded(rng: np.random.Generator) -> Priors:
    return replace(random_graded_priors(rng), remainder=int(rng.integers(3)))


def with_traits(rng: np.random.Generator) -> Priors:
    priors = random_graded_priors(rng)
    while not priors.choices:
        priors = random_graded_priors(rng)
    return priors


def independent_items(rng: np.random.Generator) -> Priors:
    priors = graded(rng)
    while priors.item_prior == "ibp":
        priors = graded(rng)
    return priors


def with_scales(rng: np.random.Generator) -> Priors:
    priors = replace(random_priors(rng), user_scales=True, user_scale_sd=rng.uniform(0.2, 0.6))
    return replace(priors, learn=tuple(dict.fromkeys([*priors.learn, "user_scale_sd"])))


def buffet(rng: np.random.Generator) -> Priors:
    scales = bool(rng.random() < 0.5)
    return replace(random_priors(rng), item_prior="ibp", item_rate_by_feature=False, learn=(), user_scales=scales)


def cases(draw_priors: Draw, n_cases: int, seed: int = 12) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for _ in range(n_cases):
        yield random_case(rng, draw_priors=draw_priors)


def with_covariates(case: Case) -> Case:
    """The case with a column more that shifts user offsets alone."""
    case.traits = case.traits._replace(user_offsets=case.rng.standard_normal((case.sizes[0], 1)))
    weights = np.append(case.parameters.user_offset_weights, 0.1)
    case.parameters = replace(case.parameters, user_offset_weights=weights)
    data = ratings_of(*case.observed, *case.sizes, case.n_levels).arrays
    state = state_of(case.parameters, case.priors, case.n_levels)
    stream = (int(case.rng.integers(2**31)), 0)
    case.scene = build_scene(data, case.priors, Moves(table_from=DIRECT), state, stream, case.traits)
    return case


def grades_around_zero(case: Case, p: Parameters) -> float:
    held = p.user_grade[p.user_members]
    return log_density(held, 0.0, p.user_grade_sd) - log_density(held, 1.0, p.user_grade_sd)


def factors_of_spread_one(case: Case, p: Parameters) -> float:
    both = np.concatenate([p.user_factor, p.item_factor])
    return log_density(both, 0.0, 1.0) - log_density(both, 0.0, p.remainder_sd)


def effects_around_zero(case: Case, p: Parameters) -> float:
    effects = p.item_effect[p.item_members]
    centres = np.broadcast_to(p.effect, p.item_members.shape)[p.item_members]
    return log_density(effects, 0.0, p.grade_sd) - log_density(effects, centres, p.grade_sd)


def offsets_without_traits(case: Case, p: Parameters) -> float:
    if not case.priors.item_offsets:
        return 0.0
    mean = case.traits.items @ p.item_offset_weights
    return log_density(p.item_offset, 0.0, p.item_sd) - log_density(p.item_offset, mean, p.item_sd)


def weights_of_spread_one(case: Case, p: Parameters) -> float:
    both = np.concatenate([p.user_offset_weights, p.item_offset_weights])
    return log_density(both, 0.0, 1.0) - log_density(both, 0.0, case.priors.trait_offset_sd)


def even_odds(case: Case, p: Parameters) -> float:
    inside = p.item_members
    return -float(np.where(inside, np.log(p.item_rate), np.log1p(-p.item_rate)).sum())


def even_scales(case: Case, p: Parameters) -> float:
    return -float(scale_log_weights(p.scales, p.scale_sd)[p.user_scale].sum())


def no_jacobian(case: Case, p: Parameters) -> float:
    return -2.0 * float(np.log(p.scale_sd))


def even_sizes(case: Case, p: Parameters) -> float:
    """The buffet's weight 1/j of a column with j items left out."""
    return float(np.log(p.item_members.sum(axis=0)).sum())


BLOCKS = {
    "user grades": (user_grades, with_user_grades, update_user_grades),
    "remainder": (remainders, with_remainder, update_remainder),
    "grades and offsets": (grades_and_offsets, graded, update_grades_and_offsets),
    "offset weights": (offset_weights, with_traits, update_traits),
}
BUGS = [
    ("user grades", grades_around_zero),
    ("remainder", factors_of_spread_one),
    ("grades and offsets", effects_around_zero),
    ("grades and offsets", offsets_without_traits),
    ("offset weights", weights_of_spread_one),
]


def worst_error(name: str, bug: Bug = no_bug) -> float:
    """Return how far any draw, whitened by its law, is from the random numbers it was made from."""
    block, draw_priors, _ = BLOCKS[name]
    made = [with_covariates(case) if name == "offset weights" else case for case in cases(draw_priors, 60)]
    pairs = [pair for case in made for pair in block(case, bug)]
    assert len(pairs) >= len(made)
    return max(float(np.abs(drawn - numbers).max()) for drawn, numbers in pairs)


@pytest.mark.parametrize("name", BLOCKS)
def test_draws_are_their_law_of_the_numbers_used(name):
    assert worst_error(name) < EXACT


@pytest.mark.parametrize(("name", "bug"), BUGS)
def test_another_law_is_rejected(name, bug):
    assert worst_error(name, bug) > CLEAR


FULL = Priors(
    mass=1.5, item_offset_sd=0.7, user_offsets=True, user_offset_sd=0.6, noise_rate=3.0, graded=True, grade_sd=0.5,
    user_grades=True, user_scales=True, remainder=2, choices=1, item_choices=True,
)  # fmt: skip


def settled_case(seed: int) -> Case:
    """A case of the full model in which all items belong to every feature, and are sure to stay there."""
    case = next(case for case in cases(lambda _: FULL, 100, seed) if case.parameters.user_members[0].sum() > 1)
    p = case.parameters
    p.item_effect = np.where(p.item_members, p.item_effect, p.effect)
    p.item_members[:] = True
    p.item_weights[:, 0] = 200.0
    p.item_offset_weights = np.sign(case.traits.items[0])
    case.scene = scene_of(p, case.priors, Moves(table_from=DIRECT), case.observed, case.n_levels, (seed, 0))
    return case


def places_in(case: Case, name: str) -> list[Place]:
    """The numbers of one row that a block draws together."""
    p = case.parameters
    return {
        "user grades": user_places(p, FULL, 0),
        "remainder": [("user_factor", (0, d)) for d in range(FULL.remainder)],
        "grades and offsets": item_places(p, FULL, 0, np.arange(p.n_features)),
        "offset weights": [("user_offset_weights", (t,)) for t in range(p.user_offset_weights.size)],
    }[name]


@pytest.mark.parametrize(("name", "bug"), BUGS)
def test_repeated_draws_have_mean_and_covariance(name, bug):
    case = settled_case(21)
    places = places_in(case, name)
    trial, draws = repeat(case, BLOCKS[name][2], places, 3_000)
    assert np.abs(moments_z(trial.law(case.parameters, places), draws)).max() < MOST_Z
    trial.bug = bug
    assert np.abs(moments_z(trial.law(case.parameters, places), draws)).max() > CLEAR_Z


def wrong_flips(bug: Bug) -> float:
    """Return the share of memberships that came out otherwise than the reference says."""
    flips = [flip for case in cases(independent_items, 40) for flip in graded_flips(case, bug)]
    return float(np.mean([(number < chance) != inside for chance, number, inside in flips]))


def test_graded_memberships_have_their_odds():
    assert wrong_flips(no_bug) == 0.0
    assert wrong_flips(even_odds) > 0.05


def worst_scale_z(bug: Bug) -> float:
    return max(abs(z) for case in cases(with_scales, 3) for z in scale_z(case, 3_000, bug))


def test_scales_have_their_frequencies():
    assert worst_scale_z(no_bug) < MOST_Z
    assert worst_scale_z(even_scales) > CLEAR_Z


def spread_step(case: Case, bug: Bug) -> float:
    """How far a step of log σ_v, given the multiples just drawn, ends from where the density of σ_v² takes it."""
    scene = fresh_scene(case)
    update_user_scales(scene)
    after = parameters_of(scene.state, scaled=True)
    here = case.parameters.scale_sd
    number, u = replayed(scene, USER_SCALES, 1, 0, np.array([1, 0], np.uint8))
    both = [here, here * exp(0.3 * number)]
    tries = [replace(after, scale_sd=sd) for sd in both]
    logs = [case.density(p) + bug(case, p) + 2.0 * log(p.scale_sd) for p in tries]
    return abs(scene.state.hyper[SCALE_SD] - both[log(u) < logs[1] - logs[0]])


def test_spread_of_scales_walks_by_its_density():
    assert max(spread_step(case, no_bug) for case in cases(with_scales, 60)) < EXACT
    assert max(spread_step(case, no_jacobian) for case in cases(with_scales, 60)) > CLEAR


def worst_item_z(bug: Bug) -> float:
    """Over cases with one or two features, and few enough items to list all their sets."""
    few = [case for case in cases(buffet, 60) if 3 <= case.sizes[1] <= 4 and 1 <= case.parameters.n_features <= 2]
    return max(float(np.abs(item_z(case, 5_000, bug)).max()) for case in few[:4])


def test_items_of_the_buffet_have_their_law():
    assert worst_item_z(no_bug) < MOST_Z
    assert worst_item_z(even_sizes) > CLEAR_Z
