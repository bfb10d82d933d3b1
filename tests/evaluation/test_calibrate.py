"""The ordered probit on top of point predictions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from doublefeature.errors import RatingsError, SettingsError
from doublefeature.evaluation import calibrate
from doublefeature.evaluation.calibrate import fit_calibration

CUTS = np.array([-1.2, -0.3, 0.4, 1.6])


def simulate(rng, n, slope=1.7):
    points = rng.normal(3.5, 0.6, n)
    latent = slope * (points - 3.5) + rng.standard_normal(n)
    return points, (latent[:, None] > CUTS).sum(axis=1)


def log_likelihood(cuts, slope, points, levels):
    ends = np.concatenate([[-np.inf], cuts, [np.inf]])
    return np.log(norm.cdf(ends[levels + 1] - slope * points) - norm.cdf(ends[levels] - slope * points)).sum()


class TestFit:
    def test_finds_the_largest_likelihood(self, rng):
        points, levels = simulate(rng, 800)
        found = fit_calibration(points, levels, 5)

        def loss(x):
            return -log_likelihood(np.cumsum([x[0], *np.exp(x[1:4])]), x[4], points, levels)

        start = [*np.append([4.0], np.log([1.0, 1.0, 1.0])), 1.0]
        best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 10_000, "fatol": 1e-9, "xatol": 1e-9})
        mine = -log_likelihood(found.cutpoints[1:-1], found.slope, points, levels)
        assert mine < best.fun + 0.01
        assert found.slope == pytest.approx(best.x[4], rel=0.02)

    def test_recovers_the_truth(self, rng):
        points, levels = simulate(rng, 40_000)
        found = fit_calibration(points, levels, 5)
        assert found.slope == pytest.approx(1.7, abs=0.05)
        assert found.cutpoints[1:-1] - found.slope * 3.5 == pytest.approx(CUTS, abs=0.05)

    def test_probabilities(self, rng):
        points, levels = simulate(rng, 3000)
        found = fit_calibration(points, levels, 5)
        proba = found.proba(points)
        assert proba.sum(axis=1) == pytest.approx(np.ones(3000))
        ends = found.cutpoints
        slow = np.diff(norm.cdf(ends - found.slope * points[:, None]), axis=1)
        assert proba == pytest.approx(slow, abs=1e-12)
        assert proba.mean(axis=0) == pytest.approx(np.bincount(levels) / 3000, abs=0.01)

    def test_derivatives_are_those_of_the_log_likelihood(self, rng):
        points, levels = simulate(rng, 60)
        points, weights, at = points - 3.5, rng.random(60), np.array([-1.0, -0.2, 0.5, 1.4, 1.1])
        gradient, bend = calibrate._derivatives(at, points, levels, weights)
        h = 1e-5
        for k, step in enumerate(h * np.eye(5)):
            ends = [calibrate._log_likelihood(at + sign * step, points, levels, weights) for sign in (1, -1)]
            assert gradient[k] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)
            sides = [calibrate._derivatives(at + sign * step, points, levels, weights)[0] for sign in (1, -1)]
            assert -bend[k] == pytest.approx((sides[0] - sides[1]) / (2 * h), rel=1e-5, abs=1e-6)

    def test_a_wrong_curvature_still_climbs_to_the_top(self, rng, monkeypatch):
        points, levels = simulate(rng, 500)
        right = fit_calibration(points, levels, 5)
        honest = calibrate._derivatives
        monkeypatch.setattr(calibrate, "_derivatives", lambda *a: (honest(*a)[0], 0.4 * honest(*a)[1]))
        damped = fit_calibration(points, levels, 5)
        assert damped.slope == pytest.approx(right.slope, rel=1e-3)

    def test_a_wrong_gradient_is_seen(self, rng, monkeypatch):
        points, levels = simulate(rng, 500)
        right = fit_calibration(points, levels, 5)
        honest = calibrate._derivatives
        monkeypatch.setattr(calibrate, "_derivatives", lambda *a: (honest(*a)[0] * [1, 1, 1, 1, 0], honest(*a)[1]))
        assert abs(fit_calibration(points, levels, 5).slope - right.slope) > 0.05


class TestHardData:
    @pytest.mark.parametrize(
        ("points", "levels", "n_levels"),
        [
            ([3.0], [2], 5),
            ([1.0, 2.0], [0, 1], 2),
            ([2.0, 2.0, 2.0], [0, 1, 1], 3),
            (list(range(20)), [0] * 10 + [4] * 10, 5),
            ([0.0, 1e9], [1, 0], 2),
            ([3.0] * 50, [3] * 50, 10),
        ],
    )
    def test_gives_probabilities(self, points, levels, n_levels):
        found = fit_calibration(np.array(points, float), np.array(levels), n_levels)
        assert (np.diff(found.cutpoints[1:-1]) > 0).all()
        proba = found.proba(np.array([*points, min(points) - 1.0, max(points) + 1.0]))
        assert np.isfinite(proba).all()
        assert proba.sum(axis=1) == pytest.approx(np.ones(len(points) + 2))
        assert proba[np.arange(len(points)), levels].min() > 1 / 2 / n_levels or len(points) < 4

    def test_a_predictor_that_knows_nothing_gets_the_shares_of_levels(self, rng):
        levels = rng.integers(0, 3, 900)
        proba = fit_calibration(np.full(900, 2.0), levels, 3).proba(np.array([2.0]))[0]
        assert proba == pytest.approx(np.bincount(levels) / 900, abs=2e-3)

    @pytest.mark.parametrize(
        ("points", "levels", "problem"),
        [
            ([1.0, np.nan], [0, 1], SettingsError),
            ([1.0], [0, 1], SettingsError),
            ([], [], SettingsError),
            ([1.0, 2.0], [0, 5], RatingsError),
        ],
    )
    def test_refusals(self, points, levels, problem):
        with pytest.raises(problem):
            fit_calibration(np.array(points, float), np.array(levels, int), 5)
