"""Delimited text, read in small blocks and checked on the way: nothing unbounded is ever held.

Every column is encoded while it is read (its distinct texts, and four bytes a row), so the memory needed is a
small multiple of the ratings' own. All problems are one-line `RatingsError`s that name the file and the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from doublefeature._rows import Column, RawRows
from doublefeature.errors import EnvironmentProblem, RatingsError, show

MAX_LINE_BYTES = 10**6
MAX_GZIP_RATIO = 100
GZIP_ALLOWANCE = 2**24
"""Gzip data may unpack to `MAX_GZIP_RATIO` times the file's size plus this many bytes; more is refused."""

_BLOCK_BYTES = 2**18
_BLOCK_ROWS = 10_000
_HEAD_LINES = 20
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)

SEPARATORS = ("::", "\t", ";", ",", "|")
_QUOTED = re.compile(r'(^|[\t;,|:])([ ]*)"(?:[^"]|"")*"(?=[ ]*(?:[\t;,|:]|$))', re.MULTILINE)
"""A field in quotes, whatever the separator is."""

_Block = tuple[Sequence[int], list[list[str]]]
"""Line numbers and fields of some rows."""


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out.

    Attributes
    ----------
    separator
        Text between fields. Quotes mean something beside one-character separators only.
    header
        Whether the first row names the columns.
    columns
        Positions of user, item and rating, or of what else is wanted, from 0.
    time
        Position of the time of a rating. A file without such a column, or with other things in it, has no times.
    needs_time
        Refuse such a file instead.
    """

    separator: str
    header: bool
    columns: tuple[int, ...] = (0, 1, 2)
    time: int | None = 3
    needs_time: bool = False


def read_delimited(path: Path, choose: Callable[[list[str]], Layout]) -> RawRows:
    """Read a text file, gzipped or not, whose layout `choose` tells from its first lines."""
    source, lines = display_name(path), _LineNumbers()
    with opened(path) as raw:
        head, blocks = _peek(_line_blocks(_chunks(raw, source), source))
        if not head:
            raise RatingsError(f"{source}: the file is empty. Each line needs a user, an item and a rating.")
        layout = choose(head)
        users, items, values = (_Encoder(column) for column in layout.columns)
        times = _Times(layout, source)
        for numbers, rows in _data_blocks(blocks, layout, source):
            lines.append(numbers)
            times.append(rows, numbers)
            for encoder in (users, items, values):
                encoder.append(rows)
    if not lines.n_rows:
        raise only_a_header(source, "ratings")
    return RawRows(users.take(), items.take(), values.take(), source, lines, times.take(), texts=True)


def read_cells(path: Path, choose: Callable[[list[str]], Layout], wanted: str) -> list[tuple[int, list[str]]]:
    """Read line numbers and the chosen cells of a small text file, gzipped or not, its header included."""
    source = display_name(path)
    with opened(path) as raw:
        head, blocks = _peek(_line_blocks(_chunks(raw, source), source))
        if not head:
            raise RatingsError(f"{source}: the file is empty. Each line needs {wanted}.")
        layout = choose(head)
        return [
            (number, [row[column].strip() for column in layout.columns])
            for numbers, rows in _data_blocks(blocks, replace(layout, header=False), source)
            for number, row in zip(numbers, rows, strict=True)
        ]


def only_a_header(source: str, what: str) -> RatingsError:
    """Return the error about a file whose only line names columns."""
    remedy = f"Add {what}, or pass header=False, on the command line --no-header"
    return RatingsError(f"{source}, line 1: a header and no {what}. {remedy}.")


def display_name(path: Path) -> str:
    """Return the path as error messages write it, on one line."""
    name = str(path)
    return name if name.isprintable() else repr(name)


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading, and turn whatever the system objects to into an error of ours."""
    source = display_name(path)
    try:
        if "\0" in str(path):
            raise FileNotFoundError
        with path.open("rb") as raw:
            yield raw
    except FileNotFoundError:
        raise RatingsError(f"{source}: there is no such file. Check the path.") from None
    except IsADirectoryError:
        raise RatingsError(f"{source}: this is a folder. Give the ratings file inside it.") from None
    except PermissionError:
        raise EnvironmentProblem(f"{source}: no permission to read this file. Try: chmod +r {source}") from None
    except EOFError:
        raise RatingsError(f"{source}: the gzip data end too early. Copy or download the file again.") from None
    except (gzip.BadGzipFile, zlib.error):
        raise RatingsError(f"{source}: the gzip data are damaged. Copy or download the file again.") from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise RatingsError(f"{source}: the file cannot be read ({reason}). Copy it to another place.") from None


