"""Files and data frames → `Ratings`. The only file that knows about data frames."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from doublefeature._delimited import (
    SEPARATORS,
    Layout,
    display_name,
    find_separator,
    moments_of,
    opened,
    read_delimited,
    split_row,
)
from doublefeature._parts import PARQUET, join_rows, named_rows, part_files, ratings_of, show_name
from doublefeature._rows import RawRows, encode
from doublefeature.column_names import known_column
from doublefeature.errors import MissingExtraError, RatingsError, show
from doublefeature.levels import Level, Levels, check_levels, number
from doublefeature.outline import Outline
from doublefeature.ratings import Duplicates, Ratings

_NEEDED = ("user", "item", "rating")


@dataclass(frozen=True)
class Columns:
    """Which column holds what: a name, a position from 0, or None to go by `column_names.KNOWN_NAMES`."""

    user: str | int | None = None
    item: str | int | None = None
    rating: str | int | None = None
    time: str | int | None = None

    def find(self, names: Sequence[str], source: str) -> tuple[int, int, int]:
        """Positions of user, item and rating among the named columns."""
        user = find_column("user", self.user, names, source)
        item = find_column("item", self.item, names, source)
        rating = find_column("rating", self.rating, names, source)
        if len({user, item, rating}) < 3:
            found = f"user={show(names[user])}, item={show(names[item])}, rating={show(names[rating])}"
            raise RatingsError(f"{source}: user, item and rating need three columns, got {found}.")
        return user, item, rating

    def find_time(self, names: Sequence[str], taken: Sequence[int], source: str) -> int | None:
        """Position of the times among the named columns, None when there are none and none were asked for."""
        if self.time is None:
            found = known_column("time", names)
            return None if found in taken else found
        asked = find_column("time", self.time, names, source)
        if asked in taken:
            raise RatingsError(f"{source}: column {show(names[asked])} cannot hold times and something else as well.")
        return asked


def read_ratings(
    source: str | os.PathLike[str] | Any,
    *,
    levels: str | Iterable[Level] | None = None,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    separator: str | None = None,
    header: bool | None = None,
    duplicates: Duplicates = "error",
) -> Ratings:
    """Read ratings from a file or a data frame.

    Parameters
    ----------
    source
        Path of a text file (CSV, TSV, MovieLens ``::``; gzipped or not) or of a ``.parquet`` file, of a folder
        of either, read in the order of names, or a frame: pandas, polars (eager or lazy), Arrow table, DuckDB
        relation.
    levels
        Ordered levels such as ``"1..5"`` or ``"low<mid<high"``; None reads them off the data
        (`Ratings.from_triples` says how).
    user, item, rating
        Names or positions of the columns. None looks for the usual names, and takes the first three columns
        of a text file without header.
    time
        Name or position of the column that says when a rating was given: numbers, or dates such as 2003-02-28.
        None looks for a column `timestamp`, and takes the fourth column of a text file without header; what is there
        but cannot be read as times is left alone.
    separator, header
        Of a text file; None finds out.
    duplicates
        When a user rated an item twice: refuse ("error"), or keep the "first" or the "last" row.

    Whatever is wrong raises a one-line `RatingsError` saying where it is and what to do. Refused too: lines
    above 1 MB, ids above 1,000 characters, gzip data that unpack to over 100 times their size plus 16 MB.

    Examples
    --------
    >>> read_ratings("ratings.csv", user="userId", item="movieId", rating="stars")  # doctest: +SKIP
    Ratings(610 users × 9724 items, 100836 ratings, levels 0.5..5:0.5)
    """
    scale = None if levels is None else check_levels(levels)
    reading = Reading(Columns(user, item, rating, time), separator, header, scale)
    if not isinstance(source, str | os.PathLike):
        rows = _frame_rows(source, reading.columns, "frame")
    elif is_folder(Path(source)):
        rows = reading.folder_rows(part_files(Path(source)), display_name(Path(source)))
    else:
        rows = reading.rows(Path(source))
    return ratings_of(rows, scale, duplicates)


def ratings_folder(
    path: str | os.PathLike[str],
    *,
    levels: str | Iterable[Level] | None = None,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    separator: str | None = None,
    header: bool | None = None,
    duplicates: Duplicates = "error",
) -> RatingsFolder:
    """Return a folder of files that workers are to read (see `read_ratings` for the parameters)."""
    scale = None if levels is None else check_levels(levels)
    reading = Reading(Columns(user, item, rating), separator, header, scale)
    part_files(Path(path))
    return RatingsFolder(Path(path).resolve(), reading, duplicates)


def is_folder(path: Path) -> bool:
    """Whether a path is that of a folder; one that cannot be a path is not."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class Reading:
    """How files of ratings are to be read; None where the file says it."""

    columns: Columns = Columns()
    separator: str | None = None
    header: bool | None = None
    levels: Levels | None = None

    def rows(self, path: Path) -> RawRows:
        """Read the rows of a file."""
        if path.suffix.lower() == PARQUET:
            return _frame_rows(scan_parquet(path), self.columns, display_name(path))
        request = _Request(self.columns, self.separator, self.header, self.levels, display_name(path))
        return read_delimited(path, request.layout)

    def folder_rows(self, files: Sequence[Path], source: str) -> RawRows:
        """Read the rows of several files of a folder, one after the other."""
        return join_rows([named_rows(self.rows(file), show_name(file)) for file in files], source)


