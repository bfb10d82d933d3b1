from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from doublefeature.model.ordinal import (
    level_cutpoints,
    level_log_probability,
    level_log_slopes,
    level_probabilities,
    log_normal_cdf,
    log_normal_interval,
    scaled_erfc,
)
from tests.correctness.numerics import exact_level_slopes, worst_interval_error

EPSILON = np.finfo(float).eps


def plain_log_interval(low: float, high: float) -> float:
    probability = ndtr(high) - ndtr(low)
    return math.log(probability) if probability > 0.0 else -math.inf


class TestLogNormalInterval:
    """Relative error of the logarithm against fifty digits; the bar of 1e-12 is five times the worst seen.

    What is left comes from rounding x/√2 once: that alone moves erfc by x² ε, or 1.5e-13 at x = 37.
    """

    def test_fifty_digits(self):
        assert worst_interval_error(4_000) < 1e-12

    @pytest.mark.slow
    def test_fifty_digits_on_many_points(self):
        assert worst_interval_error(100_000, seed=1) < 1e-12

    def test_plain_difference_is_caught(self):
        assert worst_interval_error(80, plain_log_interval) > 1e-6

    def test_slightly_wrong_function_is_caught(self):
        assert worst_interval_error(80, lambda low, high: log_normal_interval(low, high) * (1 + 2e-12)) > 1e-12

    def test_whole_line(self):
        assert log_normal_interval(-math.inf, math.inf) == 0.0

    @pytest.mark.parametrize("x", [-700.0, -40.0, -1.0, -0.3, 0.0, 0.3, 1.0, 40.0])
    def test_half_lines_are_the_cdf(self, x):
        assert log_normal_interval(-math.inf, x) == log_normal_cdf(x) == log_normal_interval(-x, math.inf)
        assert log_normal_cdf(x) == pytest.approx(log_ndtr(x), rel=1e-13, abs=1e-300)

    @pytest.mark.parametrize("x", [0.0, 1e-9, 0.5, 5.999, 6.0, 11.999, 12.0, 100.0, 1e10])
    def test_scaled_erfc_is_smooth_where_branches_meet(self, x):
        """The derivative of exp(x²) erfc(x) is 2x exp(x²) erfc(x) − 2/√π; steps of 1e-9 must follow it."""
        here, there = scaled_erfc(x), scaled_erfc(x + 1e-9)
        slope = 2.0 * x * here - 2.0 / math.sqrt(math.pi)
        rounding = 8.0 * EPSILON * here
        assert abs(there - here - slope * 1e-9) < rounding + 1e-9 * 4.0 * EPSILON * x * here + 2e-18


class TestLevelLogSlopes:
    """Derivatives against differences at fifty digits.

    Each density over the probability is the exponential of a number of size x² + |log P|, so its relative
    error is a few ε times that; `rounding_bounds` carries this through the two formulas.
    """

    @pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 1.5])
    @pytest.mark.parametrize("n_levels", [2, 5])
    def test_fifty_digits(self, scale, n_levels):
        cutpoints = level_cutpoints(n_levels)
        for score in np.linspace(-14.0, 19.0, 12).tolist():
            for level in range(n_levels):
                found = level_log_slopes(level, score, scale, cutpoints)
                exact = [float(x) for x in exact_level_slopes(level, score, scale, cutpoints)]
                bounds = rounding_bounds(level, score, scale, cutpoints, exact)
                for got, wanted, bound in zip(found, exact, bounds, strict=True):
                    assert abs(got - wanted) <= bound, (level, score, scale)

    def test_near_the_cutpoints_to_twelve_digits(self):
        cutpoints = level_cutpoints(5)
        for score in np.linspace(-1.0, 6.0, 8).tolist():
            for level in range(5):
                found = level_log_slopes(level, score, 1.0, cutpoints)
                exact = [float(x) for x in exact_level_slopes(level, score, 1.0, cutpoints)]
                assert found == pytest.approx(exact, rel=1e-12, abs=1e-12)

    @pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
    @pytest.mark.parametrize("score", [-50.0, 50.0])
    @pytest.mark.parametrize("n_levels", [2, 5, 10])
    def test_extremes_stay_finite(self, scale, score, n_levels):
        cutpoints = level_cutpoints(n_levels)
        for level in range(n_levels):
            assert np.isfinite(level_log_slopes(level, score, scale, cutpoints)).all()


def rounding_bounds(level, score, scale, cutpoints, exact):
    value, first, _ = exact
    slope_bound = bend_bound = 0.0
    for end in cutpoints[level : level + 2]:
        x = (end - score) / scale
        if math.isfinite(x):
            ratio = math.exp(-0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - value)
            error = 4.0 * EPSILON * (1.0 + x * x + abs(value)) * ratio
            slope_bound += error / scale
            bend_bound += abs(x) * error / scale**2
    floor = 1e-300
    return (
        1e-12 * abs(value) + floor,
        slope_bound + floor,
        bend_bound + 2.0 * abs(first) * slope_bound + floor,
    )


class TestLevelProbabilities:
    @pytest.mark.parametrize("n_levels", [2, 3, 5, 10])
    def test_cutpoints(self, n_levels):
        cutpoints = level_cutpoints(n_levels)
        assert cutpoints.tolist() == [-math.inf, *range(1, n_levels), math.inf]

    @pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 1e3])
    def test_sum_to_one(self, scale):
        """L numbers, each right to 1e-12 of its logarithm, which is below 800 wherever it counts."""
        scores = np.linspace(-50.0, 50.0, 401)
        table = level_probabilities(scores, scale, level_cutpoints(5))
        assert table.shape == (401, 5)
        assert ((table >= 0.0) & (table <= 1.0)).all()
        assert np.abs(table.sum(axis=-1) - 1.0).max() < 1e-12

    def test_shapes_and_scales_follow_the_scores(self):
        scores, scales = np.arange(6.0).reshape(2, 3), np.linspace(0.5, 1.0, 6).reshape(2, 3)
        cutpoints = level_cutpoints(4)
        table = level_probabilities(scores, scales, cutpoints)
        assert table.shape == (2, 3, 4)
        wanted = math.exp(level_log_probability(2, scores[1, 2], scales[1, 2], cutpoints))
        assert table[1, 2, 2] == wanted
        assert (level_probabilities(scores[0], 0.7, cutpoints) == level_probabilities(scores, 0.7, cutpoints)[0]).all()
