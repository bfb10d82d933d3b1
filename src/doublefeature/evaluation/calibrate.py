r"""Level probabilities for predictors that give a number only: an ordered probit on top of the number.

$P(\text{level} \le r \mid x) = \Phi(c_r - b\,x)$ with $c_1 < \dots < c_{L-1}$. A scale $s$ would be a second name for
$c/s$ and $b/s$, so it is 1. The log likelihood is concave in $(c, b)$; a little made-up evidence (one rating in all,
spread evenly over the levels at one standard deviation on either side of the mean) keeps the answer finite when levels
are unseen or when the number parts the levels perfectly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_count
from doublefeature.errors import RatingsError, SettingsError
from doublefeature.evaluation.bootstrap import sums_by
from doublefeature.model.ordinal import level_probabilities

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

_PSEUDO = 1.0
_STEPS = 100
_TOLERANCE = 1e-9
_TINY = 1e-300
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class OrdinalCalibration:
    """Turns point predictions into level probabilities.

    Attributes
    ----------
    cutpoints
        −∞, c_1 < … < c_{L−1}, ∞.
    slope
        b: how much one unit of the point prediction moves the latent score, in standard deviations.
    """

    cutpoints: FloatArray
    slope: float

    def proba(self, points: FloatArray) -> FloatArray:
        """Return the probability of every level for every point prediction, shape (points, levels)."""
        return level_probabilities(self.slope * np.asarray(points, np.float64), 1.0, self.cutpoints)


def fit_calibration(points: FloatArray, level_codes: NDArray[np.integer], n_levels: int) -> OrdinalCalibration:
    """Fit by maximum likelihood to predictions of ratings that the predictor has not seen.

    Parameters
    ----------
    points
        Point predictions on any scale.
    level_codes
        Level codes, 0 to n_levels − 1, of the same ratings.
    """
    points, codes = np.asarray(points, np.float64), np.asarray(level_codes, np.int64)
    _check(points, codes, n_levels)
    centre, spread = float(points.mean()), float(points.std())
    spread = spread if spread > 1e-12 * max(1.0, abs(centre)) else 1.0
    side = np.repeat([-1.0, 1.0], n_levels)
    scaled = np.concatenate([(points - centre) / spread, side])
    levels = np.concatenate([codes, np.tile(np.arange(n_levels), 2)])
    weights = np.concatenate([np.ones(points.size), np.full(side.size, _PSEUDO / side.size)])
    found = _maximise(scaled, levels, weights, _start(levels, weights, n_levels))
    slope = float(found[-1]) / spread
    return OrdinalCalibration(np.concatenate([[-np.inf], found[:-1] + slope * centre, [np.inf]]), slope)


def _check(points: FloatArray, codes: Codes, n_levels: int) -> None:
    check_count("n_levels", n_levels, least=2)
    if points.ndim != 1 or points.shape != codes.shape or not points.size:
        sizes = f"{points.shape} points and {codes.shape} levels"
        raise SettingsError(f"a calibration needs a level for every point prediction, one or more, got {sizes}.")
    if not np.isfinite(points).all():
        raise SettingsError("a calibration needs finite point predictions. Replace those that are not numbers.")
    if not 0 <= codes.min() <= codes.max() < n_levels:
        raise RatingsError(f"level codes must lie in 0..{n_levels - 1}, got {codes.min()}..{codes.max()}.")


def _start(levels: Codes, weights: FloatArray, n_levels: int) -> FloatArray:
    """Return the parameters that reproduce the shares of levels, without a slope."""
    counts = sums_by(levels, weights, n_levels)
    shares = np.cumsum(counts)[:-1] / counts.sum()
    return np.append([NormalDist().inv_cdf(float(share)) for share in shares], 0.0)


def _maximise(points: FloatArray, levels: Codes, weights: FloatArray, start: FloatArray) -> FloatArray:
    """Climb by Newton steps, damped wherever the plain step does not lead up."""
    current, value = start, _log_likelihood(start, points, levels, weights)
    damping = 0.0
    for _ in range(_STEPS):
        gradient, bend = _derivatives(current, points, levels, weights)
        step = _solve(bend, gradient, damping)
        proposed = current + step
        reached = _log_likelihood(proposed, points, levels, weights)
        if reached >= value:
            gain, current, value, damping = reached - value, proposed, reached, damping / 10.0
            if gain <= _TOLERANCE * (1.0 + abs(value)) and np.abs(step).max() < 1e-6:
                break
        else:
            damping = max(10.0 * damping, 1e-3)
    return current


def _solve(bend: FloatArray, gradient: FloatArray, damping: float) -> FloatArray:
    """Return the step up, (−H + damping · diag(−H) + ε)⁻¹ g."""
    size = np.diag(bend)
    damped = bend + np.diag(damping * size + 1e-10 * (1.0 + size))
    return np.asarray(np.linalg.solve(damped, gradient), np.float64)


def _borders(parameters: FloatArray, points: FloatArray, levels: Codes) -> tuple[FloatArray, FloatArray]:
    ends = np.concatenate([[-np.inf], parameters[:-1], [np.inf]])
    score = parameters[-1] * points
    return ends[levels] - score, ends[levels + 1] - score


def _log_likelihood(parameters: FloatArray, points: FloatArray, levels: Codes, weights: FloatArray) -> float:
    if (np.diff(parameters[:-1]) <= 0.0).any() or not np.isfinite(parameters).all():
        return -math.inf
    ends = np.concatenate([[-np.inf], parameters[:-1], [np.inf]])
    chances = level_probabilities(parameters[-1] * points, 1.0, ends)[np.arange(levels.size), levels]
    return float(weights @ np.log(np.maximum(chances, _TINY)))


def _derivatives(
    parameters: FloatArray, points: FloatArray, levels: Codes, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Return gradient and −Hessian of the log likelihood.

    With borders $a < z$ of a rating's level, $P = \Phi(z) - \Phi(a)$, $g_z = \varphi(z)/P$ and $g_a = -\varphi(a)/P$:
    second derivatives in $(a, z)$ are $-z g_z - g_z^2$, $-a g_a - g_a^2$ and, mixed, $-g_a g_z$.
    """
    low, high = _borders(parameters, points, levels)
    ends = np.concatenate([[-np.inf], parameters[:-1], [np.inf]])
    table = level_probabilities(parameters[-1] * points, 1.0, ends)
    chances = np.maximum(table[np.arange(levels.size), levels], _TINY)
    at_high, at_low = _density(high) / chances, -_density(low) / chances
    finite_high, finite_low = np.where(np.isinf(high), 0.0, high), np.where(np.isinf(low), 0.0, low)
    bend_high = weights * (finite_high * at_high + at_high**2)
    bend_low = weights * (finite_low * at_low + at_low**2)
    mixed = weights * at_low * at_high
    n_cuts = parameters.size - 1
    gradient, bend = np.zeros(parameters.size), np.zeros((parameters.size, parameters.size))

    def by_level(values: FloatArray) -> FloatArray:
        return sums_by(levels, values, n_cuts + 1)

    gradient[:-1] = by_level(weights * at_high)[:-1] + by_level(weights * at_low)[1:]
    gradient[-1] = -(weights * (at_high + at_low)) @ points
    cuts = np.arange(n_cuts)
    bend[cuts, cuts] = by_level(bend_high)[:-1] + by_level(bend_low)[1:]
    between = by_level(mixed)[1:-1]
    bend[cuts[:-1], cuts[1:]] = bend[cuts[1:], cuts[:-1]] = between
    across = by_level((bend_high + mixed) * points)[:-1] + by_level((bend_low + mixed) * points)[1:]
    bend[:-1, -1] = bend[-1, :-1] = -across
    bend[-1, -1] = (bend_high + bend_low + 2.0 * mixed) @ points**2
    return gradient, bend


def _density(x: FloatArray) -> FloatArray:
    out: FloatArray = _INV_SQRT_2PI * np.exp(-0.5 * x * x)
    return out