@final
@dataclass(frozen=True)
class RatingsFolder:
    """A folder of ratings files that are not read yet: by workers, each some of them, or here as a whole."""

    path: Path
    reading: Reading = Reading()
    duplicates: Duplicates = "error"
    describe: Callable[[Outline], Outline] | None = None
    """Puts what is known of users and items beside their ids."""

    def read(self) -> Ratings:
        """Read all files here."""
        rows = self.reading.folder_rows(part_files(self.path), display_name(self.path))
        ratings = ratings_of(rows, self.reading.levels, self.duplicates)
        return ratings if self.describe is None else ratings.with_outline(self.describe(ratings.outline))


@dataclass(frozen=True)
class _Request:
    """What the caller said about a text file; the file's first lines say the rest."""

    columns: Columns
    separator: str | None
    header: bool | None
    levels: Levels | None
    source: str

    def layout(self, head: list[str]) -> Layout:
        separator = self._check_separator() or find_separator(head, len(_NEEDED))
        if separator is None:
            what = f"no three columns between any of {', '.join(map(repr, SEPARATORS))}"
            raise RatingsError(f"{self.source}, line 1: {what}. Pass separator='...', or save it with commas.")
        fields = [text.strip() for text in split_row(head, separator, self.source)]
        if len(fields) < 3:
            what = f"{len(fields)} column(s) with separator {separator!r}, three are needed"
            raise RatingsError(f"{self.source}, line 1: {what}. Leave separator out to have it found.")
        header = self._has_header(fields)
        chosen = self.columns.find(fields, f"{self.source}, line 1") if header else self._positions(fields)
        return Layout(separator, header, chosen, self._time(fields, header, chosen), self.columns.time is not None)

    def _time(self, fields: list[str], header: bool, chosen: tuple[int, int, int]) -> int | None:
        """Return where the times are: in the column asked for, in a known one, or fourth where there is no header."""
        if self.columns.time is None and not header:
            return 3 if len(fields) > 3 and 3 not in chosen else None
        names = fields if header else [f"column {k}" for k in range(len(fields))]
        return self.columns.find_time(names, chosen, self.source)

    def _check_separator(self) -> str | None:
        if self.separator is not None and (not self.separator or set(self.separator) & set('"\r\n')):
            raise RatingsError(f"separator {show(self.separator)} cannot part fields. Pass one such as ','.")
        return self.separator

    def _has_header(self, fields: list[str]) -> bool:
        wanted = (self.columns.user, self.columns.item, self.columns.rating)
        if self.header is not None:
            return self.header
        if any(isinstance(name, str) for name in (*wanted, self.columns.time)):
            return True
        if all(known_column(role, fields) is not None for role in _NEEDED):
            return True
        three = [fields[k] for k in self._positions(fields)]
        declared = self.levels is not None and three[2] in self.levels
        return not declared and not any(math.isfinite(number(text)) for text in three)

    def _positions(self, fields: list[str]) -> tuple[int, int, int]:
        wanted = (self.columns.user, self.columns.item, self.columns.rating)
        if names := [name for name in wanted if isinstance(name, str)]:
            what = f"column {show(names[0])} cannot be found without a header"
            raise RatingsError(
                f"{self.source}: {what}. Pass positions from 0, or leave out header=False (--no-header)."
            )
        numbered = [default if name is None else name for default, name in enumerate(wanted)]
        chosen = Columns(*numbered)
        return chosen.find([f"column {k}" for k in range(len(fields))], self.source)


