"""A model over shards of users as a folder: a model folder whose shards are model folders inside it.

    manifest.json, users…, ratings…, …      all users, all items; no draws (`doublefeature.posterior.store`)
    sharding.json                           how users were split and offsets merged, with its own checksum
    shards/00, shards/01, …                 model folders of the shards' chains
    consensus-00240.safetensors             merged item offsets after 240 sweeps, what each shard said, and how near
    merged-00240/00, …                      model folders of the shards' draws after the second stage: what answers
    card.md                                 for people

Each part is written whole or not at all, and only when all before it are there, so that a kill at any moment leaves a
folder that can be gone on with.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from doublefeature._delimited import display_name
from doublefeature._version import __version__
from doublefeature.config import Schedule, Sharding
from doublefeature.errors import SettingsError, StoreError, show
from doublefeature.posterior.arrays import Arrays, check_layout, strict_json
from doublefeature.posterior.creating import SHARDING, ModelParts, write_arrays
from doublefeature.posterior.disk import Disk, disk_problems, read_file, write_file
from doublefeature.posterior.loading import MANIFEST, checking, read_entry, read_manifest_text
from doublefeature.posterior.manifest import StoredFile, manifest_checksum, read_manifest
from doublefeature.posterior.store import ModelFolder

FloatArray = NDArray[np.float64]

FORMAT = "doublefeature shards"
VERSION = 1
_LIMIT = 2**20
_STALE = re.compile(r"(merged-[0-9]{5,}|consensus-[0-9]{5,}\.safetensors(\.partial)?)")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


class Consensus(NamedTuple):
    """Merged item offsets ρ and the shards they come from."""

    mean: FloatArray  # (items,)
    sd: FloatArray  # (items,)
    offsets: FloatArray  # (chains, draws, items)  ρ̃, the same for all shards
    shard_mean: FloatArray  # (shards, items)
    shard_sd: FloatArray  # (shards, items)
    hit_rate: FloatArray  # (shards,)  share of stored draws with |ρ − ρ̃| < ε for every item
    distance: FloatArray  # (shards,)  root mean square of (ρ − ρ̃) / shard's sd over draws and items

    @property
    def disagreement(self) -> FloatArray:
        r"""How much more shards differ over each item than their own spreads allow, 1 when not at all.

        $\sqrt{\sum_s (\mu_s - \bar\mu)^2 / \sigma_s^2 / (S - 1)}$ with $\bar\mu$ the precision-weighted mean; 0 for one
        shard.
        """
        weights = self.shard_sd**-2
        centre = (weights * self.shard_mean).sum(axis=0) / weights.sum(axis=0)
        squares = (weights * (self.shard_mean - centre) ** 2).sum(axis=0)
        found: FloatArray = np.sqrt(squares / max(1, self.shard_mean.shape[0] - 1))
        return found


@dataclass(frozen=True)
class ShardingManifest:
    """The split, and the merged offsets once they are there."""

    library: str
    sharding: Sharding
    fingerprints: tuple[str, ...]
    """Fingerprint of each shard's ratings."""
    consensus: StoredFile | None = None

    def write(self) -> bytes:
        """Return the manifest as JSON, its checksum included."""
        plain: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "library": self.library,
            "sharding": self.sharding.to_dict(),
            "fingerprints": list(self.fingerprints),
            "consensus": self.consensus and vars(self.consensus),
        }
        return json.dumps({**plain, "checksum": manifest_checksum(plain)}, indent=1).encode() + b"\n"


