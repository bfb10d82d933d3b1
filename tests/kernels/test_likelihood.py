"""The table of level probabilities against the direct formula.

Cubic pieces on steps of h = τ/32 fitted to value and slope are wrong by at most h⁴/384 times the fourth
derivative, 2.5e-9 times its size in units of τ; that size is below 0.4 for a normal interval, hence 1e-9 seen
and 1e-8 asked.
"""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature._jit import kernel
from doublefeature.config import Priors
from doublefeature.kernels.likelihood import Likelihood, log_probability, new_likelihood, refresh, slopes, table_pays
from doublefeature.model.ordinal import level_log_slopes
from doublefeature.model.state import build_model, empty_state

SCORES = np.linspace(-14.0, 19.0, 5001)
NOISES = [0.2, 0.21, 0.35, 0.5, 0.77, 1.0, 1.25, 1.5]


@kernel
def fill_from_table(like: Likelihood, scale: int, scores: np.ndarray, out: np.ndarray) -> None:
    for level in range(out.shape[0]):
        for j in range(scores.size):
            first, second = slopes(like, scale, level, scores[j])
            out[level, j, 0] = log_probability(like, scale, level, scores[j])
            out[level, j, 1] = first
            out[level, j, 2] = second


@kernel
def fill_directly(like: Likelihood, scale: int, scores: np.ndarray, out: np.ndarray) -> None:
    for level in range(out.shape[0]):
        for j in range(scores.size):
            value, first, second = level_log_slopes(level, scores[j], like.noise[scale], like.cutpoints)
            out[level, j, 0] = value
            out[level, j, 1] = first
            out[level, j, 2] = second


def likelihood_at(noise: float, n_levels: int, *, with_table: bool = True, scales=(1.0,)) -> Likelihood:
    priors = Priors(noise_scale=noise)
    model = build_model(priors, 3, 2, n_levels)._replace(scales=np.array(scales))
    like = new_likelihood(n_levels, len(scales), with_table)
    refresh(like, empty_state(priors, 3, 2, n_levels), model)
    return like


def filled(fill, like: Likelihood, scores: np.ndarray = SCORES, scale: int = 0) -> np.ndarray:
    """Return log probability, slope and curvature, shaped (levels, scores, 3)."""
    out = np.empty((like.cutpoints.size - 1, scores.size, 3))
    fill(like, scale, scores, out)
    return out


def table_error(like: Likelihood, scale: int = 0) -> np.ndarray:
    """Return the largest difference of value, slope and curvature between table and formula."""
    gap = filled(fill_from_table, like, scale=scale) - filled(fill_directly, like, scale=scale)
    return np.abs(gap).max(axis=(0, 1))


class TestTable:
    @pytest.mark.parametrize("noise", NOISES)
    @pytest.mark.parametrize("n_levels", [2, 5, 10])
    def test_agrees_with_the_formula(self, noise, n_levels):
        like = likelihood_at(noise, n_levels)
        assert like.grid[0, 2] > 0
        value, slope, curvature = table_error(like)
        assert value < 1e-8
        assert slope * noise < 1e-3
        assert curvature * noise**2 < 1e-3

    @pytest.mark.parametrize("noise", [0.9, 9.0])
    def test_many_levels_have_short_tables(self, noise):
        like = likelihood_at(noise, 100, scales=(0.5, 1.0, 2.0))
        assert 0 < like.grid[:, 2].max() <= max(17 * 32 / (0.5 * noise), 2 * 6 * 32 + 200) + 40
        assert table_error(like, 1)[0] < 1e-8

    @pytest.mark.parametrize("noise", [0.2, 1.5])
    def test_check_sees_a_stale_table(self, noise):
        """The planted bug: a table that was filled for another noise, one part in a million away."""
        like = likelihood_at(noise, 5)
        like.noise[0] *= 1.0 + 1e-6
        assert table_error(like)[0] > 1e-8

    def test_every_scale_has_its_table(self):
        like = likelihood_at(0.5, 5, scales=(0.7, 1.0, 1.6))
        assert like.noise.tolist() == pytest.approx([0.35, 0.5, 0.8])
        for scale in range(3):
            assert table_error(like, scale)[0] < 1e-8

    def test_refreshing_leaves_nothing_behind(self):
        priors = Priors(noise_scale=0.3)
        model, state = build_model(priors, 3, 2, 5), empty_state(priors, 3, 2, 5)
        like = new_likelihood(5, 1, True)
        for noise in (1e-3, 0.3, 1.2, 0.25, 1e-3, 0.9):
            state.hyper[0] = noise
            state.cutpoints[1:-1] = np.array([1.0, 1.7, 3.1, 4.0]) + noise
            refresh(like, state, model)
            assert (like.cutpoints == state.cutpoints).all()
            assert table_error(like)[0] < 1e-8

    def test_scores_off_the_table_use_the_formula(self):
        like = likelihood_at(0.7, 5)
        far = np.array([-50.0, -15.001, 20.001, 50.0])
        assert (filled(fill_from_table, like, far) == filled(fill_directly, like, far)).all()

    def test_ends_of_the_table(self):
        like = likelihood_at(0.7, 5)
        low, per_step, cells = like.grid[0]
        ends = np.array([low, low + cells / per_step])
        around = np.concatenate([ends, np.nextafter(ends, -np.inf), np.nextafter(ends, np.inf)])
        gap = filled(fill_from_table, like, around) - filled(fill_directly, like, around)
        assert np.abs(gap[..., 0]).max() < 1e-8

    @pytest.mark.parametrize(
        ("levels", "scales", "ratings", "pays"), [(5, 9, 2000, 1), (5, 1, 1999, 0), (100, 9, 9000, 0)]
    )
    def test_pays_where_there_are_ratings_enough(self, levels, scales, ratings, pays):
        assert table_pays(levels, scales, ratings, table_from=2000) == bool(pays)

    def test_without_a_table(self):
        like = likelihood_at(0.7, 5, with_table=False)
        assert like.cells.size == 0
        assert (filled(fill_from_table, like) == filled(fill_directly, like)).all()


@pytest.mark.parametrize("noise", [1e-3, 1e3])
@pytest.mark.parametrize("n_levels", [2, 5, 10])
@pytest.mark.parametrize("with_table", [True, False])
def test_extremes_stay_finite(noise, n_levels, with_table):
    like = likelihood_at(noise, n_levels, with_table=with_table)
    scores = np.array([-50.0, -14.0, 0.0, 1.0, 1.5, 9.0, 19.0, 50.0])
    found = filled(fill_from_table, like, scores)
    assert np.isfinite(found).all()
    assert (found[..., 0] <= 0.0).all()
