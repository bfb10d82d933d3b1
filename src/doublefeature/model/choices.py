"""What users' choices of items tell about them: components of the matrix of who rated what.

The rating itself plays no part. Rows and columns are divided by the roots of their sums, so the first component is
known (the root of the number of ratings) and left out; those that follow are the leading ones of what remains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel
from doublefeature.ratings import RatingArrays

FloatArray = NDArray[np.float64]

_SPARE = 8
_ROUNDS = 12
_DECIMALS = 6
"""Components are rounded, so that they are the same numbers everywhere."""


@kernel
def times_items(ptr: NDArray[np.int64], items: NDArray[np.uint32], right: FloatArray, out: FloatArray) -> None:
    """Fill out = M right, M the 0/1 matrix of users and items."""
    for user in range(ptr.size - 1):
        for j in range(ptr[user], ptr[user + 1]):
            for c in range(right.shape[1]):
                out[user, c] += right[np.int64(items[j]), c]


@kernel
def times_users(ptr: NDArray[np.int64], items: NDArray[np.uint32], left: FloatArray, out: FloatArray) -> None:
    """Fill out = M' left."""
    for user in range(ptr.size - 1):
        for j in range(ptr[user], ptr[user + 1]):
            for c in range(left.shape[1]):
                out[np.int64(items[j]), c] += left[user, c]


def choice_components(arrays: RatingArrays, rank: int) -> FloatArray:
    """Return (users, rank + 1) components of users' choices, each with variance 1, and the log number of ratings."""
    ptr, items = arrays.user_ptr, arrays.item_codes
    n_users, n_items = ptr.size - 1, arrays.item_ptr.size - 1
    by_user, by_item = (np.sqrt(np.maximum(np.diff(one), 1.0)) for one in (ptr, arrays.item_ptr))
    width = min(rank + _SPARE, n_items, n_users)
    trivial = by_user / np.linalg.norm(by_user)
    basis = np.random.default_rng(0).standard_normal((n_items, width))
    left = np.zeros((n_users, width))
    for _ in range(_ROUNDS):
        left = np.zeros((n_users, width))
        times_items(ptr, items, np.ascontiguousarray(basis / by_item[:, None]), left)
        left /= by_user[:, None]
        left -= np.outer(trivial, trivial @ left)
        left = np.linalg.qr(left)[0]
        basis = np.zeros((n_items, width))
        times_users(ptr, items, np.ascontiguousarray(left / by_user[:, None]), basis)
        basis /= by_item[:, None]
    turned = left @ np.linalg.svd(basis, full_matrices=False)[2].T[:, : min(rank, width)]
    components = np.zeros((n_users, rank + 1))
    components[:, : turned.shape[1]] = _standard(turned)
    components[:, rank] = _standard(np.log1p(np.diff(ptr))[:, None])[:, 0]
    rounded: FloatArray = np.round(components, _DECIMALS) + 0.0
    return rounded


def _standard(columns: FloatArray) -> FloatArray:
    """Return columns with mean 0 and variance 1 (0 where constant), the largest entry positive."""
    centred = columns - columns.mean(axis=0)
    sd = centred.std(axis=0)
    signs = np.sign(centred[np.abs(centred).argmax(axis=0), np.arange(centred.shape[1])])
    standard: FloatArray = np.where(sd > 1e-9, centred * signs / np.maximum(sd, 1e-9), 0.0)
    return standard
