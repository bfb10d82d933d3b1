"""Which ratings are kept back: reproducible protocols, each split with a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_count, check_seed
from doublefeature.errors import RatingsError, SettingsError, show
from doublefeature.levels import number
from doublefeature.ratings import Ratings

Mask = NDArray[np.bool_]

PROTOCOLS = {
    "paper": "one rating of every user, among the most rated items, users with three ratings or more",
    "holdout": "a random share of the ratings",
    "temporal": "the last share of the ratings in time",
    "cold-users": "all ratings of a random share of the users",
    "cold-items": "all ratings of a random share of the items",
    "kfold": "every rating once, in random folds",
}
"""What each protocol holds out. The place in this order is part of the seed."""

DEFAULT_SHARE = 0.1
PAPER_ITEMS = 200
PAPER_RATINGS = 3


@dataclass(frozen=True, eq=False)
class Split:
    """Ratings to learn from and ratings to be judged by, with the same id tables and levels."""

    protocol: str
    seed: int
    train: Ratings
    test: Ratings
    given: Ratings | None = None
    """Ratings of users who are not learnt from, known when these are judged; None: there are none."""

    @cached_property
    def known(self) -> Ratings:
        """What is known when predictions are made: what was learnt from, and what is given."""
        return self.train if self.given is None else _together(self.train, self.given)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all parts, the protocol and the seed, in hexadecimal."""
        parts = [self.train.fingerprint, self.test.fingerprint, self.protocol, str(self.seed)]
        parts += [] if self.given is None else [self.given.fingerprint]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def make_splits(
    ratings: Ratings,
    protocol: str = "holdout",
    *,
    seed: int = 0,
    share: float | None = None,
    folds: int = 5,
    top_items: int = PAPER_ITEMS,
    given: int = 0,
) -> list[Split]:
    """Split ratings by a protocol: one split, or one for every fold of `kfold`.

    Parameters
    ----------
    protocol
        One of `PROTOCOLS`.
    seed
        Fixes what is drawn; `temporal` draws nothing.
    share
        Share held out: of ratings (`holdout`, `temporal`), users or items; default 0.1. `paper` and `kfold` have none.
    folds
        Number of folds of `kfold`.
    top_items
        How many of the most rated items `paper` keeps. The authors keep 200 and the users with at least three
        ratings among them.
    given
        How many ratings of every cold user, drawn at random, are known when the others are judged; users without
        more are left out. 0: none. Other protocols have no cold users.
    """
    check_count("given", given, least=0)
    number_of_protocol = _check_protocol(protocol)
    rng = np.random.default_rng([check_seed(seed), number_of_protocol])
    if protocol in ("paper", "kfold") and share is not None:
        raise SettingsError(f"protocol {protocol} has no share, got {show(share)}. Leave share out.")
    if protocol == "paper":
        ratings = ratings.top_items(top_items, min_ratings_per_user=PAPER_RATINGS)
        masks = [_one_per_user(ratings, rng)]
    elif protocol == "kfold":
        masks = _folds(ratings, folds, rng)
    else:
        masks = [_share_mask(ratings, protocol, _check_share(share), rng)]
    splits = [Split(protocol, seed, ratings.subset(~mask), ratings.subset(mask)) for mask in masks]
    if protocol == "cold-users" and given:
        splits = [_with_given(split, given, rng) for split in splits]
    for split in splits:
        _check_parts(split, ratings)
    return splits


def _check_protocol(protocol: str) -> int:
    if protocol not in PROTOCOLS:
        raise SettingsError(f"unknown protocol {show(protocol)}. Choose among {', '.join(PROTOCOLS)}.")
    return list(PROTOCOLS).index(protocol)


def _check_share(share: float | None) -> float:
    value = DEFAULT_SHARE if share is None else number(share)
    if not 0.0 < value < 1.0:
        raise SettingsError(f"share must lie between 0 and 1, got {show(share)}.")
    return value


