"""What users' choices of items tell about both: components of the matrix of who rated what.

The rating itself plays no part. Rows and columns are divided by the roots of their sums, so the first component is
known (the root of the number of ratings) and left out; those that follow are the leading ones of what remains. A
component counts if it is larger than chance would make it: where everybody rated nearly everything, none is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel
from doublefeature.config import Priors
from doublefeature.errors import SettingsError
from doublefeature.model.state import Traits, no_traits
from doublefeature.ratings import NO_COVARIATES, Covariates, RatingArrays

FloatArray = NDArray[np.float64]

_SPARE = 8
_ROUNDS = 12
_DECIMALS = 6
"""Components are rounded, so that they are the same numbers everywhere."""


@kernel
def add_rows(ptr: NDArray[np.int64], others: NDArray[np.uint32], factor: FloatArray, out: FloatArray) -> None:
    """Add M factor, M the 0/1 matrix whose rows these are."""
    for row in range(ptr.size - 1):
        for j in range(ptr[row], ptr[row + 1]):
            for c in range(factor.shape[1]):
                out[row, c] += factor[np.int64(others[j]), c]


def times(ptr: NDArray[np.int64], others: NDArray[np.uint32], factor: FloatArray) -> FloatArray:
    """Return M factor, M the 0/1 matrix whose rows these are."""
    out = np.zeros((ptr.size - 1, factor.shape[1]))
    add_rows(ptr, others, factor, out)
    return out


class Choices(NamedTuple):
    """Who rated what, as the 0/1 matrix M of users and items: row pointers of both sides, and products with it."""

    user_ptr: NDArray[np.int64]
    item_ptr: NDArray[np.int64]
    by_user: Callable[[FloatArray], FloatArray]  # M x
    by_item: Callable[[FloatArray], FloatArray]  # M' x


def choices_in(arrays: RatingArrays) -> Choices:
    """Return the choices in ratings that are all here."""

    def by_user(right: FloatArray) -> FloatArray:
        return times(arrays.user_ptr, arrays.item_codes, right)

    def by_item(left: FloatArray) -> FloatArray:
        return times(arrays.item_ptr, arrays.user_codes, left)

    return Choices(arrays.user_ptr, arrays.item_ptr, by_user, by_item)


def choice_components(choices: Choices, rank: int, least: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return (users, rank + 1) and (items, rank + 1) components of choices, and the log number of ratings last.

    All have mean 0 and variance 1 over rows with ratings; those not `least` times as large as chance would make them
    are 0. Rows without ratings have the mean over ratings.
    """
    n_users, n_items = choices.user_ptr.size - 1, choices.item_ptr.size - 1
    by_user, by_item = (np.sqrt(np.maximum(np.diff(one), 1.0)) for one in (choices.user_ptr, choices.item_ptr))
    width = min(rank + _SPARE, n_items, n_users)
    trivial = by_user / np.linalg.norm(by_user)
    basis = np.random.default_rng(0).standard_normal((n_items, width))
    left = np.zeros((n_users, width))
    for _ in range(_ROUNDS):
        left = choices.by_user(np.ascontiguousarray(basis / by_item[:, None])) / by_user[:, None]
        left -= np.outer(trivial, trivial @ left)
        left = np.linalg.qr(left)[0]
        basis = choices.by_item(np.ascontiguousarray(left / by_user[:, None])) / by_item[:, None]
    right, sizes, turn = np.linalg.svd(basis, full_matrices=False)
    telling = (np.round(sizes, _DECIMALS) > least * _largest_by_chance(choices))[:rank]
    of_users = _with_counts((left @ turn.T)[:, :rank] * telling, np.diff(choices.user_ptr), rank)
    return of_users, _with_counts(right[:, :rank] * telling, np.diff(choices.item_ptr), rank)


def _largest_by_chance(choices: Choices) -> float:
    """Return about the largest singular value, after the first, if N choices fell on m users and n items at random.

    The divided entries then have the variance (1 − density) / N each, which makes it √(1 − density) (√m + √n) / √N.
    """
    n_users, n_items = (int((np.diff(ptr) > 0).sum()) for ptr in (choices.user_ptr, choices.item_ptr))
    count = max(int(choices.user_ptr[-1]), 1)
    empty = max(0.0, 1.0 - count / max(n_users * n_items, 1))
    return float(np.sqrt(empty / count) * (np.sqrt(n_users) + np.sqrt(n_items)))


def traits_of(arrays: RatingArrays, priors: Priors, covariates: Covariates = NO_COVARIATES) -> Traits:
    """Return what is known of users and items besides the ratings: their choices, and columns given with them."""
    return traits_from(choices_in(arrays), priors, covariates)


def traits_from(choices: Choices, priors: Priors, covariates: Covariates = NO_COVARIATES) -> Traits:
    """Return what is known of users and items besides the ratings, given their choices."""
    check_covariates(priors, covariates)
    traits = no_traits(choices.user_ptr.size - 1, choices.item_ptr.size - 1)
    if priors.choices:
        of_users, of_items = choice_components(choices, priors.choices, priors.choice_least)
        traits = traits._replace(users=of_users, items=of_items if priors.item_choices else traits.items)
    if covariates.users is not None:
        traits = traits._replace(user_offsets=covariates.users)
    if covariates.items is not None:
        traits = traits._replace(items=np.hstack([traits.items, covariates.items]))
    return traits


def check_covariates(priors: Priors, covariates: Covariates) -> None:
    """Raise unless the model has the parts that covariates shift."""
    if covariates.users is not None and not priors.user_offsets:
        raise SettingsError("user covariates shift user offsets, which the model lacks. Use preset full.")
    if covariates.items is None:
        return
    if not (priors.graded and priors.item_offsets):
        raise SettingsError("item covariates need graded features and item offsets. Use preset full.")
    if priors.item_rate_by_feature or "item_rate" in priors.learn or priors.item_prior == "ibp":
        raise SettingsError("with item covariates every feature has log odds of its own: do not learn item_rate.")


def mean_over_ratings(components: FloatArray, counts: NDArray[np.int64]) -> FloatArray:
    """Return what a row without ratings is taken to have: the mean of the others, each as often as it was rated.

    What is asked about it are ratings somebody is going to give, and those go to rows that are chosen often.
    """
    mean: FloatArray = np.round(counts @ components / max(float(counts.sum()), 1.0), _DECIMALS) + 0.0
    return mean


def _with_counts(found: FloatArray, counts: NDArray[np.int64], rank: int) -> FloatArray:
    """Return components and log counts of rows with ratings, and of the others what they are taken to have."""
    rated = counts > 0
    components = np.zeros((found.shape[0], rank + 1))
    if rated.any():
        components[rated, : found.shape[1]] = _standard(found[rated])
        components[rated, rank] = _standard(np.log1p(counts[rated])[:, None])[:, 0]
    rounded: FloatArray = np.round(components, _DECIMALS) + 0.0
    rounded[~rated] = mean_over_ratings(rounded, counts)
    return rounded


def _standard(columns: FloatArray) -> FloatArray:
    """Return columns with mean 0 and variance 1 (0 where constant), the largest entry positive."""
    centred = columns - columns.mean(axis=0)
    sd = centred.std(axis=0)
    signs = np.sign(centred[np.abs(centred).argmax(axis=0), np.arange(centred.shape[1])])
    standard: FloatArray = np.where(sd > 1e-9, centred * signs / np.maximum(sd, 1e-9), 0.0)
    return standard
