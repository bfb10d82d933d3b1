"""Scalar draws from a stream: normal, gamma, beta, Poisson, truncated normal."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import leaf
from doublefeature.kernels.streams import Stream, uniform

FloatArray = NDArray[np.float64]

_TAIL_FROM = -0.5


@leaf
def bernoulli_logit(stream: Stream, log_odds: float) -> bool:
    """Return True with the probability whose log odds are given."""
    return uniform(stream) * (1.0 + math.exp(-log_odds)) < 1.0


@leaf
def normalise_logs(logs: FloatArray) -> None:
    """Shift logarithms of weights so that the weights sum to one."""
    top = -math.inf
    for value in logs:
        top = max(top, value)
    total = 0.0
    for value in logs:
        total += math.exp(value - top)
    for j in range(logs.size):
        logs[j] -= top + math.log(total)


@leaf
def pick_by_logs(stream: Stream, logs: FloatArray) -> int:
    """Return an index drawn with probabilities given by their logarithms."""
    left = uniform(stream)
    pick = 0
    while pick < logs.size - 1 and left >= math.exp(logs[pick]):
        left -= math.exp(logs[pick])
        pick += 1
    return pick


@leaf
def exponential(stream: Stream) -> float:
    """Return a standard exponential number."""
    return -math.log(uniform(stream))


@leaf
def normal(stream: Stream) -> float:
    """Return a standard normal number (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(uniform(stream)))
    return radius * math.cos(2.0 * math.pi * uniform(stream))


@leaf
def log_gamma_draw(stream: Stream, shape: float) -> float:
    """Return the logarithm of a Gamma(shape, 1) number (Marsaglia and Tsang; shapes below 1 by boosting)."""
    boost = 0.0
    if shape < 1.0:
        boost = math.log(uniform(stream)) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(stream)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        if math.log(uniform(stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return math.log(d * v) + boost


@leaf
def gamma(stream: Stream, shape: float, rate: float) -> float:
    """Return a Gamma number with the given shape and rate."""
    return math.exp(log_gamma_draw(stream, shape)) / rate


@leaf
def beta_logit(stream: Stream, inside: float, outside: float) -> float:
    """Return the log odds of a Beta(inside, outside) number."""
    return log_gamma_draw(stream, inside) - log_gamma_draw(stream, outside)


@leaf
def poisson(stream: Stream, mean: float) -> int:
    """Return a Poisson number, by counting exponential gaps (cost grows with the mean)."""
    count = 0
    total = exponential(stream)
    while total < mean:
        count += 1
        total += exponential(stream)
    return count


@leaf
def _upper_tail(stream: Stream, low: float) -> float:
    """Return a standard normal number above `low` by exponential rejection (Robert, 1995)."""
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    while True:
        x = low + exponential(stream) / rate
        cost = 0.5 * (x - rate) * (x - rate)
        u = uniform(stream)
        if u < 1.0 - cost or u < math.exp(-cost):
            return x


@leaf
def _inside_uniform(stream: Stream, low: float, high: float) -> float:
    """Return a standard normal number in a narrow interval, by rejection from the uniform."""
    peak = 0.0
    if low > 0.0:
        peak = low
    elif high < 0.0:
        peak = high
    while True:
        x = low + (high - low) * uniform(stream)
        cost = 0.5 * (x - peak) * (x + peak)
        u = uniform(stream)
        if u < 1.0 - cost or u < math.exp(-cost):
            return x


@leaf
def truncated_normal(stream: Stream, low: float, high: float) -> float:
    """Return a standard normal number between `low` and `high`, either of which may be infinite."""
    if low < -high:
        return -_truncated(stream, -high, -low)
    return _truncated(stream, low, high)


@leaf
def _truncated(stream: Stream, low: float, high: float) -> float:
    """Return the draw for an interval that lies more to the right than to the left of zero."""
    width = high - low
    if width < 2.5 and low * width < 0.6:
        return _inside_uniform(stream, low, high)
    if low > _TAIL_FROM:
        x = _upper_tail(stream, low)
        while x > high:
            x = _upper_tail(stream, low)
        return x
    x = normal(stream)
    while x < low or x > high:
        x = normal(stream)
    return x
