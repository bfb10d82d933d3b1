"""What a model over shards says of itself: how users were split, and the merged item offsets."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Sharding
from doublefeature.errors import SettingsError, StoreError, show
from doublefeature.posterior.arrays import strict_json
from doublefeature.posterior.manifest import StoredFile, manifest_checksum

FloatArray = NDArray[np.float64]

FORMAT = "doublefeature shards"
VERSION = 1
MERGED_NAME = re.compile(r"(merged-[0-9]{5,}|consensus-[0-9]{5,}\.safetensors(\.partial)?)")
"""Names of what follows from the shards' chains."""
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
    if not MERGED_NAME.fullmatch(plain["file"]) or not _CHECKSUM.fullmatch(plain["sha256"]):
        raise StoreError(f"the merged offsets are in {show(plain['file'])}, or have no checksum")
    return StoredFile(**plain)
