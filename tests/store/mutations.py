"""Ways to damage a model folder. Each takes a random generator and all files, and returns the files it changes."""

from __future__ import annotations

import hashlib
import json
import random

import numpy as np

from doublefeature.posterior.arrays import TYPES, decode_arrays, encode_arrays
from doublefeature.posterior.manifest import manifest_checksum

Files = dict[str, bytes]
MANIFEST = "manifest.json"
ODD_VALUES = (None, True, False, -1, 0, 1, 3, 2**31, 2**53, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, 5e-324, "", "x")
ODD_THINGS = ([], {}, [[]], [0] * 40, {"a": 1}, "\ud800", "\0", "é" * 2000, "../../x", [1, 2, 3, 4, 6], ["a", "b"])
ODD_FLOATS = (np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0, 1e308, -1e308, 5e-324, 1.0, 2.0)
ODD_COUNTS = (-1, 0, 1, 2, 3, 7, 63, 64, 65, 255, 2**31, 2**32, 2**62, -(2**63), 2**63 - 1)


def _pick(rng: random.Random, files: Files, tensors: bool = False) -> str:
    return rng.choice([name for name in sorted(files) if not tensors or name != MANIFEST])


def flip_bits(rng: random.Random, files: Files) -> Files:
    name = _pick(rng, files)
    data = bytearray(files[name])
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return {name: bytes(data)}