def read_sharding(data: bytes) -> ShardingManifest:
    """Check and return a manifest, or raise `StoreError` with the first thing wrong in it."""
    plain = strict_json(data)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise StoreError("it does not describe the shards of a doublefeature model")
    if plain.get("version") != VERSION:
        raise StoreError(f"version {show(plain.get('version'))} of shards is not one this doublefeature reads")
    if plain.pop("checksum", None) != manifest_checksum(plain):
        raise StoreError("it does not match its checksum")
    kinds = {"format": str, "version": int, "library": str, "sharding": dict, "fingerprints": list}
    if set(plain) != {*kinds, "consensus"} or any(type(plain[key]) is not kind for key, kind in kinds.items()):
        raise StoreError("a key is missing, not known, or of the wrong type")
    try:
        sharding = Sharding.from_dict(plain["sharding"])
    except (SettingsError, TypeError) as problem:
        raise StoreError(f"sharding: {show(str(problem))}") from None
    marks = plain["fingerprints"]
    if len(marks) != sharding.shards or not all(isinstance(mark, str) and _CHECKSUM.fullmatch(mark) for mark in marks):
        raise StoreError(f"it lists {len(marks)} fingerprints for {sharding.shards} shards")
    return ShardingManifest(plain["library"], sharding, tuple(marks), _stored(plain["consensus"]))


def _read_manifest(folder: Path) -> ShardingManifest:
    with checking(folder, SHARDING):
        return read_sharding(read_file(folder / SHARDING, most=_LIMIT).tobytes())


def _stored(plain: object) -> StoredFile | None:
    if plain is None:
        return None
    kinds = {"file": str, "sha256": str, "bytes": int}
    if (
        not isinstance(plain, dict)
        or set(plain) != set(kinds)
        or any(type(plain[k]) is not t for k, t in kinds.items())
    ):
        raise StoreError("the entry of the merged offsets is not as it must be")
    if not _STALE.fullmatch(plain["file"]) or not _CHECKSUM.fullmatch(plain["sha256"]):
        raise StoreError(f"the merged offsets are in {show(plain['file'])}, or have no checksum")
    return StoredFile(**plain)


