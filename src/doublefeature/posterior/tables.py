"""Ids, ratings and item columns as arrays and back, checked on the way in.

Texts are stored end to end as UTF-8 with the places where they begin. An id is a text or a whole number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doublefeature._rows import view_by_item
from doublefeature.errors import RatingsError, StoreError, show
from doublefeature.levels import Levels
from doublefeature.outline import StreamedRatings
from doublefeature.posterior.arrays import Arrays, Streamed, check_layout
from doublefeature.posterior.manifest import TEXT_LIMIT, is_unicode
from doublefeature.ratings import NO_COVARIATES, Covariates, RatingArrays, Ratings

ItemColumns = Mapping[Hashable, Mapping[str, str]]
Ids = Sequence[Hashable]
FloatArray = NDArray[np.float64]


def encode_ids(ids: Ids, role: str) -> Arrays:
    """Return ids as arrays; ids that are neither text nor whole numbers are refused."""
    for label in ids:
        if type(label) not in (str, int) or not is_unicode(str(label)):
            raise RatingsError(
                f"the {role} id {show(label)} cannot be stored. Convert {role} ids to text or whole numbers first."
            )
    numbers = np.array([type(label) is int for label in ids], np.uint8)
    return {**_encode_texts(map(str, ids)), "is_number": numbers}


def decode_ids(arrays: Arrays, count: int) -> tuple[str | int, ...]:
    """Return the ids in arrays, which must be so many and all different."""
    check_layout(arrays, {"text": ("U8", (None,)), "starts": ("I64", (count + 1,)), "is_number": ("U8", (count,))})
    if (arrays["is_number"] > 1).any():
        raise StoreError("an id is neither text nor a number")
    flags = arrays["is_number"].tolist()
    ids = tuple(_number(text) if flag else text for text, flag in zip(_decode_texts(arrays), flags, strict=True))
    if len(set(ids)) < len(ids):
        raise StoreError("an id comes twice")
    return ids


def _number(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise StoreError(f"id {show(text)} is not a whole number") from None
    if str(value) != text:
        raise StoreError(f"id {show(text)} is not written as whole numbers are")
    return value


def encode_ratings(ratings: Ratings | StreamedRatings) -> dict[str, NDArray[Any] | Streamed]:
    """Return the ratings by user; the view by item is rebuilt when they are read."""
    outline = ratings.outline
    arrays: dict[str, NDArray[Any] | Streamed] = {"user_ptr": outline.user_ptr}
    if isinstance(ratings, StreamedRatings):
        length = (outline.n_ratings,)
        arrays["item_codes"] = Streamed(np.dtype(np.uint32), length, ratings.item_codes())
        arrays["levels"] = Streamed(np.dtype(np.uint8), length, ratings.level_codes())
    else:
        arrays |= {"item_codes": ratings.arrays.item_codes, "levels": ratings.arrays.levels}
    for role, table, names in _sides(outline.covariates):
        if table is not None:
            parts = {"table": table, **_encode_texts(names)}
            arrays |= {name: parts[key] for key, name in _names_of(role).items()}
    return arrays


def _sides(covariates: Covariates) -> tuple[tuple[str, FloatArray | None, tuple[str, ...]], ...]:
    return (
        ("user_covariates", covariates.users, covariates.user_names),
        ("item_covariates", covariates.items, covariates.item_names),
    )


def _names_of(role: str) -> dict[str, str]:
    """Return the names of the arrays that hold one side's covariates."""
    return {"table": role, "text": f"{role}_text", "starts": f"{role}_starts"}


def decode_covariates(arrays: Arrays, n_users: int, n_items: int) -> Covariates:
    """Return the covariates among the arrays of ratings, which lose them."""
    found: list[tuple[FloatArray | None, tuple[str, ...]]] = []
    for (role, _, _), count in zip(_sides(NO_COVARIATES), (n_users, n_items), strict=True):
        parts = {key: arrays.pop(name) for key, name in _names_of(role).items() if name in arrays}
        if not parts:
            found.append((None, ()))
            continue
        columns = parts["table"].shape[-1] if "table" in parts and parts["table"].ndim == 2 else 0
        layout = {"table": ("F64", (count, columns)), "text": ("U8", (None,)), "starts": ("I64", (columns + 1,))}
        check_layout(parts, layout)
        if not np.isfinite(parts["table"]).all():
            raise StoreError(f"{role} hold a number that is not finite")
        found.append((parts["table"], tuple(_decode_texts(parts))))
    return Covariates(found[0][0], found[1][0], found[0][1], found[1][1])


