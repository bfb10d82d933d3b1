r"""The ordinal probit: how likely a level is, given the score.

Level r of a pair with score $\eta$ and noise scale $\tau$ has probability
$\Phi((c_{r+1}-\eta)/\tau) - \Phi((c_r-\eta)/\tau)$ with cutpoints $c_0=-\infty < c_1 < \dots < c_L=\infty$.
All logarithms stay accurate far into the tails, where the plain difference is zero.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import leaf

FloatArray = NDArray[np.float64]

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_PI = 1.0 / math.sqrt(math.pi)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SPLITTER = 134217729.0  # 2^27 + 1: splits a double into two exact halves


@leaf
def scaled_erfc(x: float) -> float:
    """Return exp(x²) erfc(x) for x ≥ 0 without underflow."""
    if x < 6.0:
        square = x * x
        wide = _SPLITTER * x
        high = wide - (wide - x)
        low = x - high
        lost = ((high * high - square) + 2.0 * high * low) + low * low
        return math.exp(square) * (1.0 + lost) * math.erfc(x)
    terms = 24 if x < 12.0 else 12
    tail = x
    for j in range(terms, 0, -1):
        tail = x + 0.5 * j / tail
    return _INV_SQRT_PI / tail


@leaf
def log_normal_cdf(x: float) -> float:
    """Return log Φ(x)."""
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * _SQRT_HALF))
    if x > -1.0:
        return math.log(0.5 * math.erfc(-x * _SQRT_HALF))
    return -0.5 * x * x + math.log(0.5 * scaled_erfc(-x * _SQRT_HALF))


@leaf
def log_normal_interval(low: float, high: float) -> float:
    """Return log(Φ(high) − Φ(low)) for low < high, either of which may be infinite."""
    if low > 0.0 or high == math.inf:
        low, high = -high, -low
    if low == -math.inf:
        return log_normal_cdf(high)
    width = high - low
    middle = 0.5 * (low + high)
    if width * (1.0 + abs(middle)) < 1e-3:
        bend = (middle * middle - 1.0) * width * width / 24.0
        return math.log(width) - 0.5 * middle * middle - _LOG_SQRT_2PI + math.log1p(bend)
    if high <= 0.0:
        ratio = scaled_erfc(-low * _SQRT_HALF) / scaled_erfc(-high * _SQRT_HALF)
        return log_normal_cdf(high) + math.log1p(-math.exp(0.5 * (high - low) * (high + low)) * ratio)
    return math.log1p(-0.5 * (math.erfc(-low * _SQRT_HALF) + math.erfc(high * _SQRT_HALF)))


@leaf
def level_log_probability(level: int, score: float, scale: float, cutpoints: FloatArray) -> float:
    """Return the log probability of one level; `cutpoints` has an infinite end on each side."""
    return log_normal_interval((cutpoints[level] - score) / scale, (cutpoints[level + 1] - score) / scale)


@leaf
def _density_over(x: float, log_probability: float) -> float:
    if math.isinf(x):
        return 0.0
    return math.exp(-0.5 * x * x - _LOG_SQRT_2PI - log_probability)


@leaf
def level_log_slopes(level: int, score: float, scale: float, cutpoints: FloatArray) -> tuple[float, float, float]:
    """Return the log probability of one level with its first and second derivative in the score."""
    low = (cutpoints[level] - score) / scale
    high = (cutpoints[level + 1] - score) / scale
    value = log_normal_interval(low, high)
    at_low = _density_over(low, value)
    at_high = _density_over(high, value)
    slope = (at_low - at_high) / scale
    bend_low = 0.0 if math.isinf(low) else low * at_low
    bend_high = 0.0 if math.isinf(high) else high * at_high
    return value, slope, (bend_low - bend_high) / (scale * scale) - slope * slope


def level_cutpoints(n_levels: int) -> FloatArray:
    """Return the fixed cutpoints −∞, 1, 2, …, L−1, ∞ of L levels."""
    inner = np.arange(1.0, n_levels)
    return np.concatenate([[-np.inf], inner, [np.inf]])


def level_probabilities(scores: FloatArray, scale: FloatArray | float, cutpoints: FloatArray) -> FloatArray:
    """Return the probability of every level, along a new last axis."""
    flat = np.ascontiguousarray(np.broadcast_to(scores, np.shape(scores)), dtype=np.float64).ravel()
    scales = np.ascontiguousarray(np.broadcast_to(scale, np.shape(scores)), dtype=np.float64).ravel()
    out = np.empty((flat.size, cutpoints.size - 1))
    fill_level_probabilities(flat, scales, cutpoints, out)
    return out.reshape(*np.shape(scores), cutpoints.size - 1)


@leaf
def fill_level_probabilities(scores: FloatArray, scales: FloatArray, cutpoints: FloatArray, out: FloatArray) -> None:
    """Fill a (scores, levels) table of probabilities."""
    for j in range(scores.size):
        for level in range(out.shape[1]):
            out[j, level] = math.exp(level_log_probability(level, scores[j], scales[j], cutpoints))
