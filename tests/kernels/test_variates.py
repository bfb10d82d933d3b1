"""Scalar draws against their exact laws.

Continuous laws by Kolmogorov–Smirnov, discrete ones by chi-square, frequencies within five standard errors.
Seeds are fixed; truncated normals pass above p = 1e-3 and the rest above 1e-4, so that other streams would
raise a false alarm about once in twenty. Each kind of check is shown to fail on a planted bug.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from doublefeature._jit import kernel
from doublefeature.kernels.streams import new_stream, seek, stream_key, tick
from doublefeature.kernels.variates import (
    bernoulli_logit,
    beta_logit,
    exponential,
    gamma,
    log_gamma_draw,
    normal,
    normalise_logs,
    pick_by_logs,
    poisson,
    truncated_normal,
)

N_DRAWS = 20_000
STANDARD_ERRORS = 5.0
LOWEST_P = 1e-4
INF = math.inf


@kernel
def fill_truncated(case: int, low: float, high: float, out: np.ndarray) -> None:
    """Draw each number from a stream of its own, as the sampler does for each user."""
    stream = new_stream()
    for j in range(out.size):
        seek(stream, stream_key(9, 0), tick(0, 0, case), j)
        out[j] = truncated_normal(stream, low, high)


@kernel
def fill_normal(out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 0)
    for j in range(out.size):
        out[j] = normal(stream)


@kernel
def fill_exponential(out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 1)
    for j in range(out.size):
        out[j] = exponential(stream)


@kernel
def fill_log_gamma(shape: float, out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 2)
    for j in range(out.size):
        out[j] = log_gamma_draw(stream, shape)


@kernel
def fill_gamma(shape: float, rate: float, out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 3)
    for j in range(out.size):
        out[j] = gamma(stream, shape, rate)


@kernel
def fill_beta_logit(inside: float, outside: float, out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 4)
    for j in range(out.size):
        out[j] = beta_logit(stream, inside, outside)


@kernel
def fill_poisson(mean: float, out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 5)
    for j in range(out.size):
        out[j] = poisson(stream, mean)


@kernel
def fill_bernoulli(log_odds: float, out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 6)
    for j in range(out.size):
        out[j] = bernoulli_logit(stream, log_odds)


@kernel
def fill_picks(logs: np.ndarray, out: np.ndarray) -> None:
    stream = new_stream()
    seek(stream, stream_key(9, 0), tick(1, 0, 0), 7)
    for j in range(out.size):
        out[j] = pick_by_logs(stream, logs)


def drawn(fill, *parameters, n_draws: int = N_DRAWS, dtype: type = np.float64) -> np.ndarray:
    out = np.empty(n_draws, dtype)
    fill(*parameters, out)
    return out


def uniform_p(levels: np.ndarray) -> float:
    """Return the p value for the draws' own probabilities being uniform."""
    return float(stats.kstest(levels, "uniform").pvalue)


