r"""What the choices of a new user, or of an item's new raters, say in the components the model was fitted with.

With M the 0/1 matrix of who rated what and its rows and columns divided by the roots of their sums, components are
singular vectors, $\tilde M = U S V'$ (see `doublefeature.model.choices`). A new row x gets $x V / S$, which for a row
that was there is its row of U, and the standard form that the rows of U were given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doublefeature.model.choices import choices_in, mean_over_ratings
from doublefeature.ratings import RatingArrays

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Projection:
    """From the codes a new row is rated with to its traits."""

    loadings: FloatArray  # (others, components) V / S, over the roots of the others' numbers of ratings
    shift: FloatArray  # (components,)
    slope: float  # of the last trait in the logarithm of 1 + the number of ratings
    start: float
    empty: FloatArray  # (components + 1,) the traits of a row without ratings

    def traits(self, codes: Codes) -> FloatArray:
        """Return the traits of a row with ratings of these others: (components + 1,)."""
        if codes.size == 0:
            return self.empty
        components = self.loadings[codes].sum(axis=0) / np.sqrt(codes.size) - self.shift
        return np.append(components, self.start + self.slope * np.log1p(codes.size))


def project_users(arrays: RatingArrays, traits: FloatArray) -> Projection:
    """Return the projection of new users, given the traits that choices gave the known ones."""
    return _project(traits, choices_in(arrays).by_item, (arrays.user_ptr, arrays.item_ptr))


def project_items(arrays: RatingArrays, traits: FloatArray) -> Projection:
    """Return the projection of new items, given the traits that choices gave the known ones."""
    return _project(traits, choices_in(arrays).by_user, (arrays.item_ptr, arrays.user_ptr))


def _project(traits: FloatArray, times: Callable[[FloatArray], FloatArray], sides: tuple[Codes, Codes]) -> Projection:
    counts, others = np.diff(sides[0]), np.diff(sides[1])
    raw, shift = _unshifted(traits[:, :-1], counts)
    loadings = times(_over_root(raw, counts))
    rest = (*_count_line(traits[:, -1], counts), mean_over_ratings(traits, counts))
    return _projection(_over_root(loadings, others), others, raw, shift, rest)


def _over_root(rows: FloatArray, counts: Codes) -> FloatArray:
    return np.ascontiguousarray(rows / np.sqrt(np.maximum(counts, 1.0))[:, None])


def _unshifted(standard: FloatArray, counts: Codes) -> tuple[FloatArray, FloatArray]:
    """Return components up to a factor and what their standard form was shifted by.

    Components are orthogonal to the first one, the roots of the numbers of ratings, and that tells the shift.
    """
    roots = np.sqrt(counts)
    shift = -(roots @ standard) / max(float(roots.sum()), 1e-300)
    raw = np.where(counts[:, None] > 0, standard + shift, 0.0)
    return raw, shift


def _projection(
    loadings: FloatArray, others: Codes, raw: FloatArray, shift: FloatArray, rest: tuple[float, float, FloatArray]
) -> Projection:
    """Divide loadings S V by S², the squared length they have over that of U; where that is 0 nothing is told."""
    lengths, wanted = (loadings**2).sum(axis=0), (raw**2).sum(axis=0)
    told = lengths > _LEAST * wanted
    per_square = np.where(told, wanted / np.where(told, lengths, 1.0), 0.0)
    return Projection(_over_root(loadings * per_square, others), np.where(told, shift, 0.0), *rest)


def _count_line(trait: FloatArray, counts: Codes) -> tuple[float, float]:
    """Return slope and start of the line from the logarithm of 1 + the number of ratings to its standard form."""
    there = np.log1p(counts[counts > 0])
    if there.size == 0 or there.min() == there.max():
        return 0.0, 0.0
    low, high = there.argmin(), there.argmax()
    known = trait[counts > 0]
    slope = float((known[high] - known[low]) / (there[high] - there[low]))
    return slope, float(known[low] - slope * there[low])
