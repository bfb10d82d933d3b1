"""Log probability of a level and its slopes in the score, quickly: tails of the normal from a table."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import inlined, leaf
from doublefeature.model.ordinal import level_log_probability, level_log_slopes

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

_REACH, _PER_UNIT = 8.0, 128
_GRID = np.arange(-_REACH, _REACH + 0.5 / _PER_UNIT, 1.0 / _PER_UNIT)
_BELOW = np.array([0.5 * math.erfc(-x * math.sqrt(0.5)) for x in _GRID])
_DENSITY = np.exp(-0.5 * _GRID**2) / math.sqrt(2.0 * math.pi)
_SURE = 1e-4
"""Least probability that differences of tabulated tails are good for: they are right to 1e-11."""


@inlined
def _tail(x: float) -> tuple[float, float]:
    """Return Φ(x) and its density, from the nearest point of the grid by Taylor's series."""
    if x <= -_REACH:
        return 0.0, 0.0
    if x >= _REACH:
        return 1.0, 0.0
    place = np.int64((x + _REACH) * _PER_UNIT + 0.5)
    near, density = _GRID[place], _DENSITY[place]
    d = x - near
    square = near * near - 1.0
    below = _BELOW[place] + density * d * (1.0 - d * (0.5 * near - d * square / 6.0))
    return below, density * (1.0 - d * (near - d * (0.5 * square - d * near * (square - 2.0) / 6.0)))


@leaf
def log_level(level: int, score: float, noise: float, cutpoints: FloatArray) -> float:
    """Return the log probability of a level."""
    chance = _tail((cutpoints[level + 1] - score) / noise)[0] - _tail((cutpoints[level] - score) / noise)[0]
    return math.log(chance) if chance > _SURE else level_log_probability(level, score, noise, cutpoints)


@leaf
def level_slopes(level: int, score: float, noise: float, cutpoints: FloatArray) -> tuple[float, float, float]:
    """Return the log probability of a level with its first and second derivative in the score."""
    low, high = (cutpoints[level] - score) / noise, (cutpoints[level + 1] - score) / noise
    below_low, at_low = _tail(low)
    below_high, at_high = _tail(high)
    chance = below_high - below_low
    if chance < _SURE:
        return level_log_slopes(level, score, noise, cutpoints)
    per = 1.0 / (chance * noise)
    slope = (at_low - at_high) * per
    bend = (low * at_low if at_low > 0.0 else 0.0) - (high * at_high if at_high > 0.0 else 0.0)
    return math.log(chance), slope, bend * per / noise - slope * slope


@leaf
def fill_slopes(levels: Codes, scores: FloatArray, noise: FloatArray, cutpoints: FloatArray, out: FloatArray) -> None:
    """Fill (3, scores): the log probability of each level at its score, and its two derivatives."""
    for j in range(scores.size):
        out[0, j], out[1, j], out[2, j] = level_slopes(levels[j], scores[j], noise[j], cutpoints)
