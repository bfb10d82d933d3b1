r"""Log odds of belonging that traits of rows shift: ψ_e = a + z_e d for row e, users or items alike.

The weights (a, d) of a feature have a prior, a mode given who belongs, and a normal around it to be proposed from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import inlined, kernel, leaf
from doublefeature.kernels.gaussian import draw_normal, factorise
from doublefeature.kernels.streams import Stream
from doublefeature.kernels.variates import normal
from doublefeature.model.state import ITEM_LOGIT_SD, Model

FloatArray = NDArray[np.float64]
Mask = NDArray[np.uint8]

_LONGEST_STEP = 2.0
_SHORT_STEP = 0.02
_LOG_2PI = math.log(2.0 * math.pi)


class WeightPrior(NamedTuple):
    """Prior of a feature's weights: its log odds a, and how traits shift them, normal around 0."""

    buffet: bool  # a = logit π with π from λ π⁻¹ dπ; otherwise a is normal
    centre: float
    spread: float
    sd: float


@leaf
def prior_of_users(model: Model) -> WeightPrior:
    """Return the prior of weights that shift users."""
    return WeightPrior(True, 0.0, 1.0, model.weight_sd)


@leaf
def prior_of_items(model: Model) -> WeightPrior:
    """Return the prior of weights that shift items."""
    return WeightPrior(False, model.item_logit, ITEM_LOGIT_SD, model.weight_sd)


@leaf
def soft_plus(x: float) -> float:
    """Return log(1 + exp(x))."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@leaf
def log_sigmoid(x: float) -> float:
    """Return log(1 / (1 + exp(−x)))."""
    return -soft_plus(-x)


@leaf
def row_logit(traits: FloatArray, weights: FloatArray, row: int) -> float:
    """Return the log odds of one row, ψ = a + z d."""
    total = weights[0]
    for t in range(traits.shape[1]):
        total += traits[row, t] * weights[t + 1]
    return total


@inlined
def _four_logits(traits: FloatArray, weights: FloatArray, row: int) -> tuple[float, float, float, float]:
    """Return the log odds of four rows, bit by bit those of `row_logit`; four sums do not wait for each other."""
    first = second = third = fourth = weights[0]
    for t in range(traits.shape[1]):
        weight = weights[t + 1]
        first += traits[row, t] * weight
        second += traits[row + 1, t] * weight
        third += traits[row + 2, t] * weight
        fourth += traits[row + 3, t] * weight
    return first, second, third, fourth


@leaf
def fill_logits(traits: FloatArray, weights: FloatArray, out: FloatArray) -> None:
    """Fill the log odds of every row."""
    for row in range(out.size):
        out[row] = row_logit(traits, weights, row)


@leaf
def mean_rate(traits: FloatArray, weights: FloatArray) -> float:
    """Return the probability of belonging, averaged over rows."""
    total = 0.0
    for row in range(traits.shape[0]):
        total += 1.0 / (1.0 + math.exp(-row_logit(traits, weights, row)))
    return total / traits.shape[0]


@leaf
def weights_log_prior(weights: FloatArray, prior: WeightPrior) -> float:
    """Return the log density of a feature's weights; of users' less λ, (1 − π) being what π⁻¹ dπ is in a = logit π."""
    total = -soft_plus(weights[0])
    if not prior.buffet:
        total = -0.5 * ((weights[0] - prior.centre) / prior.spread) ** 2 - math.log(prior.spread) - 0.5 * _LOG_2PI
    for t in range(1, weights.size):
        total -= 0.5 * (weights[t] / prior.sd) ** 2 + math.log(prior.sd) + 0.5 * _LOG_2PI
    return total


@leaf
def weights_log_target(traits: FloatArray, inside: Mask, weights: FloatArray, prior: WeightPrior) -> float:
    """Return the log density of a feature's weights given who belongs, up to a constant."""
    total = weights_log_prior(weights, prior)
    for row in range(inside.size):
        logit = row_logit(traits, weights, row)
        total += (logit if inside[row] != 0 else 0.0) - soft_plus(logit)
    return total


@leaf
def gather_weights(
    traits: FloatArray, members: FloatArray, weights: FloatArray, prior: WeightPrior, told: tuple
) -> None:
    """Fill precision and slope of the log target at these weights, for expected memberships between 0 and 1."""
    precision, slope = told
    size = weights.size
    for a in range(size):
        slope[a] = -weights[a] / (prior.sd * prior.sd)
        for b in range(a + 1):
            precision[a, b] = 1.0 / (prior.sd * prior.sd) if a == b else 0.0
    if prior.buffet:
        rate = 1.0 / (1.0 + math.exp(-weights[0]))
        slope[0] = -rate
        precision[0, 0] = rate * (1.0 - rate)
    else:
        slope[0] = (prior.centre - weights[0]) / prior.spread**2
        precision[0, 0] = 1.0 / prior.spread**2
    fours = members.size - members.size % 4
    for row in range(0, fours, 4):
        _gather_four(traits, members, weights, row, told)
    for row in range(fours, members.size):
        _gather_one(traits, members, weights, row, told)


