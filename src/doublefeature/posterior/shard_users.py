"""Who is in which shard: users split at random, all items kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import SettingsError
from doublefeature.ratings import Ratings

Codes = NDArray[np.int64]

_SPLIT = 0
"""Stream of random numbers; others belong to what is drawn for shards."""


def split_users(n_users: int, shards: int, seed: int) -> list[Codes]:
    """Return the user codes of every shard, ascending: a random split into parts of equal size but for one user."""
    if shards > n_users:
        raise SettingsError(f"{n_users} users cannot be split into {shards} shards. Give at most {n_users}.")
    order = np.random.default_rng([seed, _SPLIT]).permutation(n_users)
    return [np.sort(part) for part in np.array_split(order, shards)]


def ratings_of(ratings: Ratings, users: Codes) -> Ratings:
    """Return the ratings of some users over all items."""
    counts = np.diff(ratings.arrays.user_ptr)[users]
    rows = np.repeat(ratings.arrays.user_ptr[users] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    part = Ratings.from_codes(
        np.repeat(np.arange(users.size, dtype=np.uint32), counts),
        ratings.arrays.item_codes[rows],
        ratings.arrays.levels[rows],
        users=[ratings.users[code] for code in users.tolist()],
        items=ratings.items,
        levels=ratings.levels,
        times=None if ratings.times is None else ratings.times[rows],
    )
    return replace(part, covariates=ratings.covariates.of(users, np.arange(ratings.n_items)))
