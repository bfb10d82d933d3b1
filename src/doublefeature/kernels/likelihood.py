r"""Log probabilities of levels, fast: cubic pieces of $l_r(\eta)$ fitted to value and slope.

One table per curve, that is per user scale and level, on steps of 1/32 of the noise scale, serves all look-ups of a
block; the error is below 1e-8. It reaches as far from the level's borders as scores are likely to lie. Scores off the
table, very small noise, and data with few ratings for so many curves use the direct formula.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import inlined, leaf
from doublefeature.model.ordinal import level_log_probability, level_log_slopes
from doublefeature.model.state import NOISE, Model, State

FloatArray = NDArray[np.float64]

_STEPS_PER_SCALE = 32.0
_MARGIN = 8.0
_MARGIN_IN_NOISE = 6.0
_MOST_CELLS = 8192
_LOW, _PER_STEP, _CELLS = range(3)
_MANY_CURVES = 100
_RATINGS_PER_CURVE_ONCE = 1_100
"""Number of ratings per curve from which a table pays even if every rating is looked up in it only once."""


class Likelihood(NamedTuple):
    """Level probabilities at the current noise scale and cutpoints. `refresh` fills it in place."""

    cutpoints: FloatArray  # (levels + 1,)
    noise: FloatArray  # (scales,) noise scale of each user scale
    precision: FloatArray  # (scales,) its inverse square
    cells: FloatArray  # (curves, cells, 4) coefficients of each cubic piece
    grid: FloatArray  # (curves, 3) first score, pieces per unit score, pieces in use (0: direct)


def table_pays(n_levels: int, n_scales: int, n_ratings: int, table_from: int) -> bool:
    """Whether a table pays that serves a whole sweep: from so many ratings on, more if it has many curves."""
    return n_ratings >= table_from * max(1.0, n_levels * n_scales / _MANY_CURVES)


def new_likelihood(n_levels: int, n_scales: int, with_table: bool) -> Likelihood:
    """Return an empty likelihood, to be filled by `refresh`."""
    cells = _MOST_CELLS if with_table else 0
    return Likelihood(
        cutpoints=np.zeros(n_levels + 1),
        noise=np.ones(n_scales),
        precision=np.ones(n_scales),
        cells=np.zeros((n_scales * n_levels, cells, 4)),
        grid=np.zeros((n_scales * n_levels, 3)),
    )


@leaf
def refresh_direct(like: Likelihood, state: State, model: Model) -> None:
    """Bring the likelihood up to the state without its table: for values that are tried once, on small data."""
    for c in range(like.cutpoints.size):
        like.cutpoints[c] = state.cutpoints[c]
    for scale in range(model.scales.size):
        like.noise[scale] = state.hyper[NOISE] * model.scales[scale]
        like.precision[scale] = 1.0 / like.noise[scale] ** 2
    for curve in range(like.grid.shape[0]):
        like.grid[curve, _CELLS] = 0.0


@leaf
def refresh(like: Likelihood, state: State, model: Model) -> None:
    """Bring the likelihood up to the state's noise scale and cutpoints."""
    refresh_direct(like, state, model)
    for scale in range(model.scales.size):
        for level in range(like.cutpoints.size - 1):
            _fill(like, scale, level)


@leaf
def refresh_border(like: Likelihood, state: State, model: Model, place: int, with_table: bool) -> None:
    """Bring the likelihood up to one cutpoint of the state, which is the border of two levels."""
    like.cutpoints[place] = state.cutpoints[place]
    for scale in range(model.scales.size):
        for level in range(place - 1, place + 1):
            if with_table:
                _fill(like, scale, level)
            else:
                like.grid[curve_of(like, scale, level), _CELLS] = 0.0


@leaf
def pays_once(like: Likelihood, n_ratings: int) -> bool:
    """Whether a table pays even if every rating is looked up in it only once."""
    return n_ratings >= _RATINGS_PER_CURVE_ONCE * like.grid.shape[0]


@inlined
def curve_of(like: Likelihood, scale: int, level: int) -> int:
    """Return the number of the curve for a user scale and a level."""
    return np.int64(scale) * (like.cutpoints.size - 1) + np.int64(level)


