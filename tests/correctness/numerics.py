"""The ordinal probit at fifty digits, and how far the compiled functions are from it.

`python -m tests.correctness.numerics 100000` prints the worst relative error of `log_normal_interval`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath
import numpy as np
from mpmath import mp, mpf

from doublefeature.model.ordinal import log_normal_interval

DIGITS = 50
FARTHEST = 60.0
NARROWEST = 1e-9
SMALLEST_NORMAL = 2.2250738585072014e-308

Interval = Callable[[float, float], float]


def exact_log_interval(low: float | mpf, high: float | mpf) -> mpf:
    """Return log(Φ(high) − Φ(low)), written so that no digit is lost on either side of zero."""
    if low > 0:
        low, high = -high, -low
    root = mp.sqrt(2)
    if high <= 0:
        return mp.log((mp.erfc(-high / root) - mp.erfc(-low / root)) / 2)
    return mp.log1p(-(mp.erfc(-low / root) + mp.erfc(high / root)) / 2)


def exact_level(level: int, score: float | mpf, scale: float, cutpoints: np.ndarray) -> mpf:
    """Return the log probability of a level; ends are divided by the scale at full precision."""
    low, high = (mpf(float(cutpoints[place])) for place in (level, level + 1))
    return exact_log_interval((low - score) / mpf(scale), (high - score) / mpf(scale))


def exact_level_slopes(level: int, score: float, scale: float, cutpoints: np.ndarray) -> tuple[mpf, mpf, mpf]:
    """Return value and derivatives by differencing at fifty digits: no formula is shared with the kernels."""
    with mp.workdps(DIGITS):
        value, first, second = mpmath.diffs(
            lambda x: exact_level(level, x, scale, cutpoints), mpf(score), 2, singular=False
        )
        return value, first, second


def interval_points(n_points: int, seed: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Return ends of intervals within ±60, an equal share of each kind.

    Two uniform ends; any width around any centre; any width near zero; infinite on the left; infinite on the
    right; around zero with ends of any size; at the border between series and difference; an end at zero.
    """
    rng = np.random.default_rng(seed)
    kind = np.arange(n_points) % 8
    ends = rng.uniform(-FARTHEST, FARTHEST, (2, n_points))
    sizes = np.exp(rng.uniform(np.log(NARROWEST), np.log(FARTHEST), (2, n_points)))
    near, far = 3.0 * rng.standard_normal(n_points), ends[0]
    border = rng.uniform(0.5e-3, 2e-3, n_points) / (1.0 + np.abs(far))
    end = np.where(rng.random(n_points) < 0.5, near, far)
    side = rng.random(n_points) < 0.5
    low = np.choose(kind, [ends.min(0), far, near, -np.inf, end, -sizes[0], far, np.where(side, 0.0, -sizes[0])])
    high = np.choose(
        kind,
        [ends.max(0), far + sizes[0], near + sizes[0], end, np.inf, sizes[1], far + border,
         np.where(side, sizes[0], 0.0)],
    )  # fmt: skip
    finite = np.isfinite(high)
    high[finite] = np.minimum(high[finite], FARTHEST)
    low = np.minimum(low, np.where(finite, high - NARROWEST, FARTHEST))
    return low, high


def worst_interval_error(n_points: int, function: Interval = log_normal_interval, seed: int = 9) -> float:
    """Return the largest relative error of the logarithm over `interval_points`.

    Errors are relative to the exact logarithm, or to the smallest normal number when that is larger: beyond
    ±37 the logarithm of a probability next to one has no double to be written in.
    """
    worst = 0.0
    with mp.workdps(DIGITS):
        for low, high in zip(*(ends.tolist() for ends in interval_points(n_points, seed)), strict=True):
            exact = exact_log_interval(mpf(low), mpf(high))
            found = mpf(function(low, high))
            error = abs(found - exact) / max(abs(exact), SMALLEST_NORMAL)
            worst = max(worst, float("inf") if mpmath.isnan(error) else float(error))
    return worst


if __name__ == "__main__":
    print(worst_interval_error(int(sys.argv[1])))
