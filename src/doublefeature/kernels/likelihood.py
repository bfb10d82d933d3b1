r"""Log probabilities of levels, fast: cubic pieces of $l_r(\eta)$ fitted to value and slope.

One table per user scale and level, on steps of 1/32 of the noise scale, serves all look-ups of a block; the
error is below 1e-8. Scores off the table, small data and very small noise use the direct formula.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import leaf
from doublefeature.model.ordinal import level_log_probability, level_log_slopes
from doublefeature.model.state import NOISE, Model, State

FloatArray = NDArray[np.float64]

_STEPS_PER_SCALE = 32.0
_MARGIN = 16.0
_MOST_CELLS = 8192
_LOW, _PER_STEP, _CELLS = range(3)


class Likelihood(NamedTuple):
    """Level probabilities at the current noise scale and cutpoints. `refresh` fills it in place."""

    cutpoints: FloatArray  # (levels + 1,)
    noise: FloatArray  # (scales,) noise scale of each user scale
    precision: FloatArray  # (scales,) its inverse square
    cells: FloatArray  # (scales, levels, cells, 4) coefficients of each cubic piece
    grid: FloatArray  # (scales, 3) first score, pieces per unit score, pieces in use (0: direct)


def new_likelihood(n_levels: int, n_scales: int, with_table: bool) -> Likelihood:
    """Return an empty likelihood, to be filled by `refresh`."""
    cells = _MOST_CELLS if with_table else 0
    return Likelihood(
        cutpoints=np.zeros(n_levels + 1),
        noise=np.ones(n_scales),
        precision=np.ones(n_scales),
        cells=np.zeros((n_scales, n_levels, cells, 4)),
        grid=np.zeros((n_scales, 3)),
    )


@leaf
def refresh(like: Likelihood, state: State, model: Model) -> None:
    """Bring the likelihood up to the state's noise scale and cutpoints."""
    for c in range(like.cutpoints.size):
        like.cutpoints[c] = state.cutpoints[c]
    for scale in range(model.scales.size):
        like.noise[scale] = state.hyper[NOISE] * model.scales[scale]
        like.precision[scale] = 1.0 / like.noise[scale] ** 2
        _fill(like, scale)


@leaf
def _fill(like: Likelihood, scale: int) -> None:
    noise = like.noise[scale]
    n_levels = like.cutpoints.size - 1
    low = like.cutpoints[1] - _MARGIN
    high = like.cutpoints[n_levels - 1] + _MARGIN
    cells = math.ceil((high - low) * _STEPS_PER_SCALE / noise)
    if cells > like.cells.shape[2]:
        like.grid[scale, _CELLS] = 0.0
        return
    step = (high - low) / cells
    like.grid[scale, _LOW] = low
    like.grid[scale, _PER_STEP] = 1.0 / step
    like.grid[scale, _CELLS] = cells
    for level in range(n_levels):
        value, slope, _ = level_log_slopes(level, low, noise, like.cutpoints)
        slope *= step
        for cell in range(cells):
            score = low + (cell + 1) * step
            value_next, slope_next, _ = level_log_slopes(level, score, noise, like.cutpoints)
            slope_next *= step
            rise = value_next - value
            like.cells[scale, level, cell, 0] = value
            like.cells[scale, level, cell, 1] = slope
            like.cells[scale, level, cell, 2] = 3.0 * rise - 2.0 * slope - slope_next
            like.cells[scale, level, cell, 3] = slope + slope_next - 2.0 * rise
            value = value_next
            slope = slope_next


@leaf
def log_probability(like: Likelihood, scale: int, level: int, score: float) -> float:
    """Return the log probability of a level for a user of this scale."""
    place = (score - like.grid[scale, _LOW]) * like.grid[scale, _PER_STEP]
    if not 0.0 <= place < like.grid[scale, _CELLS]:
        return level_log_probability(level, score, like.noise[scale], like.cutpoints)
    cell = np.uint64(place)
    x = place - np.float64(cell)
    c = like.cells
    s = np.uint64(scale)
    r = np.uint64(level)
    return c[s, r, cell, 0] + x * (c[s, r, cell, 1] + x * (c[s, r, cell, 2] + x * c[s, r, cell, 3]))


@leaf
def slopes(like: Likelihood, scale: int, level: int, score: float) -> tuple[float, float]:
    """Return first and second derivative in the score (for proposals; good to about 1e-3)."""
    per_step = like.grid[scale, _PER_STEP]
    place = (score - like.grid[scale, _LOW]) * per_step
    if not 0.0 <= place < like.grid[scale, _CELLS]:
        _, first, second = level_log_slopes(level, score, like.noise[scale], like.cutpoints)
        return first, second
    cell = np.uint64(place)
    x = place - np.float64(cell)
    c = like.cells
    s = np.uint64(scale)
    r = np.uint64(level)
    first = c[s, r, cell, 1] + x * (2.0 * c[s, r, cell, 2] + 3.0 * x * c[s, r, cell, 3])
    second = 2.0 * c[s, r, cell, 2] + 6.0 * x * c[s, r, cell, 3]
    return first * per_step, second * per_step * per_step