def truncate(rng: random.Random, files: Files) -> Files:
    name = _pick(rng, files)
    return {name: files[name][: len(files[name]) * rng.randrange(100) // 100]}


def lengthen(rng: random.Random, files: Files) -> Files:
    name = _pick(rng, files)
    return {name: files[name] + rng.randbytes(rng.choice((1, 8, 4096)))}


def blank(rng: random.Random, files: Files) -> Files:
    name = _pick(rng, files)
    data = bytearray(files[name])
    start = rng.randrange(len(data))
    part = data[start : start + rng.choice((1, 8, 512))]
    data[start : start + len(part)] = bytes([rng.choice((0, 255, 32))]) * len(part)
    return {name: bytes(data)}


def swap(rng: random.Random, files: Files) -> Files:
    one, two = rng.sample(sorted(files), 2)
    return {one: files[two], two: files[one]}


def copy_over(rng: random.Random, files: Files) -> Files:
    one, two = rng.sample(sorted(files), 2)
    return {one: files[two]}


def lose(rng: random.Random, files: Files) -> Files:
    return {_pick(rng, files): None}


def noise(rng: random.Random, files: Files) -> Files:
    return {_pick(rng, files): rng.randbytes(rng.choice((0, 1, 7, 8, 9, 300)))}


def header_length(rng: random.Random, files: Files) -> Files:
    name = _pick(rng, files, tensors=True)
    length = rng.choice((0, 1, 8, 2**20, 2**20 + 8, 2**31, 2**63, 2**64 - 1, rng.randrange(4096)))
    return {name: length.to_bytes(8, "little") + files[name][8:]}


def _with_header(data: bytes, header: bytes) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def _header(data: bytes) -> dict:
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def header_value(rng: random.Random, files: Files) -> Files:
    """Change one thing in a header: a type, a shape, a place, a key."""
    name = _pick(rng, files, tensors=True)
    header = _header(files[name])
    array = rng.choice(sorted(header))
    entry = header[array]
    kind = rng.randrange(7)
    if kind == 0:
        entry["dtype"] = rng.choice([*TYPES, "F32", "BOOL", 3, None])
    elif kind in (1, 2):
        key = "shape" if kind == 1 else "data_offsets"
        place = rng.randrange(len(entry[key]) + 1)
        if place < len(entry[key]):
            entry[key][place] = rng.choice([*ODD_COUNTS, *ODD_VALUES])
        else:
            entry[key].append(rng.choice(ODD_COUNTS))
    elif kind == 3:
        entry[rng.choice(sorted(entry))] = rng.choice([*ODD_VALUES, *ODD_THINGS])
    elif kind == 4:
        header[rng.choice(sorted(header))] = header.pop(array)
    elif kind == 5:
        header[rng.choice(("__metadata__", "more", ""))] = rng.choice([entry, {"a": "b"}, *ODD_VALUES])
    else:
        del header[array]
    return {name: _with_header(files[name], json.dumps(header).encode())}


def header_text(rng: random.Random, files: Files) -> Files:
    """Replace or spoil the text of a header: repeated keys, deep nesting, long numbers."""
    name = _pick(rng, files, tensors=True)
    text = json.dumps(_header(files[name]))
    first = next(iter(_header(files[name])))
    spoilt = rng.choice(
        (
            text[:-1] + f', "{first}": {json.dumps(_header(files[name])[first])}}}',
            "[" * 200_000,
            '{"a":' * 50_000,
            text.replace("0", "9" * 5000, 1),
            text.replace("[", "[-", 1),
            text.replace("0", "NaN", 1),
            text + "{}",
            "",
            "null",
            "[]," * 300_000,
        )
    )
    return {name: _with_header(files[name], spoilt.encode())}


def array_value(rng: random.Random, files: Files) -> Files:
    """Set some numbers of an array to odd ones."""
    name = _pick(rng, files, tensors=True)
    arrays = decode_arrays(np.frombuffer(bytearray(files[name]), np.uint8))
    filled = [key for key in sorted(arrays) if arrays[key].size]
    array = arrays[rng.choice(filled)].reshape(-1)
    for _ in range(rng.choice((1, 1, 2, array.size))):
        place = rng.randrange(array.size)
        if array.dtype.kind == "f":
            array[place] = rng.choice((*ODD_FLOATS, rng.gauss(0, 1)))
        else:
            bits = rng.choice((*ODD_COUNTS, rng.getrandbits(64)))
            array[place] = np.array(bits % 2**64, np.uint64).astype(array.dtype)
    return {name: b"".join(encode_arrays(arrays))}


def array_shape(rng: random.Random, files: Files) -> Files:
    """Shorten, lengthen, retype, drop, add or rename an array."""
    name = _pick(rng, files, tensors=True)
    arrays = decode_arrays(np.frombuffer(bytearray(files[name]), np.uint8))
    key = rng.choice(sorted(arrays))
    array = arrays[key]
    kind = rng.randrange(7)
    if kind == 0:
        arrays[key] = array[:-1] if array.ndim else array
    elif kind == 1:
        arrays[key] = np.concatenate([array, array])
    elif kind == 2:
        arrays[key] = (
            array.astype(rng.choice(list(TYPES.values())), casting="unsafe")
            if array.dtype.kind != "f"
            else array.view(np.uint64)
        )
    elif kind == 3:
        arrays[key] = array.reshape(-1)
    elif kind == 4:
        arrays[key] = array.reshape(1, *array.shape)
    elif kind == 5:
        del arrays[key]
    else:
        arrays[rng.choice(("more", "effect", "text"))] = array
    return {name: b"".join(encode_arrays(arrays))}


def _places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _places(part, (*path, place))


def manifest_value(rng: random.Random, files: Files) -> Files:
    """Replace, drop, repeat or add something anywhere in the manifest."""
    manifest = json.loads(files[MANIFEST])
    *path, last = rng.choice([place for place in _places(manifest) if place])
    parent = manifest
    for key in path:
        parent = parent[key]
    kind = rng.randrange(5)
    if kind <= 1:
        parent[last] = rng.choice([*ODD_VALUES, *ODD_THINGS])
    elif kind == 2:
        value = parent[last]
        near = (
            (value + rng.choice((-1, 1)), -value, value * 2, float(value))
            if isinstance(value, int)
            else (str(value), [value])
        )
        parent[last] = rng.choice(near)
    elif kind == 3:
        del parent[last]
    elif isinstance(parent, dict):
        parent[rng.choice(("more", "", "checksums"))] = rng.choice(ODD_VALUES)
    else:
        parent.append(rng.choice([*parent, *ODD_VALUES]))
    return {MANIFEST: json.dumps(manifest).encode()}


def manifest_text(rng: random.Random, files: Files) -> Files:
    """Spoil the manifest's text."""
    text = files[MANIFEST].decode()
    spoilt = rng.choice(
        (
            text.replace('"seed": 5', '"seed": 5, "seed": 6'),
            text.replace("1", "1" * 5000, 1),
            text.replace("2.5", "NaN"),
            text.replace("2.5", "1e999"),
            "[" * 10**6,
            "[],{}," * 600_000,
            " " * 3_900_000 + text,
            text * 2,
            "﻿" + text,
        )
    )
    return {MANIFEST: spoilt.encode()}


UNSEALED = (flip_bits, flip_bits, truncate, truncate, lengthen, blank, swap, copy_over, lose, noise, header_length)
UNSEALED = (*UNSEALED, manifest_text, manifest_value, array_value)
SEALED = (flip_bits, truncate, lengthen, blank, swap, copy_over, noise, header_length, header_text)
SEALED = (*SEALED, header_value, header_value, array_shape, array_shape, manifest_value, manifest_value)
SEALED = (*SEALED, array_value, array_value, array_value)


def reseal(files: Files, changed: Files) -> Files:
    """Return the changed files together with a manifest whose sizes and checksums fit them."""
    try:
        manifest = json.loads(changed.get(MANIFEST, files[MANIFEST]))
        manifest.pop("checksum", None)
        entries = list(manifest["tables"].values())
        for chain in manifest["chains"]:
            entries += [*chain["segments"], *([chain["resume"]] if chain["resume"] else [])]
        for entry in entries:
            data = changed.get(entry["file"], files.get(entry["file"]))
            if entry["file"] in changed and data is not None:
                entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    try:
        manifest["checksum"] = manifest_checksum(manifest)
        return {**changed, MANIFEST: json.dumps(manifest).encode()}
    except (NameError, TypeError):
        return changed
