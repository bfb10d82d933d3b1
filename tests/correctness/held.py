"""Sweeps with item offsets held: Geweke's joint test given ρ, whose prior and spread are then no part of the model."""

from __future__ import annotations

import numpy as np

from doublefeature.config import Moves, Priors
from doublefeature.inference.second_stage import hold_offsets
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.sweep import build_plan, prepare
from doublefeature.model.generative import base_of, draw_levels
from tests.correctness.forgetful import NOTHING
from tests.correctness.geweke import BATCHES, N_RATINGS, SIZES, STATISTICS, joint_chain, statistics
from tests.correctness.planted import mutant_chain
from tests.correctness.tiny import batch_z, draw_all, pairs, scene_of

HELD = np.array([0.9, -0.7, 0.4, -1.1, 0.6])
"""The offsets given."""
_ABOUT_OFFSETS = [STATISTICS.index(name) for name in ("σ_ρ", "ε²")]


def draw_scene(priors: Priors, moves: Moves, rng, stream: tuple[int, int] = (0, 0)) -> Scene:
    """Return a scene of parameters from the prior and ratings given them, item offsets as given."""
    users, items = pairs(SIZES[0], SIZES[1], N_RATINGS)
    parameters, _ = draw_all(priors, users, items, SIZES, rng)
    parameters.item_offset = HELD.copy()
    scores = parameters.scores(users, items, base_of(priors, SIZES[2]))
    levels = draw_levels(scores, parameters.noise_of(users), parameters.cutpoints, rng)
    scene = hold_offsets(scene_of(parameters, priors, moves, (users, items, levels), SIZES[2], stream))
    prepare(scene)
    return scene


def held_z(priors: Priors, moves: Moves, n_sweeps: int, n_forward: int, seed: int = 2, *, forget: bool = False):
    """Return the z of every statistic that is not about the offsets' own prior.

    `forget` plants a bug: effects are drawn by the block that takes absent offsets for zero.
    """
    rng = np.random.default_rng(seed)
    draws = np.zeros((n_forward, len(STATISTICS)))
    for row in draws:
        statistics(draw_scene(priors, Moves(), rng), row)
    scene = draw_scene(priors, moves, rng, (seed, 0))
    batches = np.zeros((BATCHES, len(STATISTICS)))
    if forget:
        mutant_chain(scene, 0, n_sweeps, batches)
    else:
        joint_chain(scene, build_plan(moves, SIZES[0]), NOTHING, n_sweeps, batches)
    assert np.array_equal(scene.state.item_offset, HELD)
    z = batch_z(batches, draws.mean(axis=0), draws.std(axis=0) / np.sqrt(n_forward))
    z[_ABOUT_OFFSETS] = 0.0
    return z
