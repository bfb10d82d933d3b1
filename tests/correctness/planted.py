"""Bugs planted in a sweep, one for each part of the model, which Geweke's test has to see.

Three spoil single blocks of the paper's sweep. The others go with the sweep as it is: before each one a block is
drawn as if there were no ratings, or the sweep is told something wrong about the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from doublefeature._jit import kernel
from doublefeature.config import Moves
from doublefeature.kernels.bits import active_slots, count_members
from doublefeature.kernels.exchanges import complement, user_complement_log_ratio
from doublefeature.kernels.gaussian import update_effects_and_offsets
from doublefeature.kernels.latent import update_latent
from doublefeature.kernels.memberships import update_items, update_users_parallel
from doublefeature.kernels.noise import update_noise_slice
from doublefeature.kernels.renewal import update_prior_singletons
from doublefeature.kernels.scene import Scene, with_state
from doublefeature.kernels.streams import new_stream, seek, tick, uniform
from doublefeature.kernels.sweep import build_plan, close_sweep, prepare
from doublefeature.model.state import Model
from tests.correctness.forgetful import CUTPOINTS, GRADES, NOTHING, OFFSETS, REMAINDER, USER_GRADES
from tests.correctness.geweke import (
    BASE,
    BATCHES,
    ENGINES,
    FRESH_RATINGS,
    SIZES,
    STATISTICS,
    Engine,
    at_sweep,
    forward_means,
    fresh_ratings,
    joint_chain,
    start_scene,
    statistics,
)
from tests.correctness.tiny import batch_z

COMPLEMENT_SIGN, NO_JACOBIAN, STALE_LATENT = 1, 2, 3
MUTATIONS = {"complement sign": COMPLEMENT_SIGN, "τ without Jacobian": NO_JACOBIAN, "stale Z": STALE_LATENT}


@dataclass(frozen=True)
class Planted:
    """A bug: what it is planted in, the block that forgets the ratings, or what the sweep is wrongly told."""

    name: str
    engine: str
    forgets: int = NOTHING
    tell: Callable[[Model], Model] | None = None
    quick: bool = False  # whether few sweeps show it, and `make test` has them run


def _of_others(model: Model) -> Model:
    """Users and items have each other's traits, the first those of the last."""
    sides = ("user_traits", "user_offset_traits", "item_traits")
    return model._replace(**{name: getattr(model, name)[::-1].copy() for name in sides})


def _of_other_items(model: Model) -> Model:
    """Every item has the traits of the one before. (In reverse order a column of numbers only changes its sign.)"""
    return model._replace(item_traits=np.roll(model.item_traits, 1, axis=0))


def _idle_scales(model: Model) -> Model:
    return model._replace(scales=np.ones_like(model.scales))


def _independent(model: Model) -> Model:
    return model._replace(item_buffet=False)


def _sure_spreads(model: Model) -> Model:
    """Every spread is learnt with a shape one too large: the density of σ in place of that of σ²."""
    return model._replace(sd_shape=model.sd_shape + 1.0)


PLANTED = (
    Planted("grades forget the ratings", "graded, private births only", forgets=GRADES, quick=True),
    Planted("users' grades forget the ratings", "graded users, private births only", forgets=USER_GRADES, quick=True),
    Planted("users' scales that do nothing", "user scales, free cutpoints", tell=_idle_scales),
    Planted("cutpoints forget the ratings", "user scales, free cutpoints", forgets=CUTPOINTS, quick=True),
    Planted("the remainder forgets the ratings", "remainder", forgets=REMAINDER),
    Planted("offsets forget the ratings", "user offsets", forgets=OFFSETS),
    Planted("choices of others", "choices of both, private births only", tell=_of_others),
    Planted("columns of other items", "columns", tell=_of_other_items),
    Planted("columns of others", "columns beside choices", tell=_of_others),
    Planted("items of the buffet taken for independent", "buffet of items", tell=_independent),
    Planted("spreads without Jacobian", "the default model", tell=_sure_spreads, quick=True),
)


def planted_z(planted: Planted, n_sweeps: int, n_forward: int, seed: int = 2) -> np.ndarray:
    """Return the z of every statistic for a sweep with this bug."""
    engine = next(one for one in ENGINES if one.name == planted.engine)
    mean, error = forward_means(engine, n_forward, seed)
    scene = start_scene(engine, seed)
    if planted.tell is not None:
        scene = scene._replace(model=planted.tell(scene.model))
        prepare(scene)
    batches = np.zeros((BATCHES, len(STATISTICS)))
    joint_chain(scene, build_plan(engine.moves, SIZES[0]), planted.forgets, n_sweeps, batches)
    return batch_z(batches, mean, error)


@kernel
def wrong_complements(scene: Scene) -> None:
    """Complement moves with the sign of the offsets' part of the ratio flipped."""
    state = scene.state
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, FRESH_RATINGS + 1, 0), 0)
    counts = count_members(state.user_words)
    n_users = state.user_words.shape[0]
    for slot in active_slots(state.active):
        right = user_complement_log_ratio(scene, slot, counts[slot])
        sizes = math.log(counts[slot]) - math.log(max(n_users - counts[slot], 1e-300))
        if math.log(uniform(stream)) < sizes - (right - sizes) and counts[slot] < n_users:
            complement(state.user_words, state.item_words, state, slot, state.item_offset)


@kernel
def mutant_chain(scene: Scene, mutation: int, n_sweeps: int, out: np.ndarray) -> None:
    """The joint chain with one planted bug in its sweep."""
    per_batch = n_sweeps // out.shape[0]
    for t in range(per_batch * out.shape[0]):
        scene = at_sweep(scene, t)
        update_users_parallel(scene)
        scene = with_state(scene, update_prior_singletons(scene))
        update_items(scene)
        if mutation == COMPLEMENT_SIGN:
            wrong_complements(scene)
        update_noise_slice(scene)
        if mutation != STALE_LATENT or t == 0:
            update_latent(scene)
        update_effects_and_offsets(scene)
        close_sweep(scene)
        fresh_ratings(scene)
        statistics(scene, out[t // per_batch])
    out /= per_batch


_PAPER = Engine("the paper's sweep", BASE, Moves())


def mutant_z(mutation: int, n_sweeps: int, n_forward: int, seed: int = 2) -> np.ndarray:
    """Return the z of every statistic for the paper's sweep with a spoilt block (0: none)."""
    mean, error = forward_means(_PAPER, n_forward, seed)
    batches = np.zeros((BATCHES, len(STATISTICS)))
    scene = start_scene(_PAPER, seed)
    if mutation == NO_JACOBIAN:  # of τ² = exp(2 log τ): as if the shape were one larger
        scene = scene._replace(model=scene.model._replace(noise_shape=scene.model.noise_shape + 1.0))
    mutant_chain(scene, mutation, n_sweeps, batches)
    return batch_z(batches, mean, error)
