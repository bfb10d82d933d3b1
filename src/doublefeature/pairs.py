"""Users and items, or items and ratings, side by side: as files, as frames, as tuples."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw

from doublefeature._delimited import (
    SEPARATORS,
    Layout,
    display_name,
    find_separator,
    only_a_header,
    read_cells,
    split_row,
)
from doublefeature._parts import PARQUET
from doublefeature.column_names import known_column
from doublefeature.errors import RatingsError, show
from doublefeature.readers import column_values, find_column, scan_parquet

Known = Callable[[str, str], tuple[bool, bool]]
"""Which of a row's two cells a model knows."""


class Row(NamedTuple):
    """Two cells of a file as written, and where they stand."""

    place: str
    first: str
    second: str


@dataclass(frozen=True)
class TwoColumns:
    """Which two columns of a file are wanted: a name, or None for a known name and else the first two."""

    roles: tuple[str, str]
    names: tuple[str | None, str | None] = (None, None)
    header: bool | None = None
    """Whether the first row names the columns; None: it does if both names are known, or a model knows neither."""

    def read(self, source: str | os.PathLike[str], known: Known | None = None) -> tuple[list[Row], str | None]:
        """Read the rows of a text file, gzipped or not, or of a Parquet file.

        Returns
        -------
        The rows, and the first line if it was taken for a header only because the model does not know what is in it.
        """
        path = Path(source)
        name = display_name(path)
        if path.suffix.lower() == PARQUET:
            pairs = self.of_frame(scan_parquet(path), name)
            if not pairs:
                raise RatingsError(f"{name}: there are no rows. Each needs {self._wanted}.")
            return [Row(f"{name}, row {k}", str(a), str(b)) for k, (a, b) in enumerate(pairs)], None
        chosen = _Chosen(self, name)
        cells = read_cells(path, chosen.layout, self._wanted)
        rows = [Row(f"{name}, line {place}", first, second) for place, (first, second) in cells]
        guessed = self.header is None and not chosen.named and _looks_like_names(rows, known)
        if chosen.named or guessed:
            rows = rows[1:]
        if not rows:
            if "rating" in self.roles:
                raise RatingsError(f"{name}, line 1: a header and no ratings. Add some.")
            raise only_a_header(name, "pairs")
        for row in rows:
            if not (row.first and row.second):
                missing = self.roles[0] if not row.first else self.roles[1]
                raise RatingsError(f"{row.place}: the {missing} is missing. Correct or drop the line.")
        return rows, chosen.first if guessed else None

    def of_frame(self, frame: Any, source: str) -> list[tuple[Hashable, Hashable]]:
        """Return the rows of a frame: the columns with known names, or the first two."""
        try:
            table = nw.from_native(frame)
            table = table.collect() if isinstance(table, nw.LazyFrame) else table
            places = self.find([str(name) for name in table.columns], source)
            columns = [_plain(column_values(table[table.columns[place]], source)) for place in places]
        except RatingsError:
            raise
        except Exception as problem:
            reason = show(f"{type(problem).__name__}: {problem}")
            raise RatingsError(f"{source}: the frame cannot be read ({reason}). Check its columns.") from problem
        return list(zip(*columns, strict=True))

    def find(self, names: Sequence[str], source: str) -> tuple[int, int]:
        """Return the positions of the two among named columns: as asked for, by known names, or the first two."""
        if len(names) < 2:
            raise RatingsError(f"{source}: {len(names)} column(s), {self._wanted} are needed.")
        if self.names == (None, None) and not any(known_column(role, names) is not None for role in self.roles):
            return 0, 1
        first, second = (find_column(*asked, names, source) for asked in zip(self.roles, self.names, strict=True))
        if first == second:
            raise RatingsError(f"{source}: {self._wanted} need two columns, got {show(names[first])} for both.")
        return first, second

    @property
    def _wanted(self) -> str:
        return " and ".join(f"an {role}" if role.startswith("i") else f"a {role}" for role in self.roles)


class _Chosen:
    """How a text file is laid out, found from its first lines."""

    def __init__(self, asked: TwoColumns, source: str) -> None:
        self._asked, self._source = asked, source
        self.named = False
        self.first = ""

    def layout(self, head: list[str]) -> Layout:
        """Return separator and columns; note whether the first row names them."""
        separator = find_separator(head, 2)
        if separator is None:
            marks = ", ".join(map(repr, SEPARATORS))
            raise RatingsError(f"{self._source}, line 1: no two columns between any of {marks}.")
        fields = [text.strip() for text in split_row(head, separator, self._source)]
        asked, self.first = self._asked, head[0]
        all_known = all(known_column(role, fields) is not None for role in asked.roles)
        by_name = any(name is not None for name in asked.names)
        self.named = asked.header if asked.header is not None else by_name or all_known
        columns = asked.find(fields, f"{self._source}, line 1") if self.named else (0, 1)
        return Layout(separator, self.named, columns, None)


def read_pairs(
    source: str | os.PathLike[str],
    *,
    user: str | None = None,
    item: str | None = None,
    header: bool | None = None,
    known: Known | None = None,
) -> tuple[list[Row], str | None]:
    """Read users and items, ids as written (see `TwoColumns`)."""
    return TwoColumns(("user", "item"), (user, item), header).read(source, known)


def read_item_ratings(source: str | os.PathLike[str], known: Known | None = None) -> tuple[list[Row], str | None]:
    """Read one person's ratings, an item and a rating per line, as written; an item comes once."""
    rows, header = TwoColumns(("item", "rating")).read(source, known)
    found: set[str] = set()
    for row in rows:
        if row.first in found:
            raise RatingsError(f"{row.place}: item {show(row.first)} comes twice. Keep one rating of each item.")
        found.add(row.first)
    return rows, header


def as_pairs(pairs: Any) -> list[tuple[Hashable, Hashable]]:
    """Return pairs of raw ids: given as pairs, or as a frame with a user and an item column."""
    example = 'Write [("u17", "Alien")], or give a frame with a user and an item column'
    table = nw.from_native(pairs, pass_through=True)
    if isinstance(table, nw.DataFrame | nw.LazyFrame):
        return TwoColumns(("user", "item")).of_frame(pairs, "frame")
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise RatingsError(f"pairs to predict must be several (user, item), got {show(pairs)}. {example}.")
    asked = []
    for pair in pairs:
        if isinstance(pair, str | bytes) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise RatingsError(f"a pair to predict must be (user, item), got {show(pair)}. {example}.")
        user, item = pair
        asked.append((user, item))
    return asked


def _looks_like_names(rows: Sequence[Row], known: Known | None) -> bool:
    """Whether a model knows neither cell of the first row, but both of some other."""
    if known is None or not rows or any(known(rows[0].first, rows[0].second)):
        return False
    return any(all(known(row.first, row.second)) for row in rows[1:])


def _plain(values: Iterable[Hashable]) -> list[Hashable]:
    return [value.item() if hasattr(value, "item") else value for value in values]