def decode_ratings(arrays: Arrays, users: Ids, items: Ids, levels: Levels) -> Ratings:
    """Return ratings over known ids and levels after checking every code and the order of the rows."""
    layout = {"user_ptr": ("I64", (len(users) + 1,)), "item_codes": ("U32", (None,)), "levels": ("U8", (None,))}
    arrays = dict(arrays)
    covariates = decode_covariates(arrays, len(users), len(items))
    check_layout(arrays, layout)
    user_ptr, item_codes, level_codes = arrays["user_ptr"], arrays["item_codes"], arrays["levels"]
    check_starts(user_ptr, item_codes.size)
    if level_codes.size != item_codes.size:
        raise StoreError(f"{item_codes.size} rated items, but {level_codes.size} levels")
    if item_codes.size and (item_codes.max() >= len(items) or level_codes.max() >= len(levels)):
        raise StoreError("a rating has an item or a level that does not exist")
    falls = np.flatnonzero(item_codes[1:] <= item_codes[:-1]) + 1
    if not np.isin(falls, user_ptr).all():
        raise StoreError("the items of a user are not in order, or come twice")
    by_item = view_by_item(user_ptr, item_codes, len(items))
    views = RatingArrays(user_ptr, item_codes, level_codes, *by_item)
    return Ratings(users, items, levels, views, covariates=covariates)


def encode_item_table(table: ItemColumns, items: Ids) -> tuple[tuple[str, ...], Arrays]:
    """Return the names of the columns and the cells of the model's items, row by row; other items are left out."""
    rows = [table.get(item, {}) for item in items]
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        if not isinstance(column, str) or len(column) > TEXT_LIMIT or not is_unicode(column):
            raise RatingsError(f"item column {show(column)} must have a short text for a name.")
    cells = [row.get(column) for row in rows for column in columns]
    for cell in cells:
        if cell is not None and (not isinstance(cell, str) or not is_unicode(cell)):
            raise RatingsError(f"an item column holds {show(cell)}. Convert item columns to text first.")
    present = np.array([cell is not None for cell in cells], np.uint8).reshape(len(rows), len(columns))
    return columns, {**_encode_texts(cell or "" for cell in cells), "present": present}


def check_item_table(arrays: Arrays, columns: Sequence[str], count: int) -> None:
    """Raise unless arrays hold a cell for every item and column."""
    cells = count * len(columns)
    layout = {"text": ("U8", (None,)), "starts": ("I64", (cells + 1,)), "present": ("U8", (count, len(columns)))}
    check_layout(arrays, layout)
    if (arrays["present"] > 1).any():
        raise StoreError("a cell is neither present nor absent")
    check_starts(arrays["starts"], arrays["text"].size)
    text = arrays["text"]
    inner = arrays["starts"][arrays["starts"] < text.size]
    if (text[inner] & 0xC0 == 0x80).any():
        raise StoreError("a text begins inside a character")
    _decode(text.tobytes())


def decode_item_table(arrays: Arrays, columns: Sequence[str], items: Ids) -> dict[Hashable, dict[str, str]]:
    """Return the columns of every item that has any, from arrays that `check_item_table` has passed."""
    cells = list(_decode_texts(arrays))
    table = {}
    for code, present in enumerate(arrays["present"].tolist()):
        row = cells[code * len(columns) : (code + 1) * len(columns)]
        found = {column: cell for column, cell, there in zip(columns, row, present, strict=True) if there}
        if found:
            table[items[code]] = found
    return table


def _encode_texts(texts: Iterable[str]) -> Arrays:
    parts = [text.encode() for text in texts]
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return {"text": np.frombuffer(b"".join(parts), np.uint8), "starts": starts}


def _decode_texts(arrays: Arrays) -> Iterable[str]:
    check_starts(arrays["starts"], arrays["text"].size)
    text = arrays["text"].tobytes()
    return (_decode(text[start:stop]) for start, stop in pairwise(arrays["starts"].tolist()))


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise StoreError("a text is not UTF-8") from None


def check_starts(starts: np.ndarray[tuple[int, ...], np.dtype[np.int64]], end: int) -> None:
    """Raise unless rows begin one after the other and fill all there is."""
    if starts[0] != 0 or starts[-1] != end or (starts[1:] < starts[:-1]).any():
        raise StoreError("rows do not begin where they must")
