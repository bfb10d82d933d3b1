"""Named arrays in one file: the safetensors format, written and read with nothing but NumPy and JSON.

A file is the length of its header (eight bytes, little-endian), the header (JSON: type, shape and place of every
array), and the arrays' bytes end to end. Reading checks the header against the size of the file before it makes an
array, and the arrays are views of what was read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import StoreError, show

Arrays = dict[str, NDArray[Any]]
Bytes = NDArray[np.uint8]
Layout = Mapping[str, tuple[str, tuple[int | None, ...]]]
"""The type and shape that every array must have; None stands for any length."""

HEADER_LIMIT = 2**20
DIMENSION_LIMIT = 2**40
TYPES = {"F64": "<f8", "I64": "<i8", "U64": "<u8", "U32": "<u4", "U8": "|u1"}
_NAMES = {np.dtype(code): name for name, code in TYPES.items()}
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}


class Streamed(NamedTuple):
    """An array that comes in pieces: its type, its shape, and its bytes in order, the lowest of a number first."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Iterable[bytes]


def encode_arrays(arrays: Mapping[str, NDArray[Any] | Streamed]) -> Iterator[bytes]:
    """Yield the parts of a file that holds these arrays: wide types first, so that each lies where it can be used."""
    header: dict[str, dict[str, Any]] = {}
    ordered = sorted(arrays.items(), key=lambda pair: (-pair[1].dtype.itemsize, pair[0]))
    place = 0
    for name, array in ordered:
        end = place + math.prod(array.shape) * array.dtype.itemsize
        kind = _NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name, array in ordered:
        if isinstance(array, Streamed):
            yield from array.pieces
        else:
            yield np.ascontiguousarray(array, TYPES[header[name]["dtype"]]).tobytes()


def decode_arrays(data: Bytes) -> Arrays:
    """Return the arrays in the bytes of a file, as views of these bytes."""
    if data.size < 8:
        raise StoreError("the file is shorter than its header")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > min(HEADER_LIMIT, data.size - 8) or length % 8:
        raise StoreError(f"a header of {length} bytes is not possible here")
    body = data[8 + length :]
    return {entry.name: _view(body, entry) for entry in read_header(data[8 : 8 + length].tobytes(), body.size)}


class Entry(NamedTuple):
    """Type, place and shape of an array among the bytes that follow the header."""

    name: str
    kind: np.dtype[Any]
    start: int
    stop: int
    shape: tuple[int, ...]


def read_header(text: bytes, size: int) -> list[Entry]:
    """Return what a header says, after checking it against the number of bytes that follow it."""
    header = strict_json(text)
    if not isinstance(header, dict):
        raise StoreError("the header is not a JSON object")
    entries = sorted((_entry(name, value) for name, value in header.items()), key=lambda entry: entry[2:])
    end = 0
    for entry in entries:
        if entry.start != end:
            raise StoreError(f"array {show(entry.name)} does not follow the one before")
        end = entry.stop
    if end != size:
        raise StoreError(f"the arrays take {end} bytes of {size}")
    return entries


def _entry(name: str, value: object) -> Entry:
    if not isinstance(value, dict) or set(value) != _ENTRY_KEYS or value["dtype"] not in list(TYPES):
        raise StoreError(f"array {show(name)} is not described as it must be")
    shape, offsets = value["shape"], value["data_offsets"]
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2 or len(shape) > 4:
        raise StoreError(f"array {show(name)} has an impossible shape or place")
    kind = np.dtype(TYPES[value["dtype"]])
    start, stop = offsets
    if stop - start != math.prod(shape) * kind.itemsize or start % kind.itemsize:
        raise StoreError(f"array {show(name)} does not fit its place")
    return Entry(name, kind, start, stop, tuple(shape))


def _counts(values: object) -> bool:
    if not isinstance(values, list):
        return False
    return all(type(value) is int and 0 <= value <= DIMENSION_LIMIT for value in values)


def _view(body: Bytes, entry: Entry) -> NDArray[Any]:
    view = body[entry.start : entry.stop].view(entry.kind).reshape(entry.shape)
    return view.astype(entry.kind.newbyteorder("="), copy=False)


def check_layout(arrays: Arrays, layout: Layout) -> None:
    """Raise unless exactly these arrays are there, with these types and shapes."""
    if set(arrays) != set(layout):
        odd = sorted(set(arrays) ^ set(layout))
        raise StoreError(f"array {show(odd[0])} is {'missing' if odd[0] in layout else 'not known'}")
    for name, (kind, shape) in layout.items():
        found = arrays[name]
        fits = len(found.shape) == len(shape) and all(
            wanted in (None, given) for wanted, given in zip(shape, found.shape, strict=True)
        )
        if found.dtype != np.dtype(TYPES[kind]) or not fits:
            raise StoreError(
                f"array {show(name)} is {found.dtype} of shape {found.shape}, which does not fit the model"
            )


def strict_json(data: bytes, *, whole: bool = False) -> object:
    """Read JSON that holds no repeated key and no number that is not finite; with `whole`, 5.0 is read as 5."""
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_float=_maybe_whole if whole else _finite,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as problem:
        reason = "nested too deeply" if isinstance(problem, RecursionError) else show(str(problem))
        raise StoreError(f"the JSON cannot be read: {reason}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _maybe_whole(text: str) -> float | int:
    value = _finite(text)
    return int(value) if value.is_integer() and abs(value) <= 2.0**53 else value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
