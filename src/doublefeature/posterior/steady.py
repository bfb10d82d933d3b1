"""The features to show to people: those that draws really have, and that recur. Found once, then kept in the folder."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import StoreError
from doublefeature.posterior.alignment import from_bits, to_bits
from doublefeature.posterior.arrays import Arrays, decode_arrays, encode_arrays
from doublefeature.posterior.disk import Disk, read_file, write_file
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.feature_summary import FeatureSummary
from doublefeature.posterior.features import Allocation, estimate, summarise
from doublefeature.posterior.loading import read_manifest_text

FILE = "features.safetensors"
_MOST_BYTES = 2**30


def steady_features(posterior: Posterior) -> Allocation:
    """Return the estimate whose features recur most, weighed by their size and effect.

    Where chains sit in different modes, the allocation nearest to all of them on average is made of overlaps of
    different features, which no draw has. The estimate from a single chain is then the better picture. Candidates are
    the estimate from all draws and that of each chain; each is judged over all draws by
    Σ_k recurrence_k · users_k · items_k · |effect_k|. Features that recur in no draw at all are left out.
    """
    chains = posterior.chains
    candidates = [estimate(posterior, starts=8, sweeten=2, growths=4, most_draws=80)]
    if len(chains) > 1:
        parts = [replace(posterior, draws=draws) for draws in chains]
        candidates += [estimate(part, starts=2, sweeten=1, growths=2, most_draws=25) for part in parts]
    judged = [(allocation, summarise(posterior, allocation, by_item=False)) for allocation in candidates]
    allocation, summaries = max(judged, key=lambda pair: sum(map(_weight, pair[1])))
    return _only(allocation, np.array([feature.recurrence > 0.0 for feature in summaries], bool))


def _weight(feature: FeatureSummary) -> float:
    return feature.recurrence * feature.users.size * feature.items.size * abs(feature.effect)


def _only(allocation: Allocation, kept: NDArray[np.bool_]) -> Allocation:
    return Allocation(
        allocation.user_members[:, kept],
        allocation.item_members[:, kept],
        allocation.effect[kept],
        allocation.expected_distance,
        allocation.method,
    )


def kept_features(posterior: Posterior, folder: Path | None) -> Allocation:
    """Return the steady features, read from the model folder if they were found before, else kept there.

    What is kept carries the checksum of the manifest, so that features of other draws are never shown.
    """
    if folder is None:
        return steady_features(posterior)
    sizes = posterior.draws[0].user_offset.size, posterior.draws[0].item_offset.size
    with suppress(OSError, StoreError):
        return _read(folder, sizes)
    found = steady_features(posterior)
    with suppress(OSError):
        _write(folder, found)
    return found


def drop_user(source: Path, target: Path, user: int, sizes: tuple[int, int]) -> None:
    """Keep in another folder what one has kept of its features, without a user and without features of nobody else."""
    with suppress(OSError, StoreError):
        found = _read(source, sizes)
        left = replace(found, user_members=np.delete(found.user_members, user, axis=0))
        _write(target, _only(left, np.asarray(left.user_members.any(axis=0))))


def _read(folder: Path, sizes: tuple[int, int]) -> Allocation:
    return _decode(decode_arrays(read_file(folder / FILE, most=_MOST_BYTES)), _key(folder), sizes)


def _write(folder: Path, allocation: Allocation) -> None:
    write_file(Disk(), folder / FILE, encode_arrays(_encode(allocation, _key(folder))))


def _key(folder: Path) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(read_manifest_text(folder)).digest(), np.uint8)


def _encode(allocation: Allocation, key: NDArray[np.uint8]) -> Arrays:
    return {
        "key": key,
        "user_bits": to_bits(allocation.user_members),
        "item_bits": to_bits(allocation.item_members),
        "effect": allocation.effect,
        "expected_distance": np.array([allocation.expected_distance]),
    }


def _decode(arrays: Arrays, key: NDArray[np.uint8], sizes: tuple[int, int]) -> Allocation:
    """Return what was kept, or raise `StoreError` when it is of other draws or damaged."""
    wanted = {"key", "user_bits", "item_bits", "effect", "expected_distance"}
    if set(arrays) != wanted or not np.array_equal(arrays["key"], key):
        raise StoreError("kept features of other draws")
    n_features = arrays["effect"].size
    for name, rows in (("user_bits", sizes[0]), ("item_bits", sizes[1])):
        if arrays[name].dtype != np.uint64 or arrays[name].shape != (n_features, -(-rows // 64)):
            raise StoreError("kept features of another size")
    effect = arrays["effect"].astype(np.float64)
    if effect.ndim != 1 or not np.isfinite(effect).all() or arrays["expected_distance"].size != 1:
        raise StoreError("kept features that are damaged")
    members = from_bits(arrays["user_bits"], sizes[0]), from_bits(arrays["item_bits"], sizes[1])
    return Allocation(*members, effect, float(arrays["expected_distance"][0]), "distance")
