"""Ratings from outside: ids, levels, covariates and counts, and ratings that only pass by."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._rows import id_problem, id_table, order_ids
from doublefeature.levels import Levels

if TYPE_CHECKING:
    from hashlib import _Hash as Digest


class Covariates(NamedTuple):
    """What is known of users and items besides the ratings, as numbers of mean 0 (see `with_covariates`)."""

    users: NDArray[np.float64] | None = None  # (n_users, columns)
    items: NDArray[np.float64] | None = None  # (n_items, columns)
    user_names: tuple[str, ...] = ()
    item_names: tuple[str, ...] = ()

    def of(self, user_codes: NDArray[np.int64], item_codes: NDArray[np.int64]) -> Covariates:
        """Return the rows of some users and items."""
        users = None if self.users is None else self.users[user_codes]
        items = None if self.items is None else self.items[item_codes]
        return self._replace(users=users, items=items)


NO_COVARIATES = Covariates()


@dataclass(frozen=True, eq=False)
class Outline:
    """What there is to know of ratings without the ratings: ids, levels, and how many each user and item has."""

    users: Sequence[Hashable]
    items: Sequence[Hashable]
    levels: Levels
    user_ptr: NDArray[np.int64]
    item_ptr: NDArray[np.int64]
    covariates: Covariates = NO_COVARIATES

    @property
    def n_ratings(self) -> int:
        """Number of ratings."""
        return int(self.user_ptr[-1])

    def with_unrated(self, users: Iterable[Hashable] = (), items: Iterable[Hashable] = ()) -> Outline:
        """Return it with more ids, which have no ratings and come after the others; those known are left out."""
        more_users, more_items = _new_ids(users, self.users), _new_ids(items, self.items)
        return replace(
            self,
            users=id_table((*self.users, *more_users), "user") if more_users else self.users,
            items=id_table((*self.items, *more_items), "item") if more_items else self.items,
            user_ptr=_longer(self.user_ptr, len(more_users)),
            item_ptr=_longer(self.item_ptr, len(more_items)),
        )


def _new_ids(ids: Iterable[Hashable], known: Sequence[Hashable]) -> tuple[Hashable, ...]:
    there = set(known)
    return order_ids([label for label in ids if label not in there and id_problem(label) is None])[0]


def _longer(starts: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return where rows begin when so many empty ones follow."""
    return np.concatenate([starts, np.full(rows, starts[-1])])


def row_pointers(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each row begins when rows of so many entries are put end to end, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


class StreamedRatings:
    """Ratings that pass in pieces, by user: first the items rated, then the levels. They can pass once."""

    def __init__(self, outline: Outline, item_codes: Iterable[bytes], levels: Iterable[bytes]) -> None:
        self.outline = outline
        self._item_codes, self._levels = item_codes, levels
        self._digest = begin_fingerprint(outline)

    def item_codes(self) -> Iterator[bytes]:
        """Yield the codes of the items rated, four bytes each, the lowest first."""
        return self._pass(self._item_codes)

    def level_codes(self) -> Iterator[bytes]:
        """Yield the codes of the levels given, one byte each."""
        return self._pass(self._levels)

    def _pass(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._digest.update(piece)
            yield piece

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the ratings, once all have passed."""
        return end_fingerprint(self._digest, self.outline.covariates)


def begin_fingerprint(outline: Outline) -> Digest:
    """Return the digest of what ratings look like from outside."""
    digest = hashlib.sha256()
    for labels in (outline.levels, outline.users, outline.items):
        digest.update(f"{len(labels)}\n".encode())
        digest.update("\n".join(map(repr, labels)).encode())
    digest.update(outline.user_ptr.astype("<i8", copy=False).data)
    return digest


def end_fingerprint(digest: Digest, covariates: Covariates) -> str:
    """Return the fingerprint of ratings that the digest has seen."""
    digest = digest.copy()
    for names, table in zip(covariates[2:], covariates[:2], strict=True):
        if table is not None:
            digest.update("\n".join(names).encode())
            digest.update(np.ascontiguousarray(table, "<f8").data)
    return digest.hexdigest()
