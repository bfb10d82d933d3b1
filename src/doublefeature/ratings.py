"""Ratings: raw ids and ordered levels outside, compressed integer arrays inside.

Users speak in their own ids and levels. Every module above this one works on *codes*: the code of a user,
an item or a level is its position in `Ratings.users`, `Ratings.items` or `Ratings.levels`.

In this file: `Ratings`, then levels and their notation, then raw rows and what can be wrong with them, then
the sorting.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import RatingsError, SettingsError

Level = int | float | str
Duplicates = Literal["error", "first", "last"]
Lines = Callable[[int], int] | Sequence[int] | NDArray[np.integer] | None

MAX_LEVELS = 255
MAX_IDS = 2**31 - 1
MAX_RATINGS = 2**32 - 1
MAX_ID_CHARACTERS = 1000
MAX_GUESSED_LEVELS = 20
STANDARD_SCALES = ("1..5", "0..1", "0.5..5:0.5", "1..10", "0..10")


class RatingArrays(NamedTuple):
    """The ratings in codes, twice: by user, and by item with a way back. Thirteen bytes a rating."""

    user_ptr: NDArray[np.int64]  # (n_users + 1,)  ratings of user u: user_ptr[u]:user_ptr[u + 1]
    item_codes: NDArray[np.uint32]  # (n_ratings,)  rated items, ascending within a user
    levels: NDArray[np.uint8]  # (n_ratings,)  level codes, in the order of item_codes
    item_ptr: NDArray[np.int64]  # (n_items + 1,)  raters of item i: item_ptr[i]:item_ptr[i + 1]
    user_codes: NDArray[np.uint32]  # (n_ratings,)  raters, ascending within an item
    positions: NDArray[np.uint32]  # (n_ratings,)  where that rating sits in item_codes and levels


class Column(NamedTuple):
    """A column as its labels, in any order, and for each row the position of its label."""

    labels: Sequence[Hashable]
    codes: NDArray[np.unsignedinteger[Any]]


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

    Examples
    --------
    >>> Ratings.from_triples(["ann", "bob"], ["Alien", "Alien"], [5, 3])
    Ratings(2 users × 1 items, 2 ratings, levels 1..5)
    """

    users: Sequence[Hashable]
    items: Sequence[Hashable]
    levels: tuple[Level, ...]
    arrays: RatingArrays

    @classmethod
    def from_triples(
        cls,
        users: Iterable[Hashable] | Column,
        items: Iterable[Hashable] | Column,
        values: Iterable[Hashable] | Column,
        *,
        levels: str | Iterable[Level] | None = None,
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
            Ordered levels, as a sequence or in the notation of `parse_levels`. None takes the first of 1..5,
            0..1, 0.5..5 by 0.5, 1..10 and 0..10 that holds every value, else the distinct numbers when there
            are at most 20. A sample need not show every level: declare them when you know them.
        source
            What error messages call the data.
        duplicates
            When a user rated an item twice: refuse ("error"), or keep the "first" or the "last" row.
        lines
            Line number of each row for error messages, which otherwise count rows from 0.
        """
        declared = None if levels is None else check_levels(levels)
        table = _Table(encode(users), encode(items), encode(values), source, lines)
        return cls._build(table.in_order(declared), duplicates)

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
    ) -> Ratings:
        """Build from codes into the given id tables; ids may be ranges, which cost no memory.

        Codes of type uint32, uint32 and uint8 are used without a copy. Ids without ratings are allowed.
        """
        scale = check_levels(levels)
        table = _Table(
            _check_codes(user_codes, _id_table(users, "user"), "user", np.uint32),
            _check_codes(item_codes, _id_table(items, "item"), "item", np.uint32),
            _check_codes(level_codes, scale, "level", np.uint8),
            source="ratings",
            lines=None,
        )
        return cls._build(table, "error")

    @classmethod
    def _build(cls, table: _Table, duplicates: Duplicates) -> Ratings:
        if duplicates not in ("error", "first", "last"):
            raise SettingsError(f"duplicates must be 'error', 'first' or 'last', got {show(duplicates)}.")
        table.check_sizes()
        (users, user_codes), (items, item_codes), (levels, level_codes) = table.columns
        by_user = _sort_by_user(user_codes, item_codes, level_codes, len(users), len(items))
        repeated = _repeated(by_user[0], by_user[1])
        if repeated.any():
            if duplicates == "error":
                table.refuse_repeat(by_user[0], by_user[1], int(repeated.argmax()))
            by_user = _keep(by_user, ~repeated if duplicates == "first" else ~np.append(repeated[1:], False))
        arrays = RatingArrays(*by_user, *_view_by_item(by_user[0], by_user[1], len(items)))
        return cls(users, items, tuple(levels), arrays)  # type: ignore[arg-type]

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
        digest = hashlib.sha256()
        for labels in (self.levels, self.users, self.items):
            digest.update(f"{len(labels)}\n".encode())
            digest.update("\n".join(map(repr, labels)).encode())
        for part in (self.arrays.user_ptr, self.arrays.item_codes, self.arrays.levels):
            digest.update(part.astype(part.dtype.newbyteorder("<"), copy=False).data)
        return digest.hexdigest()

    def user_code(self, user: Hashable) -> int:
        """Code of a raw user id."""
        return _find(user, self._user_index, "user")

    def item_code(self, item: Hashable) -> int:
        """Code of a raw item id."""
        return _find(item, self._item_index, "item")

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
            raise RatingsError(
                f"levels {format_levels(self.levels)} are text. Use level codes instead of values."
            )
        return _look_up(np.array(self.levels, float), self.arrays.levels)

    def subset(self, mask: NDArray[np.bool_]) -> Ratings:
        """Keep the ratings that a mask in stored order marks, and every id."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (self.n_ratings,):
            raise RatingsError(
                f"a mask needs {self.n_ratings} booleans, got {mask.dtype} of shape {mask.shape}."
            )
        by_user = _keep(self.arrays[:3], mask)
        return replace(
            self, arrays=RatingArrays(*by_user, *_view_by_item(by_user[0], by_user[1], self.n_items))
        )

    def split(self, test_share: float = 0.2, seed: int = 0) -> tuple[Ratings, Ratings]:
        """Split at random by rating into a training and a test part, with the same id tables."""
        if not 0 < number(test_share) < 1:
            raise SettingsError(f"test_share must lie between 0 and 1, got {show(test_share)}.")
        test = np.zeros(self.n_ratings, bool)
        drawn = _generator(seed).permutation(self.n_ratings)[: round(test_share * self.n_ratings)]
        test[drawn] = True
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
        users, items, levels = self.subset(keep_item[self.arrays.item_codes]).triples()
        left = np.bincount(users, minlength=self.n_users)
        keep_user = left >= _whole(min_ratings_per_user, "min_ratings_per_user", 1)
        rows = keep_user[users]
        return Ratings.from_codes(
            (np.cumsum(keep_user) - 1)[users[rows]],
            (np.cumsum(keep_item) - 1)[items[rows]],
            levels[rows],
            users=[self.users[code] for code in np.flatnonzero(keep_user).tolist()],
            items=[self.items[code] for code in np.flatnonzero(keep_item).tolist()],
            levels=self.levels,
        )

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
        return f"Ratings({size}, levels {_shorten(format_levels(self.levels))})"


def parse_levels(text: str) -> tuple[Level, ...]:
    """Read declared levels: ``"1..5"``, ``"0.5..5:0.5"``, ``"low<mid<high"`` or ``"1,2,3"``."""
    if ".." not in text:
        return check_levels([part.strip() for part in text.split("<" if "<" in text else ",")])
    ends, _, step_text = text.partition(":")
    try:
        low, high = (Decimal(end.strip()) for end in ends.split(".."))
        step = Decimal(step_text.strip() or 1)
        steps = (high - low) / step
        usable = step > 0 and 1 <= steps < MAX_LEVELS and steps == steps.to_integral_value()
    except (ValueError, ArithmeticError):
        raise RatingsError(
            f"levels {show(text)} cannot be read. Write 1..5, 0.5..5:0.5 or low<high."
        ) from None
    if not usable:
        raise RatingsError(f"levels {show(text)} must climb in equal steps, {MAX_LEVELS} levels at most.")
    return check_levels([float(low + k * step) for k in range(int(steps) + 1)])


def check_levels(levels: str | Iterable[object]) -> tuple[Level, ...]:
    """Check levels given from lowest to highest: all numbers, which must increase, or all text."""
    if isinstance(levels, str):
        return parse_levels(levels)
    labels = [label.item() if isinstance(label, np.generic) else label for label in levels]
    if not 2 <= len(labels) <= MAX_LEVELS:
        raise RatingsError(
            f"{len(labels)} level(s) given, 2 to {MAX_LEVELS} are possible. Try levels='1..5'."
        )
    numbers = [number(label) for label in labels]
    if all(map(math.isfinite, numbers)):
        if any(high <= low for low, high in pairwise(numbers)):
            raise RatingsError(f"levels {show(labels)} must increase and not repeat.")
        return tuple(map(int, numbers)) if all(map(float.is_integer, numbers)) else tuple(numbers)
    texts = [label.strip() for label in labels if isinstance(label, str) and label.strip()]
    if len(texts) < len(labels):
        raise RatingsError(f"levels {show(labels)} must be all numbers or all text.")
    if len(set(texts)) < len(texts):
        raise RatingsError(f"levels {show(labels)} must not repeat.")
    return tuple(texts)


def format_levels(levels: Sequence[Level]) -> str:
    """Write levels in the notation that `parse_levels` reads."""
    if isinstance(levels[0], str):
        return "<".join(map(str, levels))
    texts = [str(level).removesuffix(".0") for level in levels]
    gaps = {Decimal(high) - Decimal(low) for low, high in pairwise(texts)}
    if len(gaps) > 1:
        return ",".join(texts)
    step = gaps.pop()
    return f"{texts[0]}..{texts[-1]}" + ("" if step == 1 else f":{step}")


def number(label: object) -> float:
    """Return the label as a number, NaN when it is none."""
    try:
        return math.nan if isinstance(label, str) and "_" in label else float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _level_positions(labels: Sequence[Hashable], levels: tuple[Level, ...]) -> NDArray[np.int64]:
    """Position of each label among the levels, -1 where it is none of them."""
    if isinstance(levels[0], str):
        index = {level: k for k, level in enumerate(levels)}
        return np.array([index.get(str(label).strip(), -1) for label in labels], np.int64)
    known, given = np.array(levels, float), np.array([number(label) for label in labels])
    tolerance = 1e-6 * max(1.0, float(np.abs(known).max()))
    nearest = np.searchsorted(known, given - tolerance).clip(max=len(levels) - 1)
    return np.where(np.abs(known[nearest] - given) <= tolerance, nearest, -1)


def encode(values: Iterable[Hashable] | Column) -> Column:
    """Split raw values into labels and codes: numeric arrays by sorting, anything else by hashing."""
    if isinstance(values, Column):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iufb":
        distinct, codes = np.unique(values, return_inverse=True)
        return Column(distinct.tolist(), codes.astype(np.uint32))
    rows = values.tolist() if isinstance(values, np.ndarray) else list(values)
    try:
        table = {label: code for code, label in enumerate(dict.fromkeys(rows))}
    except TypeError as problem:
        raise RatingsError(f"ids and ratings must be numbers or text: {problem}.") from None
    labels = [label.item() if isinstance(label, np.generic) else label for label in table]
    return Column(labels, np.fromiter(map(table.__getitem__, rows), np.uint32, len(rows)))


@dataclass(frozen=True)
class _Table:
    """Rows as they were read, with what is needed to say where a bad one is."""

    users: Column
    items: Column
    values: Column
    source: str
    lines: Lines

    @property
    def columns(self) -> tuple[Column, Column, Column]:
        return self.users, self.items, self.values

    def line(self, row: int) -> str:
        if self.lines is None:
            return f"row {row}"
        return f"line {self.lines(row) if callable(self.lines) else self.lines[row]}"

    def describe(self, row: int) -> str:
        user, item, value = (show(labels[codes[row]]) for labels, codes in self.columns)
        return f"{self.line(row)}, user {user}, item {item}, value {value}"

    def check_sizes(self) -> None:
        users, items, values = (codes.size for _, codes in self.columns)
        if not users == items == values:
            raise RatingsError(f"{self.source}: {users} users, {items} items, {values} ratings do not match.")
        if users > MAX_RATINGS:
            raise RatingsError(f"{self.source}: {users} ratings, {MAX_RATINGS} are possible.")

    def in_order(self, levels: tuple[Level, ...] | None) -> _Table:
        """Give every column labels in an order that the order of rows cannot change."""
        self.check_sizes()
        if not self.users.codes.size:
            raise RatingsError(f"{self.source}: there are no ratings. At least one is needed.")
        users, items = self._ids(self.users, "user"), self._ids(self.items, "item")
        scale = self._guess_levels() if levels is None else levels
        positions = _level_positions(self.values.labels, scale)
        outside = _look_up(positions < 0, self.values.codes)
        if outside.any():
            first = self.describe(int(outside.argmax()))
            what = f"{outside.sum()} rating(s) lie outside levels {_shorten(format_levels(scale))}"
            raise RatingsError(f"{self.source}: {what} (first: {first}). Pass levels=... or clean the data.")
        values = Column(scale, _look_up(positions.astype(np.uint8), self.values.codes))
        return _Table(users, items, values, self.source, self.lines)

    def _ids(self, column: Column, role: str) -> Column:
        for code, label in enumerate(column.labels):
            if problem := _id_problem(label):
                where = self.line(int((column.codes == code).argmax()))
                raise RatingsError(f"{self.source}, {where}: the {role} id {problem}. Correct or drop it.")
        ordered: list[Any] = sorted(set(column.labels), key=repr)
        with suppress(TypeError):  # ids that cannot be compared stay in the order of their repr
            ordered = sorted(ordered)
        code_of = {label: code for code, label in enumerate(ordered)}
        recoded = np.array([code_of[label] for label in column.labels], np.uint32)
        return Column(tuple(ordered), _look_up(recoded, column.codes))

    def _guess_levels(self) -> tuple[Level, ...]:
        labels, codes = self.values
        numbers = np.array([number(label) for label in labels])
        if not np.isfinite(numbers).all():
            first = self.describe(int((~np.isfinite(numbers))[codes].argmax()))
            remedy = "Correct the row, or declare text levels in order, such as levels='low<mid<high'"
            raise RatingsError(f"{self.source}: a rating is not a finite number ({first}). {remedy}.")
        for scale in map(parse_levels, STANDARD_SCALES):
            if (_level_positions(labels, scale) >= 0).all():
                return scale
        distinct = np.unique(numbers)
        if not 2 <= distinct.size <= MAX_GUESSED_LEVELS:
            what = f"{distinct.size} distinct rating(s) from {distinct[0]:g} to {distinct[-1]:g}"
            raise RatingsError(f"{self.source}: {what} fit no usual scale. Pass levels, such as '0..100'.")
        return check_levels(distinct)

    def refuse_repeat(self, user_ptr: NDArray[np.int64], item_codes: NDArray[np.uint32], place: int) -> None:
        user, item = int(np.searchsorted(user_ptr, place, side="right")) - 1, int(item_codes[place])
        rows = np.flatnonzero((self.users.codes == user) & (self.items.codes == item))[:2].tolist()
        pair = f"user {show(self.users.labels[user])} rated item {show(self.items.labels[item])} twice"
        labels, codes = self.values
        places = ", ".join(f"{self.line(row)}: {show(labels[codes[row]])}" for row in rows)
        raise RatingsError(
            f"{self.source}: {pair} ({places}). Pass duplicates='first' or 'last', or drop one."
        )


def _look_up(table: NDArray[Any], codes: NDArray[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """Return ``table[codes]`` without an index array of eight bytes a row."""
    found = np.empty(codes.size, table.dtype)
    for start in range(0, codes.size, 2**16):
        found[start : start + 2**16] = table[codes[start : start + 2**16]]
    return found


def _id_problem(label: Hashable) -> str | None:
    if isinstance(label, str):
        if "\0" in label:
            return "contains a NUL character"
        if len(label) > MAX_ID_CHARACTERS:
            return f"has {len(label)} characters, {MAX_ID_CHARACTERS} are possible"
        return None if label else "is missing"
    missing = isinstance(label, float) and math.isnan(label)
    return "is missing" if missing or type(label).__name__ in ("NoneType", "NAType", "NaTType") else None


def _id_table(ids: Iterable[Hashable], role: str) -> Sequence[Hashable]:
    labels = ids if isinstance(ids, range) else tuple(ids.tolist() if isinstance(ids, np.ndarray) else ids)
    if len(labels) > MAX_IDS:
        raise RatingsError(f"{len(labels)} {role} ids given, {MAX_IDS} are possible.")
    if not isinstance(labels, range) and len(set(labels)) < len(labels):
        raise RatingsError(
            f"{role} ids must differ from one another, {len(labels) - len(set(labels))} repeat."
        )
    return labels


def _check_codes(
    codes: NDArray[np.integer], labels: Sequence[Hashable], role: str, dtype: type[np.unsignedinteger[Any]]
) -> Column:
    codes = np.asarray(codes)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise RatingsError(f"{role} codes must be one row of whole numbers, got {codes.dtype} {codes.shape}.")
    if codes.size and not 0 <= codes.min() <= codes.max() < len(labels):
        raise RatingsError(
            f"{role} codes must lie in 0..{len(labels) - 1}, got {codes.min()}..{codes.max()}."
        )
    return Column(labels, np.ascontiguousarray(codes, dtype))


def _find(label: Hashable, index: Mapping[Hashable, int], role: str) -> int:
    try:
        return index[label]
    except (KeyError, TypeError):
        twin = number(label) if isinstance(label, str) else str(label)
        meant = [f"Did you mean {show(key)}?" for key in index if key == twin]
        hint = meant[0] if meant else f"Known ids look like {', '.join(map(show, list(index)[:3]))}."
        raise RatingsError(f"{role} {show(label)} is not known. {hint}") from None


def _whole(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SettingsError(f"{name} must be a whole number of at least {least}, got {show(value)}.")
    return int(value)


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(_whole(seed, "seed", 0))


def show(value: object) -> str:
    """Show any value on one short line."""
    text = repr(value)
    return _shorten(text if text.isprintable() else repr(text))


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"


_ByUser = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8]]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    return cast(_Function, numba.njit(cache=True, nogil=True)(function))


@_compiled
def _sort_by_user(users: Any, items: Any, levels: Any, n_users: int, n_items: int) -> _ByUser:
    """Sort by counting, first by item, then by user: both stable, so repeats of a pair stay in row order."""
    user_ptr, item_next = np.zeros(n_users + 1, np.int64), np.zeros(n_items + 1, np.int64)
    for row in range(users.size):
        user_ptr[users[row] + 1] += 1
        item_next[items[row] + 1] += 1
    user_ptr, item_next = np.cumsum(user_ptr), np.cumsum(item_next)
    by_item = np.empty(users.size, np.uint32)
    for row in range(users.size):
        by_item[item_next[items[row]]] = row
        item_next[items[row]] += 1
    user_next = user_ptr.copy()
    item_codes, level_codes = np.empty(users.size, np.uint32), np.empty(users.size, np.uint8)
    for row in by_item:
        place = user_next[users[row]]
        item_codes[place], level_codes[place] = items[row], levels[row]
        user_next[users[row]] += 1
    return user_ptr, item_codes, level_codes


@_compiled
def _view_by_item(user_ptr: Any, item_codes: Any, n_items: int) -> tuple[Any, Any, Any]:
    """Raters of each item in user order, and where their ratings sit."""
    item_ptr = np.zeros(n_items + 1, np.int64)
    for item in item_codes:
        item_ptr[item + 1] += 1
    item_ptr = np.cumsum(item_ptr)
    item_next = item_ptr.copy()
    user_codes, positions = np.empty(item_codes.size, np.uint32), np.empty(item_codes.size, np.uint32)
    for user in range(user_ptr.size - 1):
        for place in range(user_ptr[user], user_ptr[user + 1]):
            slot = item_next[item_codes[place]]
            user_codes[slot], positions[slot] = user, place
            item_next[item_codes[place]] += 1
    return item_ptr, user_codes, positions


def _repeated(user_ptr: NDArray[np.int64], item_codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Mark every rating whose pair also precedes it."""
    repeated = np.zeros(item_codes.size, bool)
    np.equal(item_codes[1:], item_codes[:-1], out=repeated[1:])
    starts = user_ptr[:-1]
    repeated[starts[starts < item_codes.size]] = False
    return repeated


def _keep(by_user: _ByUser, mask: NDArray[np.bool_]) -> _ByUser:
    user_ptr, item_codes, levels = by_user
    kept_before = np.zeros(mask.size + 1, np.int64)
    np.cumsum(mask, out=kept_before[1:])
    return kept_before[user_ptr], item_codes[mask], levels[mask]
