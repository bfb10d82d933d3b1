"""Level probabilities of many scores, added up pair by pair: what predictions are averages of."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import leaf

FloatArray = NDArray[np.float64]

_SQRT_HALF = math.sqrt(0.5)


@leaf
def add_levels(scores: FloatArray, noise: FloatArray, cutpoints: FloatArray, copies: int, out: FloatArray) -> None:
    """Add the level probabilities of score j, with its own noise scale, to row j // copies of a (pairs, levels) table.

    Every border between levels is known by its smaller tail, and differences are taken on the side where both
    tails are small, so that improbable levels keep their digits.
    """
    for j in range(scores.size):
        row = j // copies
        low_tail = 0.0
        low_is_right = False
        for level in range(out.shape[1]):
            border = (cutpoints[level + 1] - scores[j]) / noise[j]
            high_tail = 0.5 * math.erfc(abs(border) * _SQRT_HALF)
            high_is_right = border > 0.0
            if low_is_right:
                out[row, level] += low_tail - high_tail
            elif high_is_right:
                out[row, level] += 1.0 - low_tail - high_tail
            else:
                out[row, level] += high_tail - low_tail
            low_tail = high_tail
            low_is_right = high_is_right
