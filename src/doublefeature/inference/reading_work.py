"""What a worker does when a team reads a folder of ratings files (see `team_reading`)."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._parts import join_rows, named_rows, show_name
from doublefeature._rows import ByUser, RawRows, keep, line_of, look_up, repeated, sort_by_user
from doublefeature.inference.placing import RUN, IntArray, Run, trade_arrays
from doublefeature.inference.teams import Desk
from doublefeature.levels import Level, Levels
from doublefeature.ratings import Duplicates
from doublefeature.readers import Reading

TRAIN, HELDOUT = "train", "heldout"
_ROWS, _CODES, _SORTED = "rows", "codes", "sorted"


class Met(NamedTuple):
    """The labels in some files."""

    users: list[Hashable]
    items: list[Hashable]
    values: list[Hashable]
    texts: bool  # whether ids are as written, and may turn out to be numbers
    rows: int


class Specimen(NamedTuple):
    """A row and where it stands."""

    place: str
    user: Hashable
    item: Hashable
    value: Hashable


class Codes(NamedTuple):
    """Rows in codes of all files, in the order they were read."""

    users: NDArray[np.uint32]
    items: NDArray[np.uint32]
    levels: NDArray[np.uint8]


def read_files(desk: Desk, files: list[tuple[Path, Reading]]) -> Met:
    """Read files, keep their rows, and return the labels in them."""
    desk.kept.clear()
    if not files:
        return Met([], [], [], False, 0)
    rows = join_rows([named_rows(reading.rows(file), show_name(file)) for file, reading in files], "")
    desk.kept[_ROWS] = rows
    return Met(
        list(rows.users.labels), list(rows.items.labels), list(rows.values.labels), rows.texts, rows.users.codes.size
    )


def find_label(desk: Desk, role: str, code: int) -> Specimen:
    """Return the first row with a label."""
    rows: RawRows = desk.kept[_ROWS]
    row = int((getattr(rows, role).codes == code).argmax())
    labels = (column.labels[column.codes[row]] for column in rows[:3])
    return Specimen(line_of(rows.lines, row), *labels)


def recode(
    desk: Desk,
    users: NDArray[np.uint32],
    items: NDArray[np.uint32],
    levels: NDArray[np.uint8],
    n_users: int,
) -> IntArray:
    """Give the rows the codes of all files; return how many each user has here."""
    rows: RawRows | None = desk.kept.pop(_ROWS, None)
    if rows is None:
        desk.kept[_CODES] = Codes(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.uint8)), None
        return np.zeros(n_users, np.int64)
    codes = Codes(
        look_up(users, rows.users.codes), look_up(items, rows.items.codes), look_up(levels, rows.values.codes)
    )
    desk.kept[_CODES] = codes, rows.lines
    return np.bincount(codes.users, minlength=n_users)


def gather_users(
    desk: Desk, cut: IntArray, n_items: int, duplicates: Duplicates
) -> tuple[IntArray, tuple[int, int] | None]:
    """Trade rows so that every worker has all of its users; return how many each has, and a pair that comes twice.

    Rows come in the order of files, so that of a pair that comes twice the first or the last can be kept.
    """
    codes: Codes = desk.kept[_CODES][0]
    masks = [(codes.users >= low) & (codes.users < high) for low, high in pairwise(cut)]
    users, items, levels = (trade_arrays(desk.link, [column[mask] for mask in masks]) for column in codes)
    low, high = int(cut[desk.link.rank]), int(cut[desk.link.rank + 1])
    by_user: ByUser = sort_by_user(users - np.uint32(low), items, levels, high - low, n_items)
    again = repeated(by_user[0], by_user[1])
    pair = None
    if again.any() and duplicates == "error":
        place = int(again.argmax())
        pair = low + int(np.searchsorted(by_user[0], place, side="right")) - 1, int(by_user[1][place])
    elif again.any():
        by_user = keep(by_user, ~again if duplicates == "first" else ~np.append(again[1:], False))
    desk.kept[_SORTED] = by_user
    return np.diff(by_user[0]), pair


def find_pair(
    desk: Desk, pair: tuple[int, int], labels: tuple[Hashable, Hashable], levels: Levels | tuple[Level, ...]
) -> list[Specimen]:
    """Return the first two rows here with a pair of codes."""
    codes, lines = desk.kept[_CODES]
    rows = np.flatnonzero((codes.users == pair[0]) & (codes.items == pair[1]))[:2].tolist()
    return [Specimen(line_of(lines, row), *labels, levels[codes.levels[row]]) for row in rows]


def keep_out(desk: Desk, packed: NDArray[np.uint8], n_items: int) -> list[tuple[IntArray, IntArray]]:
    """Part the sorted ratings by marks, and return how many every user and item has in either part."""
    by_user: ByUser = desk.kept[_SORTED]
    desk.kept.clear()
    marks = np.unpackbits(packed, count=by_user[1].size) if packed.size else np.zeros(by_user[1].size, np.uint8)
    parts = keep(by_user, marks == 0), keep(by_user, marks == 1)
    for name, (_, item_codes, levels) in zip((TRAIN, HELDOUT), parts, strict=True):
        desk.kept[name] = Run(item_codes, levels)
    desk.kept[RUN] = [desk.kept[TRAIN]]
    return [(np.diff(user_ptr), np.bincount(items, minlength=n_items)) for user_ptr, items, _ in parts]


def piece_of(desk: Desk, name: str, column: int, start: int, length: int) -> bytes:
    """Return some of the item codes (column 0) or level codes (1) that lie here, as bytes."""
    array = desk.kept[name][column][start : start + length]
    return bytes(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