def _check_parts(split: Split, ratings: Ratings) -> None:
    if not (split.train.n_ratings and split.test.n_ratings):
        sizes = f"{split.train.n_ratings} ratings to learn from and {split.test.n_ratings} to be judged by"
        what = f"protocol {split.protocol} leaves {sizes}, of {ratings.n_ratings} ratings that it can use"
        raise RatingsError(f"{what}. Give more ratings, or choose another protocol or share.")


def _one_per_user(ratings: Ratings, rng: np.random.Generator) -> Mask:
    """Mark one random rating of every user who has two or more."""
    starts, counts = ratings.arrays.user_ptr[:-1], np.diff(ratings.arrays.user_ptr)
    enough = counts >= 2
    mask = np.zeros(ratings.n_ratings, bool)
    mask[starts[enough] + rng.integers(0, counts[enough])] = True
    return mask


def splits_of(
    ratings: Ratings, protocol: str, seeds: Sequence[int], share: float | None, folds: int, given: int = 0
) -> list[Split]:
    """Return the splits of several seeds, one after the other."""
    if not seeds:
        raise SettingsError("at least one seed is needed, such as seeds=(0,).")
    parts = [make_splits(ratings, protocol, seed=seed, share=share, folds=folds, given=given) for seed in seeds]
    return [split for part in parts for split in part]


def _with_given(split: Split, given: int, rng: np.random.Generator) -> Split:
    """Return the split with so many ratings of every cold user given; those with fewer to be judged by are left out."""
    counts = np.diff(split.test.arrays.user_ptr)
    places = np.argsort(rng.random(split.test.n_ratings))
    users = split.test.triples()[0].astype(np.int64)
    order = places[np.argsort(users[places], kind="stable")]
    rank = np.empty(users.size, np.int64)
    rank[order] = np.arange(users.size) - split.test.arrays.user_ptr[users]
    enough = counts[users] > given
    return replace(
        split, test=split.test.subset(enough & (rank >= given)), given=split.test.subset(enough & (rank < given))
    )


def _together(one: Ratings, two: Ratings) -> Ratings:
    """Return the ratings of two parts of the same ratings."""
    (users, items, levels), (more_users, more_items, more_levels) = one.triples(), two.triples()
    both = Ratings.from_codes(
        np.concatenate([users, more_users]),
        np.concatenate([items, more_items]),
        np.concatenate([levels, more_levels]),
        users=one.users,
        items=one.items,
        levels=one.levels,
    )
    return replace(both, covariates=one.covariates)


def _folds(ratings: Ratings, folds: int, rng: np.random.Generator) -> list[Mask]:
    """Mark every rating in one of the folds, whose sizes differ by at most one."""
    check_count("folds", folds, least=2)
    fold_of = rng.permutation(ratings.n_ratings) % folds
    return [fold_of == fold for fold in range(folds)]


def _share_mask(ratings: Ratings, protocol: str, share: float, rng: np.random.Generator) -> Mask:
    if protocol == "temporal":
        return _latest(ratings, share)
    users, items, _ = ratings.triples()
    if protocol == "cold-users":
        return _drawn(ratings.n_users, share, rng)[users]
    if protocol == "cold-items":
        return _drawn(ratings.n_items, share, rng)[items]
    return _drawn(ratings.n_ratings, share, rng)


def _drawn(n: int, share: float, rng: np.random.Generator) -> Mask:
    mask = np.zeros(n, bool)
    mask[rng.permutation(n)[: max(1, round(share * n))]] = True
    return mask


def _latest(ratings: Ratings, share: float) -> Mask:
    """Mark the ratings after the moment that parts off the share; those at that moment stay to learn from."""
    if ratings.times is None:
        remedy = "Name their column (time=..., --time-column), or use protocol holdout"
        raise RatingsError(f"protocol temporal needs timestamps, and these ratings have none. {remedy}.")
    keep = ratings.n_ratings - max(1, round(share * ratings.n_ratings))
    border = np.partition(ratings.times, keep - 1)[keep - 1] if keep else -np.inf
    after: Mask = ratings.times > border
    return after
