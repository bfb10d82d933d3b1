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

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self, Unpack

import numpy as np

from doublefeature._delimited import display_name
from doublefeature._version import __version__
from doublefeature.config import Schedule, Sharding
from doublefeature.errors import SettingsError, StoreError
from doublefeature.posterior.arrays import Arrays, check_layout
from doublefeature.posterior.creating import SHARDING, ModelParts, write_arrays
from doublefeature.posterior.disk import Disk, disk_problems, read_file, write_file
from doublefeature.posterior.loading import MANIFEST, checking, read_entry, read_manifest_text
from doublefeature.posterior.manifest import read_manifest
from doublefeature.posterior.shard_manifest import MERGED_NAME, Consensus, ShardingManifest, read_sharding
from doublefeature.posterior.store import ModelFolder

_LIMIT = 2**20


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
        return self.path / f"merged-{self.whole.schedule.n_sweeps:05}" / f"{shard:02}"

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
        return min(chain.sweeps for chain in manifest.chains) >= manifest.schedule.n_sweeps

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
        file = f"consensus-{self.whole.schedule.n_sweeps:05}.safetensors"
        arrays = dict(zip(Consensus._fields, consensus, strict=True))
        with disk_problems(self.path, "writing"):
            stored = write_arrays(self._disk, self.path, file, arrays)
            self._disk.sync_directory(self.path)
        self._replace(replace(self._manifest, consensus=stored))

    def lengthen(self, sweeps: int) -> None:
        """Set the number of sweeps per chain, which can only grow; merged offsets are then found anew."""
        if sweeps != self.whole.schedule.n_sweeps:
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
                    if MERGED_NAME.fullmatch(entry.name) and entry.name not in current:
                        shutil.rmtree(entry) if entry.is_dir() else self._disk.remove(entry)
            yield

    def _replace(self, manifest: ShardingManifest) -> None:
        with disk_problems(self.path, "writing"):
            write_file(self._disk, self.path / SHARDING, [manifest.write()])
            self._disk.sync_directory(self.path)
        self._manifest = manifest


def _read_manifest(folder: Path) -> ShardingManifest:
    with checking(folder, SHARDING):
        return read_sharding(read_file(folder / SHARDING, most=_LIMIT).tobytes())


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