def is_sharded(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a model over shards."""
    return (Path(path) / SHARDING).is_file()


class ShardedFolder:
    """A model over shards on disk. Made by `create` (to be filled by `fit_shards`) or `open`."""

    def __init__(self, whole: ModelFolder, manifest: ShardingManifest, disk: Disk) -> None:
        self.whole = whole
        self.path = whole.path
        self._manifest = manifest
        self._disk = disk

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        sharding: Sharding,
        fingerprints: tuple[str, ...],
        disk: Disk | None = None,
        **parts: Unpack[ModelParts],
    ) -> Self:
        """Make the folder and write all but shards."""
        manifest = ShardingManifest(__version__, sharding, fingerprints)
        disk = disk or Disk()
        return cls(ModelFolder.create(path, disk=disk, beside={SHARDING: manifest.write()}, **parts), manifest, disk)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, disk: Disk | None = None) -> Self:
        """Open a folder after checking what all shards share; shards are checked when they are asked for."""
        folder = Path(path)
        manifest = _read_manifest(folder)
        disk = disk or Disk()
        return cls(ModelFolder.open(folder, disk=disk), manifest, disk)

    @property
    def sharding(self) -> Sharding:
        """How users were split."""
        return self._manifest.sharding

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Fingerprint of each shard's ratings."""
        return self._manifest.fingerprints

    @property
    def merged_schedule(self) -> Schedule:
        """The schedule of merged draws: those that are left of each chain, one a sweep."""
        kept = self.whole.schedule.draws_per_chain
        if self.sharding.second_stage == "paper":
            kept = max(1, round(self.sharding.keep_share * kept))
        return replace(self.whole.schedule, sweeps=kept, warmup=0, thin=1)

    def shard_path(self, shard: int) -> Path:
        """Where a shard's own chains are."""
        return self.path / "shards" / f"{shard:02}"

    def merged_path(self, shard: int) -> Path:
        """Where a shard's draws with merged offsets are."""
        return self.path / f"merged-{self.whole.schedule.sweeps:05}" / f"{shard:02}"

    def shard(self, shard: int) -> ModelFolder:
        """Open the model folder of a shard's own chains."""
        return self._part(self.shard_path(shard), shard)

    def merged(self, shard: int) -> ModelFolder:
        """Open the model folder of a shard's draws with merged offsets."""
        return self._part(self.merged_path(shard), shard)

    def _part(self, path: Path, shard: int) -> ModelFolder:
        if not 0 <= shard < self.sharding.shards:
            raise SettingsError(f"{display_name(self.path)} has shards 0 to {self.sharding.shards - 1}, got {shard}.")
        found = ModelFolder.open(path, disk=self._disk)
        if found.ratings.fingerprint != self.fingerprints[shard]:
            raise StoreError(f"{display_name(path)} is not shard {shard} of the model. Restore it from a copy.")
        return found

    def is_begun(self, shard: int) -> bool:
        """Whether a shard's folder is there."""
        return (self.shard_path(shard) / MANIFEST).is_file()

    def is_merged(self, shard: int) -> bool:
        """Whether a shard's second stage is done."""
        path = self.merged_path(shard)
        if not (path / MANIFEST).is_file():
            return False
        manifest = read_manifest(read_manifest_text(path))
        return min(chain.sweeps for chain in manifest.chains) >= manifest.schedule.sweeps

    @property
    def finished(self) -> bool:
        """Whether every shard can answer."""
        return self._manifest.consensus is not None and all(map(self.is_merged, range(self.sharding.shards)))

    def consensus(self) -> Consensus | None:
        """Return the merged offsets; None before the shards are done."""
        stored = self._manifest.consensus
        if stored is None:
            return None
        with checking(self.path, stored.file):
            return _decode(read_entry(self.path, stored), self)

    def write_consensus(self, consensus: Consensus) -> None:
        """Keep the merged offsets."""
        file = f"consensus-{self.whole.schedule.sweeps:05}.safetensors"
        arrays = dict(zip(Consensus._fields, consensus, strict=True))
        with disk_problems(self.path, "writing"):
            stored = write_arrays(self._disk, self.path, file, arrays)
            self._disk.sync_directory(self.path)
        self._replace(replace(self._manifest, consensus=stored))

    def lengthen(self, sweeps: int) -> None:
        """Set the number of sweeps per chain, which can only grow; merged offsets are then found anew."""
        if sweeps != self.whole.schedule.sweeps:
            self.whole.check_longer(sweeps)
            self._replace(replace(self._manifest, consensus=None))
            self.whole.lengthen(sweeps)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder against other writers, and remove what was merged before it was made longer."""
        with self.whole.writing():
            self._manifest = _read_manifest(self.path)
            current = {self.merged_path(0).parent.name, self._manifest.consensus and self._manifest.consensus.file}
            with disk_problems(self.path, "writing"):
                for entry in self.path.iterdir():
                    if _STALE.fullmatch(entry.name) and entry.name not in current:
                        shutil.rmtree(entry) if entry.is_dir() else self._disk.remove(entry)
            yield

    def _replace(self, manifest: ShardingManifest) -> None:
        with disk_problems(self.path, "writing"):
            write_file(self._disk, self.path / SHARDING, [manifest.write()])
            self._disk.sync_directory(self.path)
        self._manifest = manifest


def _decode(arrays: Arrays, folder: ShardedFolder) -> Consensus:
    shards, items = folder.sharding.shards, folder.whole.ratings.n_items
    schedule = folder.whole.schedule
    check_layout(
        arrays,
        {
            "mean": ("F64", (items,)),
            "sd": ("F64", (items,)),
            "offsets": ("F64", (schedule.chains, schedule.draws_per_chain, items)),
            "shard_mean": ("F64", (shards, items)),
            "shard_sd": ("F64", (shards, items)),
            "hit_rate": ("F64", (shards,)),
            "distance": ("F64", (shards,)),
        },
    )
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise StoreError("a number is not finite")
    if (arrays["sd"] <= 0).any() or (arrays["shard_sd"] <= 0).any():
        raise StoreError("a standard deviation is not positive")
    return Consensus(**arrays)