def split_row(lines: Sequence[str], separator: str, source: str) -> list[str]:
    """Return the fields of the first row, which quotes may spread over several lines."""
    if len(separator) > 1 or '"' not in lines[0]:
        return lines[0].split(separator)
    _, rows = next(_quoted_blocks(iter([(1, list(lines))]), separator, source))
    return rows[0]


def find_separator(head: Sequence[str], least: int) -> str | None:
    """Return the separator that cuts the first row in `least` fields or more; None if there is none.

    What stands in quotes does not count. Of several, one that cuts all lines alike is taken, or else one that is in all
    of them, or else the one that comes first in the row.
    """
    bare = _QUOTED.sub(r"\1x", "\n".join(head)).split("\n")
    fitting = [mark for mark in SEPARATORS if bare[0].count(mark) >= least - 1]

    def rank(mark: str) -> tuple[bool, bool, int]:
        counts = {line.count(mark) for line in bare}
        return len(counts) > 1, 0 in counts, bare[0].index(mark)

    return min(fitting, key=rank, default=None)


class _Codes(dict[str, int]):
    """Numbers texts in order of appearance."""

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self)
        return code


@dataclass
class _Encoder:
    """One column, encoded block by block."""

    column: int
    table: _Codes = field(default_factory=_Codes)
    parts: list[NDArray[np.uint32]] = field(default_factory=list)

    def append(self, rows: list[list[str]]) -> None:
        texts = map(itemgetter(self.column), rows)
        self.parts.append(np.fromiter(map(self.table.__getitem__, texts), np.uint32, len(rows)))

    def take(self) -> Column:
        codes = np.concatenate(self.parts)
        self.parts.clear()
        return Column(list(self.table), codes)


class _Times:
    """The column of times, block by block: numbers, or dates and clock times written the ISO way."""

    def __init__(self, layout: Layout, source: str) -> None:
        self._column, self._needed, self._source = layout.time, layout.needs_time, source
        self._parts: list[NDArray[np.float64]] = []

    def append(self, rows: list[list[str]], lines: Sequence[int]) -> None:
        if self._column is None or not rows:
            return
        if len(rows[0]) <= self._column:
            self._give_up(f"line {lines[0]}: {len(rows[0])} column(s), {self._column + 1} needed for the times")
            return
        texts = list(map(itemgetter(self._column), rows))
        moments = moments_of(texts)
        if moments is None:
            bad = next(k for k, text in enumerate(texts) if moments_of([text]) is None)
            self._give_up(f"line {lines[bad]}: {show(texts[bad])} is not a time. Give numbers, or dates as 2003-02-28")
            return
        self._parts.append(moments)

    def take(self) -> NDArray[np.float64] | None:
        return np.concatenate(self._parts) if self._parts else None

    def _give_up(self, problem: str) -> None:
        if self._needed:
            raise RatingsError(f"{self._source}, {problem}.")
        self._column = None
        self._parts.clear()


