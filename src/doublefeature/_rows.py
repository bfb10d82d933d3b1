"""Raw rows → codes: encode columns, check ids, levels and repeats, sort by user and by item.

`Ratings` is built from these parts; readers hand over their columns already encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel
from doublefeature.errors import RatingsError, shorten, show
from doublefeature.levels import Levels, format_levels, infer_levels, level_positions, number

Lines = Callable[[int], int | str] | Sequence[int] | NDArray[np.integer] | None
"""Where each row stands: the number of its line, or words."""
ByUser = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8]]
"""The first three fields of `RatingArrays`: user_ptr, item_codes, levels."""

MAX_IDS = 2**31 - 1
MAX_RATINGS = 2**32 - 1
MAX_ID_CHARACTERS = 1000


class Column(NamedTuple):
    """A column as its labels, in any order, and for each row the position of its label."""

    labels: Sequence[Hashable]
    codes: NDArray[np.unsignedinteger[Any]]


class RawRows(NamedTuple):
    """The rows of a source as they were read."""

    users: Column
    items: Column
    values: Column
    source: str
    lines: Lines = None
    times: NDArray[np.float64] | None = None
    texts: bool = False  # ids are as written, and numbers if all of them can be


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
class Table:
    """Rows as they were read, with what is needed to say where a bad one is."""

    users: Column
    items: Column
    values: Column
    source: str = "ratings"
    lines: Lines = None

    def check_sizes(self) -> None:
        """Refuse columns of different lengths, and more rows than codes can number."""
        users, items, values = (column.codes.size for column in (self.users, self.items, self.values))
        if not users == items == values:
            raise RatingsError(f"{self.source}: {users} users, {items} items, {values} ratings do not match.")
        if users > MAX_RATINGS:
            raise RatingsError(f"{self.source}: {users} ratings, {MAX_RATINGS} are possible.")

    def with_sorted_ids(self) -> Table:
        """Check the ids, and number them in an order that the order of rows cannot change."""
        self.check_sizes()
        if not self.users.codes.size:
            raise RatingsError(f"{self.source}: there are no ratings. At least one is needed.")
        return replace(self, users=self._sort_ids(self.users, "user"), items=self._sort_ids(self.items, "item"))

    def infer_levels(self) -> Levels:
        """Read the levels off the values, which must all be numbers."""
        labels, codes = self.values
        endless = ~np.isfinite([number(label) for label in labels])
        if endless.any():
            first = self._describe(int(endless[codes].argmax()))
            remedy = "Correct the row, or declare text levels in order, such as levels='low<mid<high' (--levels)"
            raise RatingsError(f"{self.source}: a rating is not a finite number ({first}). {remedy}.")
        return infer_levels(labels, codes.size, self.source)

    def with_levels(self, levels: Levels) -> Table:
        """Give the values their positions among the levels; values that are none of them are refused."""
        positions = level_positions(self.values.labels, levels)
        outside = look_up(positions < 0, self.values.codes)
        if outside.any():
            first = self._describe(int(outside.argmax()))
            what = f"{outside.sum()} rating(s) lie outside levels {shorten(format_levels(levels))}"
            remedy = "Pass levels=..., on the command line --levels, or clean the data"
            raise RatingsError(f"{self.source}: {what} (first: {first}). {remedy}.")
        return replace(self, values=Column(levels, look_up(positions.astype(np.uint8), self.values.codes)))

    def refuse_repeat(self, user_ptr: NDArray[np.int64], item_codes: NDArray[np.uint32], place: int) -> None:
        """Say which pair sits twice in the sorted rows, the second time at `place`."""
        user, item = int(np.searchsorted(user_ptr, place, side="right")) - 1, int(item_codes[place])
        rows = np.flatnonzero((self.users.codes == user) & (self.items.codes == item))[:2].tolist()
        pair = f"user {show(self.users.labels[user])} rated item {show(self.items.labels[item])} twice"
        labels, codes = self.values
        places = ", ".join(f"{self._line(row)}: {show(labels[codes[row]])}" for row in rows)
        remedy = "Pass duplicates='first' or 'last', on the command line --duplicates, or drop one"
        raise RatingsError(f"{self.source}: {pair} ({places}). {remedy}.")

    def _sort_ids(self, column: Column, role: str) -> Column:
        for code, label in enumerate(column.labels):
            if problem := id_problem(label):
                where = self._line(int((column.codes == code).argmax()))
                raise RatingsError(f"{self.source}, {where}: the {role} id {problem}. Correct or drop it.")
        ordered, recoded = order_ids(column.labels)
        return Column(ordered, look_up(recoded, column.codes))

    def _line(self, row: int) -> str:
        return line_of(self.lines, row)

    def _describe(self, row: int) -> str:
        columns = (self.users, self.items, self.values)
        user, item, value = (show(labels[codes[row]]) for labels, codes in columns)
        return f"{self._line(row)}, user {user}, item {item}, value {value}"


def line_of(lines: Lines, row: int) -> str:
    """Say where a row stands."""
    if lines is None:
        return f"row {row}"
    place = lines(row) if callable(lines) else lines[row]
    return place if isinstance(place, str) else f"line {place}"


def order_ids(labels: Sequence[Hashable]) -> tuple[tuple[Hashable, ...], NDArray[np.uint32]]:
    """Return the different labels in an order that the order of rows cannot change, and the place of each label."""
    ordered: list[Any] = sorted(set(labels), key=repr)
    with suppress(TypeError):  # ids that cannot be compared stay in the order of their repr
        ordered = sorted(ordered)
    code_of = {label: code for code, label in enumerate(ordered)}
    return tuple(ordered), np.array([code_of[label] for label in labels], np.uint32)


def sort_times(rows: Table, times: Iterable[float]) -> NDArray[np.float64]:
    """Check the time of every row, and put them in the order of `sort_by_user`."""
    moments = np.asarray(times if isinstance(times, np.ndarray) else list(times))
    if moments.shape != rows.users.codes.shape or moments.dtype.kind not in "iuf":
        what = f"{moments.size} times of type {moments.dtype} for {rows.users.codes.size} ratings"
        raise RatingsError(f"{rows.source}: {what}. Give one number for every rating, or none at all.")
    if not np.isfinite(moments).all():
        raise RatingsError(
            f"{rows.source}: a time is missing or not finite. Give one for every rating, or none at all."
        )
    order = np.lexsort((rows.items.codes, rows.users.codes))
    return moments[order].astype(np.float64)


def look_up(table: NDArray[Any], codes: NDArray[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """Return ``table[codes]`` without an index array of eight bytes a row."""
    found = np.empty(codes.size, table.dtype)
    for start in range(0, codes.size, 2**16):
        found[start : start + 2**16] = table[codes[start : start + 2**16]]
    return found


def id_problem(label: Hashable) -> str | None:
    """Say what is wrong with an id; None when nothing is."""
    if isinstance(label, str):
        if "\0" in label:
            return "contains a NUL character"
        if len(label) > MAX_ID_CHARACTERS:
            return f"has {len(label)} characters, {MAX_ID_CHARACTERS} are possible"
        return None if label else "is missing"
    missing = isinstance(label, float) and math.isnan(label)
    return "is missing" if missing or type(label).__name__ in ("NoneType", "NAType", "NaTType") else None


def id_table(ids: Iterable[Hashable], role: str) -> Sequence[Hashable]:
    """Check that ids differ and are not too many; ranges stay ranges."""
    labels = ids if isinstance(ids, range) else tuple(ids.tolist() if isinstance(ids, np.ndarray) else ids)
    if len(labels) > MAX_IDS:
        raise RatingsError(f"{len(labels)} {role} ids given, {MAX_IDS} are possible.")
    if not isinstance(labels, range) and len(set(labels)) < len(labels):
        raise RatingsError(f"{role} ids must differ from one another, {len(labels) - len(set(labels))} repeat.")
    return labels


def find_id(label: Hashable, index: Mapping[Hashable, int], role: str) -> int:
    """Return the code of an id, or say which id may have been meant."""
    try:
        return index[label]
    except (KeyError, TypeError):
        twin = number(label) if isinstance(label, str) else str(label)
        meant = [f"Did you mean {show(key)}?" for key in index if key == twin]
        hint = meant[0] if meant else f"Known ids look like {', '.join(map(show, list(index)[:3]))}."
        raise RatingsError(f"{role} {show(label)} is not known. {hint}") from None


def knows_id(label: Hashable, index: Mapping[Hashable, int], role: str) -> bool:
    """Whether an id is among those known; what can be no id is refused."""
    try:
        return label in index
    except TypeError:
        raise RatingsError(f"a {role} id is a number or text, got {show(label)}.") from None


def check_codes(
    codes: NDArray[np.integer], labels: Sequence[Hashable], role: str, dtype: type[np.unsignedinteger[Any]]
) -> Column:
    """Check that codes are whole numbers that have a label."""
    codes = np.asarray(codes)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise RatingsError(f"{role} codes must be one row of whole numbers, got {codes.dtype} {codes.shape}.")
    if codes.size and not 0 <= codes.min() <= codes.max() < len(labels):
        raise RatingsError(f"{role} codes must lie in 0..{len(labels) - 1}, got {codes.min()}..{codes.max()}.")
    return Column(labels, np.ascontiguousarray(codes, dtype))


@kernel
def sort_by_user(users: Any, items: Any, levels: Any, n_users: int, n_items: int) -> ByUser:
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


@kernel
def view_by_item(user_ptr: Any, item_codes: Any, n_items: int) -> tuple[Any, Any, Any]:
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


def repeated(user_ptr: NDArray[np.int64], item_codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Mark every rating whose pair also precedes it."""
    marks = np.zeros(item_codes.size, bool)
    np.equal(item_codes[1:], item_codes[:-1], out=marks[1:])
    starts = user_ptr[:-1]
    marks[starts[starts < item_codes.size]] = False
    return marks


def keep(by_user: ByUser, mask: NDArray[np.bool_]) -> ByUser:
    """Drop the ratings that the mask does not mark."""
    user_ptr, item_codes, levels = by_user
    kept_before = np.zeros(mask.size + 1, np.int64)
    np.cumsum(mask, out=kept_before[1:])
    return kept_before[user_ptr], item_codes[mask], levels[mask]