def truncated_cdf(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return (Φ(x) − Φ(low)) / (Φ(high) − Φ(low)), always from logarithms of the smaller tail."""
    if low > -high:
        return 1.0 - truncated_cdf(-x, -high, -low)
    at_low, at_x, at_high = (special.log_ndtr(end) for end in (low, x, high))
    return np.exp(at_x - at_high) * np.expm1(at_low - at_x) / np.expm1(at_low - at_high)


UNIFORM_REJECTION = [
    (6.0, 6.01), (-6.01, -6.0), (-0.5, 0.2), (-0.2, 0.5), (0.0, 0.9), (-0.3, 0.3), (0.3, 1.0), (8.0, 8.9),
    (30.0, 30.1), (-2.0, -1.5), (1e-9, 1e-3), (-1e-6, 2e-6), (0.5, 2.4), (-1.9, -0.3), (0.01, 1.9),
    (2.0, 2.4999),
]  # fmt: skip
TAIL_REJECTION = [
    (8.0, INF), (-INF, -9.0), (0.41, INF), (0.5, 2.6), (-3.0, -0.9), (0.9, 2.5), (3.0, 4.0), (-60.0, -40.0),
    (1.0, 2.0), (37.0, 38.5), (500.0, INF), (-INF, -0.5),
]  # fmt: skip
NORMAL_REJECTION = [
    (-INF, INF), (0.0, INF), (-INF, 0.4), (0.01, 50.0), (-0.5, 0.5), (-0.5, 0.6), (-5.0, 1.0), (0.3, 2.4),
    (-1.0, INF), (-INF, 3.0), (0.4, INF), (-2.0, 0.0),
]  # fmt: skip
CASES = UNIFORM_REJECTION + TAIL_REJECTION + NORMAL_REJECTION


class TestTruncatedNormal:
    def test_forty_cases(self):
        assert len(set(CASES)) == len(CASES) == 40

    @pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{low}..{high}" for low, high in CASES])
    def test_law(self, case):
        low, high = CASES[case]
        draws = drawn(fill_truncated, case, low, high, n_draws=10 * N_DRAWS)
        assert draws.min() >= low
        assert draws.max() <= high
        assert uniform_p(truncated_cdf(draws, low, high)) > 1e-3

    @pytest.mark.parametrize(
        ("used", "asked"),
        [
            ((1.0, INF), (1.0, 2.0)),
            ((0.0, INF), (0.0, 2.0)),
            ((6.0, 6.011), (6.0, 6.01)),
            ((8.0, INF), (8.1, INF)),
        ],
    )
    def test_check_sees_a_wrong_bound(self, used, asked):
        """The planted bug: draws that ignore the right bound; those outside it count as being at it."""
        levels = truncated_cdf(drawn(fill_truncated, 50, *used).clip(*asked), *asked)
        assert uniform_p(levels) < 1e-6

    @pytest.mark.parametrize(("low", "high"), [(4.9e4, 5e4), (-5e4, -4.9e4), (5e4, INF), (0.05, 0.051)])
    def test_far_intervals_end(self, low, high):
        draws = drawn(fill_truncated, 51, low, high, n_draws=1000)
        assert ((draws >= low) & (draws <= high)).all()


class TestNormalAndExponential:
    def test_normal(self):
        draws = drawn(fill_normal, n_draws=200_000)
        assert uniform_p(special.ndtr(draws)) > LOWEST_P

    def test_normal_moments(self):
        """Moments 1 to 4 of n draws have standard errors √1, √2, √15 and √96 over √n."""
        draws = drawn(fill_normal, n_draws=200_000)
        for power, (moment, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96)], 1):
            error = abs((draws**power).mean() - moment)
            assert error < STANDARD_ERRORS * math.sqrt(variance / draws.size)

    def test_exponential(self):
        draws = drawn(fill_exponential, n_draws=200_000)
        assert (draws >= 0.0).all()
        assert uniform_p(-np.expm1(-draws)) > LOWEST_P


class TestGamma:
    @pytest.mark.parametrize("shape", [0.05, 0.7, 1.0, 5.0, 1e5])
    def test_log_gamma(self, shape):
        draws = drawn(fill_log_gamma, shape)
        assert uniform_p(special.gammainc(shape, np.exp(draws))) > LOWEST_P

    @pytest.mark.parametrize(("shape", "rate"), [(0.05, 3.0), (0.7, 1e-3), (1.0, 1.0), (5.0, 0.5), (1e5, 1e4)])
    def test_gamma(self, shape, rate):
        draws = drawn(fill_gamma, shape, rate)
        assert uniform_p(special.gammainc(shape, rate * draws)) > LOWEST_P

    def test_tiny_shapes_stay_finite_on_the_log_scale(self):
        """log x + E/shape with E exponential: a Gamma(shape) is a Gamma(shape + 1) times U^(1/shape)."""
        draws = drawn(fill_log_gamma, 1e-4)
        assert np.isfinite(draws).all()
        assert uniform_p(np.exp(1e-4 * draws)) > LOWEST_P

    def test_check_sees_a_missing_boost(self):
        """The planted bug: a shape below 1 raised by 1 and not brought back."""
        draws = drawn(fill_log_gamma, 1.7)
        assert uniform_p(special.gammainc(0.7, np.exp(draws))) < 1e-12

    @pytest.mark.parametrize(
        ("inside", "outside"), [(0.5, 0.5), (1.0, 1.0), (3.0, 7.0), (0.05, 2.0), (2.0, 0.05), (400.0, 1e4)]
    )
    def test_beta_logit(self, inside, outside):
        draws = drawn(fill_beta_logit, inside, outside)
        below = special.betainc(inside, outside, special.expit(draws))
        above = special.betainc(outside, inside, special.expit(-draws))
        assert uniform_p(np.where(draws < 0.0, below, 1.0 - above)) > LOWEST_P

    def test_check_sees_swapped_shapes(self):
        draws = drawn(fill_beta_logit, 3.0, 3.3)
        assert uniform_p(special.betainc(3.3, 3.0, special.expit(draws))) < 1e-12


class TestDiscrete:
    @pytest.mark.parametrize("mean", [0.01, 0.3, 1.0, 4.0, 30.0])
    def test_poisson(self, mean):
        draws = drawn(fill_poisson, mean, dtype=np.int64)
        assert poisson_p(draws, mean) > LOWEST_P

    def test_poisson_of_nothing(self):
        assert (drawn(fill_poisson, 0.0, dtype=np.int64) == 0).all()

    def test_check_sees_a_poisson_one_too_high(self):
        """The planted bug: count the gap that passes the mean as well."""
        assert poisson_p(drawn(fill_poisson, 4.0, dtype=np.int64) + 1, 4.0) < 1e-12

    @pytest.mark.parametrize("log_odds", [-3.0, -0.5, 0.0, 0.3, 4.0])
    def test_bernoulli(self, log_odds):
        chance = special.expit(log_odds)
        share = drawn(fill_bernoulli, log_odds, n_draws=100_000).mean()
        assert abs(share - chance) < STANDARD_ERRORS * math.sqrt(chance * (1.0 - chance) / 100_000)

    @pytest.mark.parametrize(("log_odds", "sure"), [(800.0, 1.0), (-800.0, 0.0), (INF, 1.0), (-INF, 0.0)])
    def test_bernoulli_when_sure(self, log_odds, sure):
        assert (drawn(fill_bernoulli, log_odds) == sure).all()

    @pytest.mark.parametrize("shift", [0.0, 1000.0, -1e6])
    def test_picks(self, shift):
        chances = np.array([0.5, 0.0, 0.2, 0.25, 0.05])
        with np.errstate(divide="ignore"):
            logs = np.log(chances) + shift
        normalise_logs(logs)
        assert np.exp(logs) == pytest.approx(chances, abs=1e-9)
        counts = np.bincount(drawn(fill_picks, logs, dtype=np.int64), minlength=5)
        assert counts[1] == 0
        assert stats.chisquare(counts[chances > 0], N_DRAWS * chances[chances > 0]).pvalue > LOWEST_P


def poisson_p(draws: np.ndarray, mean: float) -> float:
    """Return the chi-square p value; at both ends, cells of few expected draws are thrown together."""
    law = stats.poisson(mean)
    low, high = law.ppf(5.0 / draws.size), max(law.isf(5.0 / draws.size), 1.0)
    cells = np.arange(low, high + 1)
    expected = law.pmf(cells)
    expected[0], expected[-1] = law.cdf(low), law.sf(high - 1)
    counts = np.bincount((draws.clip(low, high) - low).astype(int), minlength=cells.size)
    return float(stats.chisquare(counts, draws.size * expected).pvalue)
