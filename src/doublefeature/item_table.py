"""A table beside the ratings: titles and other columns of items, or columns of users, by raw id."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw

from doublefeature._delimited import SEPARATORS, display_name, find_separator, ids_of, opened
from doublefeature.column_names import KNOWN_NAMES, plain, year_at_end
from doublefeature.errors import RatingsError, show

ItemTable = dict[Hashable, dict[str, str]]
"""Columns of every item; `title` is among them when the table has one."""

MOST_BYTES = 256 * 2**20

_GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
"""What the last columns of MovieLens-100K's table of films stand for, 1 where a film has the genre."""


def read_items(source: str | os.PathLike[str] | Any) -> ItemTable:
    """Read a table whose first column, or the one named like an item id, holds item ids: a text file, or a frame.

    With or without header; separators `::`, tab, `|`, `;` and `,`; UTF-8, or Latin-1 as MovieLens has it. Without a
    header the second column is the title, and others are `column 3`, `column 4`, …; in the tables of MovieLens, which
    have none, films have `genres` too, and users `age`, `gender`, `occupation` and `zip`.
    """
    return _read(source, "item")


def read_users(source: str | os.PathLike[str] | Any) -> ItemTable:
    """Read a table of users in the ways of `read_items`; without a header columns are `column 2`, `column 3`, …."""
    return _read(source, "user")


def _read(source: str | os.PathLike[str] | Any, role: str) -> ItemTable:
    if isinstance(source, str | os.PathLike):
        name = display_name(Path(source))
        rows = _rows(_text(Path(source), name, role), name, role)
    else:
        name = "frame"
        rows = _frame_rows(source, role)
    first = [plain(cell) for cell in rows[0]]
    ids = (*KNOWN_NAMES[role], "id")
    has_header = name == "frame" or any(cell in ids for cell in first)
    columns, body = (rows[0], rows[1:]) if has_header else _named(rows, role)
    at = next((k for k, cell in enumerate(first) if cell in ids), 0)
    names = [column.strip() for column in columns]
    if role == "item":
        names = ["title" if plain(column) in KNOWN_NAMES["title"] else column for column in names]
    given = [row[at] for row in body]
    labels = given if name == "frame" else ids_of([cell.strip() for cell in given])
    table: ItemTable = {}
    for line, (label, row) in enumerate(zip(labels, body, strict=True), 1 + has_header):
        if label in table:
            raise RatingsError(f"{name}, line {line}: {role} {show(label)} comes twice. Keep one row per {role}.")
        cells = zip(names, row, strict=False)
        table[label] = {key: _cell(cell) for k, (key, cell) in enumerate(cells) if k != at}
    return table


def _named(rows: list[list[Any]], role: str) -> tuple[Sequence[str], list[list[Any]]]:
    """Return names for the columns of a table without header, and its rows; MovieLens is known by its look."""
    first = [cell.strip() for cell in rows[0]]
    if role == "item" and len(first) > 1 and year_at_end(first[1]):
        if len(first) == 3:
            return ("id", "title", "genres"), rows
        if len(first) == 5 + len(_GENRES) and set(first[5:]) <= {"0", "1"}:
            return ("id", "title", "released", "genres"), [[*row[:3], _genres(row[5:])] for row in rows]
    for who in (("gender", "age"), ("age", "gender")):
        if role == "user" and len(first) == 5 and first[1 + who.index("gender")] in ("F", "M"):
            return ("id", *who, "occupation", "zip"), rows
    second = "title" if role == "item" else "column 2"
    return ["id", second, *(f"column {k}" for k in range(3, len(first) + 1))], rows


def _genres(flags: list[str]) -> str:
    return "|".join(name for name, flag in zip(_GENRES, flags, strict=False) if flag.strip() == "1")


def _cell(value: Any) -> str:
    """Return a cell as text; what a frame marks as missing is empty."""
    if value is None or value != value:
        return ""
    return str(value).strip()


def _frame_rows(frame: Any, role: str) -> list[list[Any]]:
    table = nw.from_native(frame, pass_through=True)
    if not isinstance(table, nw.DataFrame | nw.LazyFrame):
        what = f"a table of {role}s cannot be read from {show(frame)}"
        raise RatingsError(f"{what}. Give a path, or a pandas, polars, Arrow or DuckDB frame.")
    eager = table.collect() if isinstance(table, nw.LazyFrame) else table
    rows = [list(row) for row in eager.iter_rows()]
    return [[str(name) for name in eager.columns], *rows]


def _text(path: Path, name: str, role: str) -> str:
    with opened(path) as raw:
        data = raw.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise RatingsError(f"{name}: a table of {role}s above {MOST_BYTES >> 20} MB. Give the columns that matter.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _rows(text: str, name: str, role: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise RatingsError(f"{name}: the table of {role}s is empty. Each line needs an id and something else.")
    separator = find_separator(lines[:20], 2)
    if separator is None:
        raise RatingsError(f"{name}, line 1: no two columns between any of {', '.join(map(repr, SEPARATORS))}.")
    if separator == "::":
        return [line.split(separator) for line in lines]
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=separator, strict=separator == ","))
    except csv.Error as problem:
        raise RatingsError(f"{name}: {problem}. Close the quotes or double inner ones.") from None
    return [row for row in rows if any(cell.strip() for cell in row)]