def find_column(role: str, wanted: str | int | None, names: Sequence[str], source: str) -> int:
    """Return the position of the column asked for, or of the one that goes by a known name."""
    if wanted is None:
        found = known_column(role, names)
    elif isinstance(wanted, str):
        found = names.index(wanted) if wanted in names else None
    else:
        found = wanted if 0 <= wanted < len(names) else None
    if found is None:
        sought = f"no {role} column" + ("" if wanted is None else f" {show(wanted)}")
        shown = ", ".join(map(show, names[:8])) + (", ..." if len(names) > 8 else "")
        remedy = f"Pass {role}=... (a name, or a position from 0), on the command line --{role}-column"
        raise RatingsError(f"{source}: {sought} among {shown}. {remedy}.")
    return found


def scan_parquet(path: Path) -> Any:
    """Return a Parquet file as a lazy frame."""
    try:
        import polars as pl
    except ImportError:
        raise MissingExtraError("reading Parquet", "io") from None
    with opened(path) as raw:
        if raw.peek(4)[:4] != b"PAR1":
            raise RatingsError(f"{display_name(path)}: this is not a Parquet file. Check what wrote it.")
    return pl.scan_parquet(path, glob=False)


def _frame_rows(frame: Any, columns: Columns, source: str) -> RawRows:
    try:
        table = nw.from_native(frame, pass_through=True)
        if not isinstance(table, nw.DataFrame | nw.LazyFrame):
            what = f"ratings cannot be read from {type(frame).__name__}"
            raise RatingsError(f"{what}. Give a path, or a pandas, polars, Arrow or DuckDB frame.")
        names = table.collect_schema().names()
        places = columns.find(names, source)
        when = columns.find_time(names, places, source)
        chosen = [names[k] for k in (*places, *([] if when is None else [when]))]
        eager = table.select(*chosen).collect() if isinstance(table, nw.LazyFrame) else table
        users, items, values = (column_values(eager.get_column(name), source) for name in chosen[:3])
        times = None if when is None else _times(eager.get_column(chosen[3]), source, needed=columns.time is not None)
    except RatingsError:
        raise
    except Exception as problem:
        reason = show(f"{type(problem).__name__}: {problem}")
        raise RatingsError(f"{source}: the frame cannot be read ({reason}). Check its columns.") from problem
    return RawRows(encode(users), encode(items), encode(values), source, times=times)


def column_values(series: nw.Series[Any], source: str) -> Iterable[Hashable]:
    """Return the values of a column, none of which may be missing."""
    missing = series.is_null()
    if missing.any():
        row = int(np.argmax(missing.to_numpy()))
        what = f"column {show(series.name)} has {missing.sum()} missing value(s)"
        raise RatingsError(f"{source}, row {row}: {what}. Fill them in or drop the rows.")
    values: Iterable[Hashable] = series.to_numpy() if series.dtype.is_numeric() else series.to_list()
    return values


def _times(series: nw.Series[Any], source: str, *, needed: bool) -> NDArray[np.float64] | None:
    """Return a column of numbers, dates or ISO text as times; None, or an error if needed, when it is none of these."""
    if isinstance(series.dtype, nw.Datetime | nw.Date) and not series.is_null().any():
        return series.cast(nw.Datetime("us")).dt.timestamp("us").to_numpy().astype(np.float64) / 1e6
    moments = None if series.is_null().any() else moments_of([str(value) for value in series.to_list()])
    if moments is None and needed:
        what = f"column {show(series.name)} has values that are no times"
        raise RatingsError(f"{source}: {what}. Give numbers or dates, none of them missing.")
    return moments