@leaf
def _fill(like: Likelihood, scale: int, level: int) -> None:
    noise = like.noise[scale]
    curve = curve_of(like, scale, level)
    last = like.cutpoints.size - 2
    reach = max(_MARGIN, _MARGIN_IN_NOISE * noise)
    low = max(like.cutpoints[1] - _MARGIN, like.cutpoints[max(level, 1)] - reach)
    high = min(like.cutpoints[last] + _MARGIN, like.cutpoints[min(level + 1, last)] + reach)
    cells = math.ceil((high - low) * _STEPS_PER_SCALE / noise)
    if cells > like.cells.shape[1]:
        like.grid[curve, _CELLS] = 0.0
        return
    step = (high - low) / cells
    like.grid[curve, _LOW] = low
    like.grid[curve, _PER_STEP] = 1.0 / step
    like.grid[curve, _CELLS] = cells
    value, slope, _ = level_log_slopes(level, low, noise, like.cutpoints)
    slope *= step
    for cell in range(cells):
        score = low + (cell + 1) * step
        value_next, slope_next, _ = level_log_slopes(level, score, noise, like.cutpoints)
        slope_next *= step
        rise = value_next - value
        like.cells[curve, cell, 0] = value
        like.cells[curve, cell, 1] = slope
        like.cells[curve, cell, 2] = 3.0 * rise - 2.0 * slope - slope_next
        like.cells[curve, cell, 3] = slope + slope_next - 2.0 * rise
        value = value_next
        slope = slope_next


@inlined
def log_at(like: Likelihood, curve: int, score: float) -> float:
    """Return the log probability of a curve's level at a score."""
    c = np.uint64(curve)
    place = (score - like.grid[c, _LOW]) * like.grid[c, _PER_STEP]
    if not 0.0 <= place < like.grid[c, _CELLS]:
        return _direct(like, np.int64(curve), score)
    cell = np.uint64(place)
    x = place - np.float64(cell)
    t = like.cells
    return t[c, cell, 0] + x * (t[c, cell, 1] + x * (t[c, cell, 2] + x * t[c, cell, 3]))


@inlined
def log_and_slope_at(like: Likelihood, curve: int, score: float) -> tuple[float, float]:
    """Return the log probability of a curve's level and its derivative in the score (good to about 1e-6)."""
    c = np.uint64(curve)
    place = (score - like.grid[c, _LOW]) * like.grid[c, _PER_STEP]
    if not 0.0 <= place < like.grid[c, _CELLS]:
        value, slope, _ = _direct_slopes(like, np.int64(curve), score)
        return value, slope
    cell = np.uint64(place)
    x = place - np.float64(cell)
    t = like.cells
    value = t[c, cell, 0] + x * (t[c, cell, 1] + x * (t[c, cell, 2] + x * t[c, cell, 3]))
    slope = t[c, cell, 1] + x * (2.0 * t[c, cell, 2] + 3.0 * x * t[c, cell, 3])
    return value, slope * like.grid[c, _PER_STEP]


@inlined
def slopes_at(like: Likelihood, curve: int, score: float) -> tuple[float, float]:
    """Return first and second derivative in the score (for proposals; the second is good to about 1e-3)."""
    c = np.uint64(curve)
    per_step = like.grid[c, _PER_STEP]
    place = (score - like.grid[c, _LOW]) * per_step
    if not 0.0 <= place < like.grid[c, _CELLS]:
        _, first, second = _direct_slopes(like, np.int64(curve), score)
        return first, second
    cell = np.uint64(place)
    x = place - np.float64(cell)
    t = like.cells
    first = t[c, cell, 1] + x * (2.0 * t[c, cell, 2] + 3.0 * x * t[c, cell, 3])
    second = 2.0 * t[c, cell, 2] + 6.0 * x * t[c, cell, 3]
    return first * per_step, second * per_step * per_step


@leaf
def _direct(like: Likelihood, curve: int, score: float) -> float:
    n_levels = like.cutpoints.size - 1
    return level_log_probability(curve % n_levels, score, like.noise[curve // n_levels], like.cutpoints)


@leaf
def _direct_slopes(like: Likelihood, curve: int, score: float) -> tuple[float, float, float]:
    n_levels = like.cutpoints.size - 1
    return level_log_slopes(curve % n_levels, score, like.noise[curve // n_levels], like.cutpoints)


@inlined
def log_probability(like: Likelihood, scale: int, level: int, score: float) -> float:
    """Return the log probability of a level for a user of this scale."""
    return log_at(like, curve_of(like, scale, level), score)


@inlined
def slopes(like: Likelihood, scale: int, level: int, score: float) -> tuple[float, float]:
    """Return first and second derivative of a level's log probability (see `slopes_at`)."""
    return slopes_at(like, curve_of(like, scale, level), score)
