"""Ratings: raw ids and ordered levels outside, compressed integer arrays inside.

Users speak in their own ids and levels. Every module above this one works on *codes*: the code of a user,
an item or a level is its position in `Ratings.users`, `Ratings.items` or `Ratings.levels`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._rows import (
    ByUser,
    Column,
    Lines,
    Table,
    check_codes,
    encode,
    find_id,
    id_table,
    keep,
    knows_id,
    look_up,
    repeated,
    sort_by_user,
    sort_times,
    view_by_item,
)
from doublefeature.errors import RatingsError, SettingsError, shorten, show
from doublefeature.levels import Level, Levels, check_levels, format_levels, number
from doublefeature.outline import NO_COVARIATES as NO_COVARIATES
from doublefeature.outline import Covariates as Covariates
from doublefeature.outline import Outline, begin_fingerprint, end_fingerprint
from doublefeature.outline import StreamedRatings as StreamedRatings

Duplicates = Literal["error", "first", "last"]


class RatingArrays(NamedTuple):
    """The ratings in codes, twice: by user, and by item with a way back. Thirteen bytes a rating."""

    user_ptr: NDArray[np.int64]  # (n_users + 1,)  ratings of user u: user_ptr[u]:user_ptr[u + 1]
    item_codes: NDArray[np.uint32]  # (n_ratings,)  rated items, ascending within a user
    levels: NDArray[np.uint8]  # (n_ratings,)  level codes, in the order of item_codes
    item_ptr: NDArray[np.int64]  # (n_items + 1,)  raters of item i: item_ptr[i]:item_ptr[i + 1]
    user_codes: NDArray[np.uint32]  # (n_ratings,)  raters, ascending within an item
    positions: NDArray[np.uint32]  # (n_ratings,)  where that rating sits in item_codes and levels


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Who rated what, and how: the data every model here learns from.

    Made by `read_ratings`, `from_triples` or `from_codes`, and never changed afterwards. Ratings are kept by
    user, then by item; this is the *stored order* in which `triples`, `values` and masks run.

    Attributes
    ----------
    users, items
        Raw ids; the code of an id is its position.
    levels
        Level labels from lowest to highest.
    arrays
        The ratings in codes, by user and by item.
    times
        When each rating was given, in stored order and in any unit; None when the source does not say. Two ratings
        that differ in their times only have the same fingerprint.
    covariates
        Columns of users and items as numbers, where a model is to use them (see `with_covariates`).

    Examples
    --------
    >>> Ratings.from_triples(["ann", "bob"], ["Alien", "Alien"], [5, 3])
    Ratings(2 users × 1 items, 2 ratings, levels 1..5)
    """

    users: Sequence[Hashable]
    items: Sequence[Hashable]
    levels: Levels
    arrays: RatingArrays
    times: NDArray[np.float64] | None = None
    covariates: Covariates = NO_COVARIATES

    @classmethod
    def from_triples(
        cls,
        users: Iterable[Hashable] | Column,
        items: Iterable[Hashable] | Column,
        values: Iterable[Hashable] | Column,
        *,
        levels: str | Iterable[Level] | None = None,
        times: Iterable[float] | None = None,
        source: str = "ratings",
        duplicates: Duplicates = "error",
        lines: Lines = None,
    ) -> Ratings:
        """Build from three columns of raw ids and values, one entry per rating.

        Parameters
        ----------
        users, items, values
            Iterables, arrays, or columns already encoded. Ids are sorted, so row order does not matter.
        levels
            Ordered levels, as a sequence or in the notation of `parse_levels`. None reads them off the values: 200
            ratings and more show their scale, in equal steps from the lowest to the highest; fewer take the first of
            1..5, 0..1, 0.5..5 by 0.5, 1..10 and 0..10 that holds them all. Declare levels when you know them.
        times
            When each rating was given: finite numbers, such as seconds.
        source
            What error messages call the data.
        duplicates
            When a user rated an item twice: refuse ("error"), or keep the "first" or the "last" row.
        lines
            Line number of each row for error messages, which otherwise count rows from 0.
        """
        declared = None if levels is None else check_levels(levels)
        rows = Table(encode(users), encode(items), encode(values), source, lines).with_sorted_ids()
        scale = rows.infer_levels() if declared is None else declared
        return cls._build(rows.with_levels(scale), scale, duplicates, times)

    @classmethod
    def from_codes(
        cls,
        user_codes: NDArray[np.integer],
        item_codes: NDArray[np.integer],
        level_codes: NDArray[np.integer],
        *,
        users: Iterable[Hashable],
        items: Iterable[Hashable],
        levels: str | Iterable[Level],
        times: Iterable[float] | None = None,
    ) -> Ratings:
        """Build from codes into the given id tables; ids may be ranges, which cost no memory.

        Codes of type uint32, uint32 and uint8 are used without a copy. Ids without ratings are allowed.
        """
        scale = check_levels(levels)
        rows = Table(
            check_codes(user_codes, id_table(users, "user"), "user", np.uint32),
            check_codes(item_codes, id_table(items, "item"), "item", np.uint32),
            check_codes(level_codes, scale, "level", np.uint8),
        )
        return cls._build(rows, scale, "error", times)

    @classmethod
    def _build(
        cls, rows: Table, levels: Levels, duplicates: Duplicates, times: Iterable[float] | None = None
    ) -> Ratings:
        if duplicates not in ("error", "first", "last"):
            raise SettingsError(f"duplicates must be 'error', 'first' or 'last', got {show(duplicates)}.")
        rows.check_sizes()
        moments = None if times is None else sort_times(rows, times)
        (users, user_codes), (items, item_codes), (_, level_codes) = rows.users, rows.items, rows.values
        by_user = sort_by_user(user_codes, item_codes, level_codes, len(users), len(items))
        again = repeated(by_user[0], by_user[1])
        if again.any():
            if duplicates == "error":
                rows.refuse_repeat(by_user[0], by_user[1], int(again.argmax()))
            kept = ~again if duplicates == "first" else ~np.append(again[1:], False)
            by_user, moments = keep(by_user, kept), None if moments is None else moments[kept]
        return cls(users, items, levels, _both_views(by_user, len(items)), moments)

    @property
    def n_users(self) -> int:
        """Number of users, those without ratings included."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Number of items, those without ratings included."""
        return len(self.items)

    @property
    def n_levels(self) -> int:
        """Number of levels, seen in the data or not."""
        return len(self.levels)

    @property
    def n_ratings(self) -> int:
        """Number of ratings."""
        return int(self.arrays.item_codes.size)

    @property
    def density(self) -> float:
        """Share of all (user, item) pairs that carry a rating."""
        return self.n_ratings / max(1, self.n_users * self.n_items)

    @property
    def level_counts(self) -> NDArray[np.int64]:
        """How often each level was given."""
        counts = [np.count_nonzero(self.arrays.levels == level) for level in range(self.n_levels)]
        return np.array(counts, np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of levels, ids and ratings in hexadecimal: the same for any order of the source's rows."""
        digest = begin_fingerprint(self.outline)
        digest.update(self.arrays.item_codes.astype("<u4", copy=False).data)
        digest.update(self.arrays.levels.data)
        return end_fingerprint(digest, self.covariates)

    @property
    def outline(self) -> Outline:
        """Ids, levels and covariates, and how many ratings each user and item has."""
        arrays = self.arrays
        return Outline(self.users, self.items, self.levels, arrays.user_ptr, arrays.item_ptr, self.covariates)

    def user_code(self, user: Hashable) -> int:
        """Code of a raw user id."""
        return find_id(user, self._user_index, "user")

    def item_code(self, item: Hashable) -> int:
        """Code of a raw item id."""
        return find_id(item, self._item_index, "item")

    def has_user(self, user: Hashable) -> bool:
        """Whether a raw user id is known."""
        return knows_id(user, self._user_index, "user")

    def has_item(self, item: Hashable) -> bool:
        """Whether a raw item id is known."""
        return knows_id(item, self._item_index, "item")

    def rated_items(self, user: Hashable) -> dict[Hashable, Level]:
        """Return a user's rated items and the levels given, in raw ids and labels."""
        code = self.user_code(user)
        part = slice(self.arrays.user_ptr[code], self.arrays.user_ptr[code + 1])
        pairs = zip(self.arrays.item_codes[part], self.arrays.levels[part], strict=True)
        return {self.items[item]: self.levels[level] for item, level in pairs}

    def triples(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint8]]:
        """User, item and level code of every rating, in stored order."""
        users = np.repeat(np.arange(self.n_users, dtype=np.uint32), np.diff(self.arrays.user_ptr))
        return users, self.arrays.item_codes, self.arrays.levels

    def values(self) -> NDArray[np.float64]:
        """Every rating as a number, in stored order; text levels have no numbers and are refused."""
        if isinstance(self.levels[0], str):
            raise RatingsError(f"levels {format_levels(self.levels)} are text. Use level codes instead of values.")
        return look_up(np.array(self.levels, float), self.arrays.levels)

    def subset(self, mask: NDArray[np.bool_]) -> Ratings:
        """Keep the ratings that a mask in stored order marks, and every id."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (self.n_ratings,):
            raise RatingsError(f"a mask needs {self.n_ratings} booleans, got {mask.dtype} of shape {mask.shape}.")
        times = None if self.times is None else self.times[mask]
        return replace(self, arrays=_both_views(keep(self.arrays[:3], mask), self.n_items), times=times)

    def with_unrated(self, users: Iterable[Hashable] = (), items: Iterable[Hashable] = ()) -> Ratings:
        """Return the ratings with more ids, which have none and come after the others; those known are left out."""
        return self.with_outline(self.outline.with_unrated(users, items))

    def with_outline(self, outline: Outline) -> Ratings:
        """Return the ratings with the ids and covariates of an outline that has the same ratings."""
        arrays = self.arrays._replace(user_ptr=outline.user_ptr, item_ptr=outline.item_ptr)
        return replace(self, users=outline.users, items=outline.items, arrays=arrays, covariates=outline.covariates)

    def split(self, test_share: float = 0.2, seed: int = 0) -> tuple[Ratings, Ratings]:
        """Split at random by rating into a training and a test part, with the same id tables."""
        test = np.zeros(self.n_ratings, bool)
        test[drawn_at_random(self.n_ratings, test_share, seed)] = True
        return self.subset(~test), self.subset(test)

    def split_one_per_user(self, seed: int = 0) -> tuple[Ratings, Ratings]:
        """Hold out one random rating of every user who has two or more."""
        starts, counts = self.arrays.user_ptr[:-1], np.diff(self.arrays.user_ptr)
        enough = counts >= 2
        test = np.zeros(self.n_ratings, bool)
        test[starts[enough] + _generator(seed).integers(0, counts[enough])] = True
        return self.subset(~test), self.subset(test)

    def top_items(self, n: int, *, min_ratings_per_user: int = 1) -> Ratings:
        """Keep the n most rated items (ties by code), then users with enough ratings among them."""
        ranking = np.argsort(-np.diff(self.arrays.item_ptr), kind="stable")
        keep_item = np.zeros(self.n_items, bool)
        keep_item[ranking[: _whole(n, "n", 1)]] = True
        among = self.subset(keep_item[self.arrays.item_codes])
        users, items, levels = among.triples()
        left = np.bincount(users, minlength=self.n_users)
        keep_user = left >= _whole(min_ratings_per_user, "min_ratings_per_user", 1)
        rows = keep_user[users]
        kept = np.flatnonzero(keep_user), np.flatnonzero(keep_item)
        chosen = Ratings.from_codes(
            (np.cumsum(keep_user) - 1)[users[rows]],
            (np.cumsum(keep_item) - 1)[items[rows]],
            levels[rows],
            users=[self.users[code] for code in kept[0].tolist()],
            items=[self.items[code] for code in kept[1].tolist()],
            levels=self.levels,
            times=None if among.times is None else among.times[rows],
        )
        return replace(chosen, covariates=self.covariates.of(*kept))

    @cached_property
    def _user_index(self) -> dict[Hashable, int]:
        return {label: code for code, label in enumerate(self.users)}

    @cached_property
    def _item_index(self) -> dict[Hashable, int]:
        return {label: code for code, label in enumerate(self.items)}

    def __len__(self) -> int:
        return self.n_ratings

    def __repr__(self) -> str:
        size = f"{self.n_users} users × {self.n_items} items, {self.n_ratings} ratings"
        return f"Ratings({size}, levels {shorten(format_levels(self.levels))})"


def drawn_at_random(n_ratings: int, share: float, seed: int) -> NDArray[np.int64]:
    """Return places of a share of the ratings, in stored order, that is drawn at random."""
    if not 0 < number(share) < 1:
        raise SettingsError(f"test_share must lie between 0 and 1, got {show(share)}.")
    return _generator(seed).permutation(n_ratings)[: round(share * n_ratings)]


def _both_views(by_user: ByUser, n_items: int) -> RatingArrays:
    return RatingArrays(*by_user, *view_by_item(by_user[0], by_user[1], n_items))


def _whole(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SettingsError(f"{name} must be a whole number of at least {least}, got {show(value)}.")
    return int(value)


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(_whole(seed, "seed", 0))