@inlined
def _gather_one(traits: FloatArray, members: FloatArray, weights: FloatArray, row: int, told: tuple) -> None:
    """Add what one row says of precision and slope."""
    precision, slope = told
    p = 1.0 / (1.0 + math.exp(-row_logit(traits, weights, row)))
    gap = members[row] - p
    v = p * (1.0 - p)
    slope[0] += gap
    precision[0, 0] += v
    for a in range(1, weights.size):
        z = traits[row, a - 1]
        slope[a] += gap * z
        precision[a, 0] += v * z
        for b in range(1, a + 1):
            precision[a, b] += v * z * traits[row, b - 1]


@inlined
def _gather_four(traits: FloatArray, members: FloatArray, weights: FloatArray, row: int, told: tuple) -> None:
    """Add what four rows say, one after the other: the same bits as by `_gather_one`, and a sum is touched once."""
    precision, slope = told
    logits = _four_logits(traits, weights, row)
    p0, p1 = 1.0 / (1.0 + math.exp(-logits[0])), 1.0 / (1.0 + math.exp(-logits[1]))
    p2, p3 = 1.0 / (1.0 + math.exp(-logits[2])), 1.0 / (1.0 + math.exp(-logits[3]))
    gap0, gap1, gap2, gap3 = members[row] - p0, members[row + 1] - p1, members[row + 2] - p2, members[row + 3] - p3
    v0, v1, v2, v3 = p0 * (1.0 - p0), p1 * (1.0 - p1), p2 * (1.0 - p2), p3 * (1.0 - p3)
    row0, row1, row2, row3 = traits[row], traits[row + 1], traits[row + 2], traits[row + 3]
    slope[0] = slope[0] + gap0 + gap1 + gap2 + gap3
    precision[0, 0] = precision[0, 0] + v0 + v1 + v2 + v3
    for a in range(1, weights.size):
        z0, z1, z2, z3 = row0[a - 1], row1[a - 1], row2[a - 1], row3[a - 1]
        slope[a] = slope[a] + gap0 * z0 + gap1 * z1 + gap2 * z2 + gap3 * z3
        z0, z1, z2, z3 = v0 * z0, v1 * z1, v2 * z2, v3 * z3
        line = precision[a]
        line[0] = line[0] + z0 + z1 + z2 + z3
        for b in range(a):
            line[b + 1] = line[b + 1] + z0 * row0[b] + z1 * row1[b] + z2 * row2[b] + z3 * row3[b]


@kernel
def newton_weights(
    traits: FloatArray, members: FloatArray, weights: FloatArray, prior: WeightPrior, steps: int
) -> FloatArray:
    """Move weights towards the mode in place; return the Cholesky factor of the precision where the last step began.

    A step so short that the next would hardly move anything is the last.
    """
    size = weights.size
    precision = np.zeros((size, size))
    slope = np.zeros(size)
    for _ in range(steps):
        gather_weights(traits, members, weights, prior, (precision, slope))
        factorise(precision)
        for a in range(size):
            for b in range(a):
                slope[a] -= precision[a, b] * slope[b]
            slope[a] /= precision[a, a]
        for a in range(size - 1, -1, -1):
            for b in range(a + 1, size):
                slope[a] -= precision[b, a] * slope[b]
            slope[a] /= precision[a, a]
        longest = 0.0
        for a in range(size):
            longest = max(longest, abs(slope[a]))
        scale = min(1.0, _LONGEST_STEP / max(longest, 1e-300))
        for a in range(size):
            weights[a] += scale * slope[a]
        if longest < _SHORT_STEP:
            break
    return precision


@kernel
def draw_weights(mode: FloatArray, factor: FloatArray, widen: float, stream: Stream) -> FloatArray:
    """Return weights from the normal around a mode, so many times wider than the precision's factor says."""
    step = np.zeros(mode.size)
    draw_normal(factor, step, stream)
    return mode + widen * step


@leaf
def weights_log_proposal(weights: FloatArray, mode: FloatArray, factor: FloatArray, widen: float) -> float:
    """Return the log density of `draw_weights` at these weights."""
    size = weights.size
    total = -0.5 * size * _LOG_2PI
    for a in range(size):
        z = 0.0
        for b in range(a, size):
            z += factor[b, a] * (weights[b] - mode[b]) / widen
        total += math.log(factor[a, a] / widen) - 0.5 * z * z
    return total


@leaf
def draw_prior_weights(out: FloatArray, prior: WeightPrior, stream: Stream) -> None:
    """Fill weights from a prior that is normal throughout."""
    out[0] = prior.centre + prior.spread * normal(stream)
    for t in range(1, out.size):
        out[t] = prior.sd * normal(stream)
