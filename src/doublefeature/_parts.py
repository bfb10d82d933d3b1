"""Ratings in several files: which files a folder has, and their rows under one another.

Whether the files are read here or on several machines, ids and levels are found over all rows together, so the
ratings are the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doublefeature._delimited import display_name, ids_of
from doublefeature._rows import Column, Lines, RawRows, line_of, look_up
from doublefeature.errors import RatingsError
from doublefeature.levels import Level
from doublefeature.ratings import Duplicates, Ratings

PARQUET = ".parquet"
TEXT = (".csv", ".tsv", ".txt", ".dat")
_HIDDEN = (".", "_")


def part_files(folder: Path) -> list[Path]:
    """Return the ratings files of a folder by name; names that begin with a dot or `_` are left alone."""
    source = display_name(folder)
    try:
        files = sorted(file for file in folder.iterdir() if not file.name.startswith(_HIDDEN))
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise RatingsError(f"{source}: the folder cannot be read ({reason}). Check its permissions.") from None
    if odd := next((file for file in files if not _is_ratings(file)), None):
        known = ", ".join((*TEXT, PARQUET))
        what = f"this is a folder, and {show_name(odd)} in it is no file of ratings ({known})"
        raise RatingsError(f"{source}: {what}. Move it away, or give one file.")
    if not files:
        raise RatingsError(f"{source}: this is a folder without ratings. Give a file, or a folder that has some.")
    if len({_is_parquet(file) for file in files}) > 1:
        raise RatingsError(f"{source}: this is a folder of text and of Parquet files. Keep one kind of them.")
    return files


def show_name(path: Path) -> str:
    """Return the last part of a path as error messages write it."""
    return display_name(Path(path.name))


def _is_parquet(file: Path) -> bool:
    return file.suffix.lower() == PARQUET


def _is_ratings(file: Path) -> bool:
    name = file.name.lower().removesuffix(".gz")
    return file.is_file() and (_is_parquet(file) or name.endswith(TEXT))


@dataclass(frozen=True)
class _NamedLines:
    """Says in which file a row stands, and where."""

    name: str
    lines: Lines

    def __call__(self, row: int) -> str:
        return f"{self.name}, {line_of(self.lines, row)}"


def named_rows(rows: RawRows, name: str) -> RawRows:
    """Return the rows of a file, each of which says the name of the file besides its line."""
    return rows._replace(lines=_NamedLines(name, rows.lines))


def join_rows(parts: Sequence[RawRows], source: str) -> RawRows:
    """Put rows of several sources under one another; where a row stands is said as its source says it."""
    sizes = [part.users.codes.size for part in parts]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
    times = [part.times for part in parts if part.times is not None]
    return RawRows(
        _join([part.users for part in parts]),
        _join([part.items for part in parts]),
        _join([part.values for part in parts]),
        source,
        _JoinedLines(starts, [part.lines for part in parts]),
        np.concatenate(times) if len(times) == len(parts) else None,
        texts=parts[0].texts,
    )


@dataclass(frozen=True)
class _JoinedLines:
    """Says of joined rows what their sources say."""

    starts: list[int]
    lines: list[Lines]

    def __call__(self, row: int) -> str:
        part = bisect_right(self.starts, row) - 1
        return line_of(self.lines[part], row - self.starts[part])


def _join(columns: Sequence[Column]) -> Column:
    labels, places = join_labels([column.labels for column in columns])
    codes = [look_up(place, column.codes) for place, column in zip(places, columns, strict=True)]
    return Column(labels, np.concatenate(codes))


def join_labels(tables: Iterable[Sequence[Hashable]]) -> tuple[list[Hashable], list[NDArray[np.uint32]]]:
    """Return all labels of some tables in order of appearance, and for each table the places of its own."""
    found: dict[Hashable, int] = {}
    places = [
        np.fromiter((found.setdefault(label, len(found)) for label in table), np.uint32, len(table)) for table in tables
    ]
    return list(found), places


def as_ids(labels: Sequence[Hashable], texts: bool) -> list[Hashable]:
    """Return labels of all rows as ids: what was written as text becomes numbers if all of it can."""
    return ids_of(map(str, labels)) if texts else list(labels)


def ratings_of(rows: RawRows, levels: Iterable[Level] | None, duplicates: Duplicates) -> Ratings:
    """Build ratings from all rows there are."""
    return Ratings.from_triples(
        Column(as_ids(rows.users.labels, rows.texts), rows.users.codes),
        Column(as_ids(rows.items.labels, rows.texts), rows.items.codes),
        rows.values,
        levels=levels,
        times=rows.times,
        source=rows.source,
        duplicates=duplicates,
        lines=rows.lines,
    )