def moments_of(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Return times as numbers, dates as seconds since 1970; None when a text is neither."""
    with suppress(ValueError):
        moments = np.array([float(text) for text in texts])
        return moments if np.isfinite(moments).all() else None
    with suppress(ValueError), catch_warnings():
        simplefilter("ignore")  # NumPy warns that it turns other time zones into UTC, which is what we want
        dates = np.array([text.strip() for text in texts], "datetime64[ms]")
        return None if np.isnat(dates).any() else dates.astype(np.int64) / 1000.0
    return None


@dataclass
class _LineNumbers:
    """Line number of each row, held as ranges where rows and lines run in step."""

    starts: list[int] = field(default_factory=list)
    blocks: list[Sequence[int]] = field(default_factory=list)
    n_rows: int = 0

    def append(self, lines: Sequence[int]) -> None:
        self.starts.append(self.n_rows)
        self.blocks.append(lines)
        self.n_rows += len(lines)

    def __call__(self, row: int) -> int:
        block = bisect_right(self.starts, row) - 1
        return self.blocks[block][row - self.starts[block]]


def ids_of(texts: Iterable[str]) -> list[Hashable]:
    """Numbers when every id is one written the usual way (17, never 017), else text."""
    labels = [text.strip() for text in texts]
    whole = all(map(_CANONICAL_INTEGER.fullmatch, labels)) and max(map(len, labels)) <= 1000
    return [int(label) for label in labels] if whole else list(labels)


def _chunks(raw: io.BufferedReader, source: str) -> Iterator[bytes]:
    if raw.peek(2)[:2] != b"\x1f\x8b":
        yield from iter(lambda: raw.read(_BLOCK_BYTES), b"")
        return
    limit = left = MAX_GZIP_RATIO * os.fstat(raw.fileno()).st_size + GZIP_ALLOWANCE
    with gzip.GzipFile(fileobj=raw) as unpacked:
        while chunk := unpacked.read(_BLOCK_BYTES):
            left -= len(chunk)
            if left < 0:
                limit_text = f"more than {limit} bytes, {MAX_GZIP_RATIO} times its size"
                raise RatingsError(f"{source}: unpacks to {limit_text}. Unpack it yourself if you trust it.")
            yield chunk


def _line_blocks(chunks: Iterator[bytes], source: str) -> Iterator[tuple[int, list[str]]]:
    """Cut bytes into blocks of whole lines, each with the number of its first line."""
    line, rest = 1, b""
    for position, chunk in enumerate(chunks):
        rest += chunk.removeprefix(b"\xef\xbb\xbf") if position == 0 else chunk
        whole, newline, rest = rest.rpartition(b"\n")
        if newline:
            lines = _decode(whole, line, source)
            yield line, lines
            line += len(lines)
        _check_length(len(rest), line, source)
    if rest:
        yield line, _decode(rest, line, source)


def _decode(raw: bytes, line: int, source: str) -> list[str]:
    if (place := raw.find(b"\0")) >= 0:
        at = line + raw.count(b"\n", 0, place)
        raise RatingsError(f"{source}, line {at}: a NUL byte. Save the file as UTF-8 text without NUL bytes.")
    try:
        lines = raw.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except UnicodeDecodeError as problem:
        at, byte = line + raw.count(b"\n", 0, problem.start), raw[problem.start]
        remedy = f"Convert it, for example: iconv -f latin1 -t utf-8 {source}"
        raise RatingsError(f"{source}, line {at}: byte 0x{byte:02x} is not UTF-8. {remedy}") from None
    if len(raw) > MAX_LINE_BYTES:
        for number, text in enumerate(lines, line):
            _check_length(len(text), number, source)
    return lines


def _check_length(length: int, line: int, source: str) -> None:
    if length > MAX_LINE_BYTES:
        what = f"the line is longer than {MAX_LINE_BYTES} bytes"
        raise RatingsError(f"{source}, line {line}: {what}. Write one rating per line.")


def _peek(blocks: Iterator[tuple[int, list[str]]]) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the first lines that are not blank, and all blocks."""
    for block in blocks:
        if head := [line for line in block[1] if line][:_HEAD_LINES]:
            return head, chain([block], blocks)
    return [], blocks


def _data_blocks(blocks: Iterator[tuple[int, list[str]]], layout: Layout, source: str) -> Iterator[_Block]:
    """Rows below the header, all as wide as the first."""
    width = first = 0
    for numbers, rows in _row_blocks(blocks, layout.separator, source):
        if not rows:
            continue
        if not width:
            width, first = len(rows[0]), numbers[0]
            if width <= max(layout.columns):
                what = f"{width} column(s) with separator {layout.separator!r}, {max(layout.columns) + 1} needed"
                raise RatingsError(f"{source}, line {first}: {what}. Pass another separator or other columns.")
            numbers, rows = numbers[layout.header :], rows[layout.header :]
        if bad := next((k for k, row in enumerate(rows, 1) if len(row) != width), 0):
            what = f"{len(rows[bad - 1])} field(s) where line {first} has {width}"
            remedy = f"Check the separator {layout.separator!r} and the quotes"
            raise RatingsError(f"{source}, line {numbers[bad - 1]}: {what}. {remedy}.")
        yield numbers, rows


def _row_blocks(blocks: Iterator[tuple[int, list[str]]], separator: str, source: str) -> Iterator[_Block]:
    """Split lines at separators; from the first quote on, the slower rules of CSV hold."""
    for first, lines in blocks:
        if len(separator) == 1 and any('"' in line for line in lines):
            yield from _quoted_blocks(chain([(first, lines)], blocks), separator, source)
            return
        numbers: Sequence[int] = range(first, first + len(lines))
        if "" in lines:
            numbers = array("q", (number for number, line in zip(numbers, lines, strict=True) if line))
        yield numbers, [line.split(separator) for line in lines if line]


def _quoted_blocks(blocks: Iterator[tuple[int, list[str]]], separator: str, source: str) -> Iterator[_Block]:
    first, lines = next(blocks)
    texts = (line + "\n" for line in chain(lines, (line for _, more in blocks for line in more)))
    reader = csv.reader(texts, delimiter=separator, skipinitialspace=True, strict=True)
    numbers, rows, line = array("q"), [], first
    try:
        for row in reader:
            if row:
                numbers.append(line)
                rows.append(row)
            line = first + reader.line_num
            if len(rows) == _BLOCK_ROWS:
                yield numbers, rows
                numbers, rows = array("q"), []
    except csv.Error as problem:
        raise RatingsError(f"{source}, line {line}: {problem}. Close the quotes or double inner ones.") from None
    yield numbers, rows
