"""The sampler where the answer is known in closed form, by quadrature, or from the prior."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import ks_2samp

from doublefeature.config import Moves
from tests.correctness.limits import (
    EVERY,
    SUMMARIES,
    dense_levels_z,
    no_data_priors,
    one_item_z,
    prior_summaries,
    share_with_features,
    without_data,
)
from tests.correctness.tiny import batch_z

SERIAL = Moves(user_scan="serial", settle=0, prior_singletons=False, noise_slice_every=1)


@cache
def _chain(moves):
    return without_data(1_500, 20, seed=7, moves=moves)


def _largest_gap(draws, truth):
    """Return the largest |z| of means and squares and the smallest p value over all summaries."""
    z, p = [], []
    for column in range(len(SUMMARIES)):
        x, y = draws[:, column], truth[:, column]
        if column < 3:
            for power in (1, 2):
                error = np.std(y**power) / np.sqrt(y.size)
                batches = (x**power).reshape(50, -1).mean(axis=1)[:, None]
                z.append(abs(batch_z(batches, np.array([np.mean(y**power)]), error))[0])
        else:
            p.append(ks_2samp(x[~np.isnan(x)], y[~np.isnan(y)]).pvalue)
    return max(z), min(p)


@pytest.mark.parametrize("user_offsets", [False, True])
def test_narrow_levels_give_the_closed_form_normal(user_offsets):
    assert np.abs(dense_levels_z(user_offsets, 50_000, seed=5)).max() < 4.0


def test_narrow_levels_reject_a_wrong_covariance():
    assert np.abs(dense_levels_z(False, 50_000, seed=5, shrink=0.97)).max() > 4.0


def test_one_item_matches_quadrature():
    assert np.abs(one_item_z(50_000, seed=6)).max() < 4.0


def test_one_item_rejects_a_wrong_noise_prior():
    assert np.abs(one_item_z(50_000, seed=6, shape_error=0.2)).max() > 4.0


@pytest.mark.parametrize("moves", [EVERY, SERIAL], ids=["every move", "serial"])
def test_without_ratings_draws_are_the_prior(moves):
    z, p = _largest_gap(_chain(moves), prior_summaries(6_000, seed=8))
    assert z < 4.0
    assert p > 1e-3


def test_without_ratings_a_wrong_prior_is_rejected():
    wrong = replace(no_data_priors(), mass=1.4, item_rate=0.5)
    z, p = _largest_gap(_chain(EVERY), prior_summaries(6_000, seed=8, priors=wrong))
    assert z > 4.0
    assert p < 1e-3


def test_hardly_any_mass_means_no_features():
    assert share_with_features(1e-6, 5_000, seed=9) < 1e-3
    assert share_with_features(1.0, 5_000, seed=9) > 0.1
