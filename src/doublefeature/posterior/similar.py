r"""Items that the same users like, and users who like the same items, whatever the features are called.

Over users the scores of items i and j vary together by

    cov_ij = Σ_k Σ_l w_ik w_jl C_kl,    C_kl = cov over users of (A_uk, A_ul),

the covariance of their features' parts, with w_ik the effect of feature k on item i: θ_k B_ik, or the item's own when
features are graded. The user offset, which moves all items alike, is left out. Users u and v vary together over items
by Σ_k Σ_l A_uk A_vl D_kl with D_kl = cov over items of (w_ik, w_il). Neither a matrix of items × items nor one of
users × users is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from doublefeature.checks import check_count
from doublefeature.errors import SettingsError, show
from doublefeature.model.state import members
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.predict import Codes, FloatArray, WordArray, n_levels_of

SimilarBy = Literal["correlation", "covariance"]

INTERVAL_MASS = 0.8
_BLOCK = 65_536
_ROUNDING = 1e-12  # a variance this small beside its terms is zero


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Items or users most like one, nearest first; means over draws and 80 % intervals."""

    codes: Codes
    correlation: FloatArray
    correlation_lower: FloatArray
    correlation_upper: FloatArray
    covariance: FloatArray
    covariance_lower: FloatArray
    covariance_upper: FloatArray
    by: SimilarBy

    def __len__(self) -> int:
        return int(self.codes.size)


class _Side(NamedTuple):
    """One draw seen from items or from users: what each is loaded with, and how the loads go together."""

    loads: Callable[[slice | Codes], FloatArray]  # rows → (rows, K)
    matrix: FloatArray  # (K, K)


def similar_items(posterior: Posterior, item: int, n: int = 10, *, by: SimilarBy = "correlation") -> Neighbours:
    """Return the n items whose scores vary over users most like this item's.

    Where an item's score does not vary, the correlation counts as 0.
    """
    n_levels_of(posterior)
    size = posterior.draws[0].item_offset.size
    code = _known(item, size, "item")
    sides = [_Side(draw.item_loads, _user_covariance(draw)) for draw in posterior]
    return _nearest(sides, code, size, n, by)


def similar_users(posterior: Posterior, user: int, n: int = 10, *, by: SimilarBy = "correlation") -> Neighbours:
    """Return the n users whose scores vary over items most like this user's, item offsets left out."""
    n_levels_of(posterior)
    size = posterior.draws[0].user_offset.size
    code = _known(user, size, "user")
    return _nearest([_user_side(draw) for draw in posterior], code, size, n, by)


def _user_side(draw: Draw) -> _Side:
    if draw.graded or draw.rank:
        matrix = covariance_of(draw.item_loads, draw.item_offset.size)
    else:
        matrix = member_covariance(draw.item_words, draw.n_features) * np.outer(draw.effect, draw.effect)

    return _Side(draw.user_loads, matrix)


def _user_covariance(draw: Draw) -> FloatArray:
    """Return the (K, K) covariance over users of how strongly they hold features k and l."""
    if draw.user_graded or draw.rank:
        return covariance_of(draw.user_loads, draw.user_offset.size)
    return member_covariance(draw.user_words, draw.n_features)


def _nearest(sides: list[_Side], code: int, size: int, n: int, by: SimilarBy) -> Neighbours:
    """Average over draws for everybody, pick the nearest, and go through the draws again for their intervals."""
    check_count("n", n, least=1)
    if by not in ("correlation", "covariance"):
        raise SettingsError(f"by must be 'correlation' or 'covariance', got {show(by)}.")
    own = [side.loads(np.array([code]))[0] for side in sides]
    total = np.zeros((2, size))
    for side, load in zip(sides, own, strict=True):
        for first in range(0, size, _BLOCK):
            part = slice(first, first + _BLOCK)
            total[:, part] += _relate(side.loads(part), load, side.matrix)
    correlation, covariance = total / len(sides)
    keys = (covariance, correlation) if by == "correlation" else (correlation, covariance)
    order = np.lexsort([-key for key in keys])
    codes = order[order != code][:n]
    table = np.stack([_relate(side.loads(codes), load, side.matrix) for side, load in zip(sides, own, strict=True)])
    tail = (1.0 - INTERVAL_MASS) / 2.0
    lower, upper = np.quantile(table, [tail, 1.0 - tail], axis=0)
    return Neighbours(codes, correlation[codes], lower[0], upper[0], covariance[codes], lower[1], upper[1], by)


def member_covariance(words: WordArray, n_features: int) -> FloatArray:
    """Return the (K, K) covariance over rows of belonging to features k and l, zero where it is zero."""
    slots = np.arange(n_features)
    together = np.zeros((n_features, n_features))
    for first in range(0, words.shape[0], _BLOCK):
        inside = members(words[first : first + _BLOCK], slots).astype(np.float64)
        together += inside.T @ inside
    alone = together.diagonal()
    covariance: FloatArray = (words.shape[0] * together - np.outer(alone, alone)) / float(words.shape[0]) ** 2
    return covariance


def covariance_of(loads: Callable[[slice | Codes], FloatArray], n_rows: int) -> FloatArray:
    """Return the (K, K) covariance over rows of what they are loaded with."""
    blocks = [slice(first, first + _BLOCK) for first in range(0, n_rows, _BLOCK)]
    mean = np.sum([loads(part).sum(axis=0) for part in blocks], axis=0) / n_rows
    covariance = np.zeros((mean.size, mean.size))
    for part in blocks:
        gaps = loads(part) - mean
        covariance += gaps.T @ gaps / n_rows
    return covariance


def _relate(loads: FloatArray, load: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return correlation and covariance of each row's score with that of one row, shape (2, rows)."""
    covariance = loads @ (matrix @ load)
    variances = _variances(loads, matrix) * _variances(load[None, :], matrix)
    apart = variances > 0.0
    correlation = np.zeros(covariance.size)
    correlation[apart] = np.clip(covariance[apart] / np.sqrt(variances[apart]), -1.0, 1.0)
    return np.stack([correlation, covariance])


def _variances(loads: FloatArray, matrix: FloatArray) -> FloatArray:
    variances = ((loads @ matrix) * loads).sum(axis=1)
    terms = loads**2 @ matrix.diagonal()
    return np.where(variances > _ROUNDING * terms, variances, 0.0)


def _known(code: int, size: int, what: str) -> int:
    if not 0 <= code < size:
        raise SettingsError(f"{what} codes run from 0 to {size - 1}, got {show(code)}.")
    return int(code)
