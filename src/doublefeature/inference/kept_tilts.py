"""How traits shift users, draw by draw, kept in the model folder: drawn once for a model, seconds where it is large."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import StoreError
from doublefeature.inference.tilts import Tilt
from doublefeature.posterior.arrays import Arrays, check_layout, decode_arrays, encode_arrays
from doublefeature.posterior.disk import Disk, read_file, write_file
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.loading import read_manifest_text

FloatArray = NDArray[np.float64]

FILE = "tilts.safetensors"
_MOST_BYTES = 2**30


def kept_tilts(posterior: Posterior, folder: Path | None, make: Callable[[], list[Tilt]]) -> list[Tilt]:
    """Return the tilts of users, read from the model folder if they were drawn before, else drawn and kept there.

    What is kept carries a checksum of itself and of the manifest: tilts of other draws and damaged ones are not used.
    """
    if folder is None:
        return make()
    manifest = read_manifest_text(folder)
    with suppress(OSError, StoreError):
        return _decode(decode_arrays(read_file(folder / FILE, most=_MOST_BYTES)), manifest, posterior)
    found = make()
    weights, offset = np.concatenate([tilt.weights for tilt in found]), np.stack([tilt.offset for tilt in found])
    arrays = {"key": _key(manifest, weights, offset), "weights": weights, "offset": offset}
    with suppress(OSError):
        write_file(Disk(), folder / FILE, encode_arrays(arrays))
    return found


def _key(manifest: bytes, *arrays: FloatArray) -> NDArray[np.uint8]:
    digest = hashlib.sha256(manifest)
    for array in arrays:
        digest.update(np.ascontiguousarray(array, "<f8").data)
    return np.frombuffer(digest.digest(), np.uint8)


def _decode(arrays: Arrays, manifest: bytes, posterior: Posterior) -> list[Tilt]:
    """Return what was kept, or raise `StoreError` when it is of other draws or damaged."""
    n_draws, borders = len(posterior), np.cumsum(posterior.n_features)
    check_layout(
        arrays, {"key": ("U8", (32,)), "weights": ("F64", (int(borders[-1]), None)), "offset": ("F64", (n_draws, None))}
    )
    weights, offset = arrays["weights"], arrays["offset"]
    if not np.array_equal(arrays["key"], _key(manifest, weights, offset)):
        raise StoreError("kept tilts of other draws, or damaged ones")
    return [Tilt(*pair) for pair in zip(np.split(weights, borders[:-1]), offset, strict=True)]
