"""The ratings of a model folder in pieces: all but the row pointers and covariates stays on the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import StoreError
from doublefeature.levels import Levels
from doublefeature.outline import Outline, row_pointers
from doublefeature.posterior.arrays import HEADER_LIMIT, Arrays, Entry, read_header
from doublefeature.posterior.manifest import StoredFile
from doublefeature.posterior.tables import Ids, check_starts, decode_covariates

PIECE = 2**20
"""Most ratings in a piece: five megabytes."""
_LONG = ("item_codes", "levels")


class RatingFile:
    """A file of ratings by user."""

    def __init__(self, folder: Path, entry: StoredFile, *, check: bool = True) -> None:
        self._file = folder / entry.file
        try:
            size = self._file.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError("it is missing") from None
        if size != entry.bytes:
            raise StoreError(f"it has {size} bytes instead of {entry.bytes}")
        if check:
            with self._file.open("rb") as raw:
                if hashlib.file_digest(raw, "sha256").hexdigest() != entry.sha256:
                    raise StoreError("it does not match its checksum")
        self._begin, self._entries = self._layout(size)
        self.n_ratings = self._entries["item_codes"].shape[0]

    def outline(self, users: Ids, items: Ids, levels: Levels) -> Outline:
        """Return what there is to know without the ratings, after checking every code and the order of the rows."""
        short: Arrays = {name: self._read(name) for name in self._entries if name not in _LONG}
        user_ptr = short.pop("user_ptr")
        covariates = decode_covariates(short, len(users), len(items))
        if short or user_ptr.shape != (len(users) + 1,):
            raise StoreError("the arrays are not those of ratings")
        check_starts(user_ptr, self.n_ratings)
        counts = np.zeros(len(items), np.int64)
        last = -1
        for low, (item_codes, level_codes) in zip(range(0, self.n_ratings, PIECE), self.pieces(), strict=True):
            if item_codes.max() >= len(items) or level_codes.max() >= len(levels):
                raise StoreError("a rating has an item or a level that does not exist")
            steps = np.diff(item_codes.astype(np.int64), prepend=last)
            if not np.isin(low + np.flatnonzero(steps <= 0), user_ptr).all():
                raise StoreError("the items of a user are not in order, or come twice")
            last = int(item_codes[-1])
            counts += np.bincount(item_codes, minlength=len(items))
        return Outline(users, items, levels, user_ptr, row_pointers(counts), covariates)

    def pieces(self, low: int = 0, high: int | None = None) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:
        """Yield item and level codes of ratings low, …, high − 1, some at a time."""
        high = self.n_ratings if high is None else high
        for start in range(low, high, PIECE):
            stop = min(start + PIECE, high)
            yield self._read("item_codes", start, stop), self._read("levels", start, stop)

    def _layout(self, size: int) -> tuple[int, dict[str, Entry]]:
        with self._file.open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            if length > min(HEADER_LIMIT, size - 8) or length % 8:
                raise StoreError(f"a header of {length} bytes is not possible here")
            entries = {entry.name: entry for entry in read_header(raw.read(length), size - 8 - length)}
        kinds = {"user_ptr": np.int64, "item_codes": np.uint32, "levels": np.uint8}
        for name, kind in kinds.items():
            if name not in entries or entries[name].kind != kind or len(entries[name].shape) != 1:
                raise StoreError("the arrays are not those of ratings")
        if entries["item_codes"].shape != entries["levels"].shape:
            raise StoreError("as many levels as rated items are needed")
        return 8 + length, entries

    def _read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        entry = self._entries[name]
        width = entry.kind.itemsize
        count = (entry.stop - entry.start) // width if stop is None else stop - start
        found = np.fromfile(self._file, entry.kind, count, offset=self._begin + entry.start + start * width)
        if found.size != count:
            raise StoreError("it ends too early")
        shaped = found.reshape(entry.shape) if stop is None else found
        return shaped.astype(entry.kind.newbyteorder("="), copy=False)
