"""Item offsets that are given stay as they are, and everything else is drawn as if they were known."""

from dataclasses import replace

import numpy as np
import pytest

from doublefeature.config import Moves, Priors
from doublefeature.kernels.bits import active_slots
from doublefeature.kernels.gaussian import effect_normal
from doublefeature.kernels.held import offsets_are_given
from doublefeature.kernels.latent import update_latent
from doublefeature.model.state import EFFECT_SD, NOISE, members
from tests.correctness.geweke import ENGINES
from tests.correctness.held import draw_scene, held_z

BASE = Priors(mass=2.0, item_rate=0.4, effect_sd=1.0, item_offset_sd=0.7)
ALL = Moves(settle=0, effect_every=2, noise_slice_every=2, feature_moves=1, offset_flips=0.3)
DEFAULT = next(engine.priors for engine in ENGINES if engine.name == "the default model")


def with_features(priors, rng):
    """A scene with latent scores and two features or more."""
    while True:
        scene = draw_scene(priors, ALL, rng)
        if scene.state.active.sum() >= 2:
            update_latent(scene)
            return scene


def by_regression(scene):
    """Precision and linear term of the effects, from the full matrix of indicators."""
    slots = np.flatnonzero(scene.state.active)
    users = np.repeat(np.arange(scene.state.user_offset.size), np.diff(scene.users.ptr))
    items = scene.users.other.astype(np.int64)
    x = (members(scene.state.user_words, slots)[users] & members(scene.state.item_words, slots)[items]).astype(float)
    y = scene.latent - scene.model.base - scene.state.item_offset[items]
    weight = scene.state.hyper[NOISE] ** -2
    prior = np.eye(slots.size) * scene.state.hyper[EFFECT_SD] ** -2
    return weight * x.T @ x + prior, weight * x.T @ y


def test_effects_given_offsets_are_a_regression(rng):
    """By users the sums are right; by items, as where items have no offsets, ρ would be left out."""
    worst, forgotten = 0.0, 0.0
    for _ in range(20):
        scene = with_features(BASE, rng)
        assert offsets_are_given(scene)
        precision, linear = by_regression(scene)
        slots = active_slots(scene.state.active)
        found, x = effect_normal(scene, scene.users, slots)
        worst = max(worst, np.abs(np.tril(precision) - found).max(), np.abs(linear - x).max())
        forgotten = max(forgotten, np.abs(linear - effect_normal(scene, scene.items, slots)[1]).max())
    assert worst < 1e-9
    assert forgotten > 0.1


@pytest.mark.parametrize(
    "priors",
    [
        pytest.param(BASE, id="paper"),
        pytest.param(replace(BASE, user_offsets=True, user_offset_sd=0.7), id="user offsets", marks=pytest.mark.slow),
        pytest.param(DEFAULT, id="the default model"),
    ],
)
def test_sweeps_keep_the_joint_distribution_given_offsets(priors):
    assert np.abs(held_z(priors, ALL, 10_000, 2_000)).max() < 4


def test_forgotten_offsets_are_seen():
    assert np.abs(held_z(BASE, Moves(), 10_000, 2_000, forget=True)).max() > 8
