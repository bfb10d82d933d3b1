"""The manifest: what a model folder is, and which of its files count.

It is JSON with its own checksum. Reading refuses whatever it does not know: an unknown key, a newer version, a file
under another name than the one its place in the manifest gives it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from doublefeature.checks import check_seed
from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import SettingsError, StoreError, show
from doublefeature.levels import MAX_LEVELS, Level, Levels, number
from doublefeature.posterior.arrays import strict_json

FORMAT = "doublefeature model"
VERSION = 3
"""Version 1 knew neither graded features nor noise scales of users, version 2 no grades of users; folders of both are
read as models without them."""
MANIFEST_LIMIT = 4 * 2**20
"""Most bytes of a manifest: some 20,000 segments."""
TABLES = ("users", "items", "ratings", "heldout", "item-table")
"""Tables written once, each in a file of its name; the last two may be absent."""
TEXT_LIMIT = 1000
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_MOST = 2**53

S = TypeVar("S", Priors, Schedule, Moves)


@dataclass(frozen=True)
class StoredFile:
    """A file that counts, with what it must contain."""

    file: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class StoredSegment(StoredFile):
    """A file of draws and trace rows."""

    sweeps: int
    draws: int


@dataclass(frozen=True)
class StoredChain:
    """The files of one chain; `resume` is the state after the last sweep of the last segment."""

    segments: tuple[StoredSegment, ...] = ()
    resume: StoredFile | None = None

    @property
    def sweeps(self) -> int:
        """Sweeps done."""
        return sum(segment.sweeps for segment in self.segments)


@dataclass(frozen=True)
class Manifest:
    """Everything about a model but its arrays."""

    library: str
    preset: str
    priors: Priors
    schedule: Schedule
    moves: Moves
    seed: int
    levels: Levels
    users: int
    items: int
    ratings: int
    base: float
    scales: tuple[float, ...]
    """Factors of the noise scale that users may have."""
    fingerprint: str
    item_columns: tuple[str, ...]
    tables: dict[str, StoredFile]
    move_names: tuple[str, ...] = ()
    chains: tuple[StoredChain, ...] = field(default_factory=tuple)

    def with_chain(self, number: int, chain: StoredChain) -> Manifest:
        """Return the manifest with one chain's files replaced."""
        chains = list(self.chains)
        chains[number] = chain
        return replace(self, chains=tuple(chains))


def table_file(name: str) -> str:
    """Return the file name of a table."""
    return f"{name}.safetensors"


def segment_file(chain: int, place: int) -> str:
    """Return the file name of a chain's segment."""
    return f"chain-{chain}/segment-{place:05}.safetensors"


def resume_file(chain: int, segments: int) -> str:
    """Return the file name of the resume point written after so many segments."""
    return f"chain-{chain}/resume-{segments:05}.safetensors"


def write_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as JSON, its checksum included."""
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "library": manifest.library,
        "preset": manifest.preset,
        "priors": manifest.priors.to_dict(),
        "schedule": manifest.schedule.to_dict(),
        "moves": manifest.moves.to_dict(),
        "seed": manifest.seed,
        "levels": list(manifest.levels),
        "sizes": {"users": manifest.users, "items": manifest.items, "ratings": manifest.ratings},
        "base": manifest.base,
        "scales": list(manifest.scales),
        "fingerprint": manifest.fingerprint,
        "item_columns": list(manifest.item_columns),
        "tables": {name: vars(entry) for name, entry in manifest.tables.items()},
        "move_names": list(manifest.move_names),
        "chains": [
            {
                "segments": [vars(segment) for segment in chain.segments],
                "resume": chain.resume and vars(chain.resume),
            }
            for chain in manifest.chains
        ],
    }
    return json.dumps({**plain, "checksum": manifest_checksum(plain)}, indent=1, default=int).encode() + b"\n"


def manifest_checksum(plain: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest's content, whatever its layout on the page."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=int).encode()).hexdigest()


def read_manifest(data: bytes) -> Manifest:
    """Check and return a manifest, or raise `StoreError` with the first thing wrong in it."""
    plain = strict_json(data)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise StoreError("this is not the manifest of a doublefeature model")
    version = plain.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        newer = type(version) is int and version > VERSION
        remedy = "Upgrade doublefeature to read it" if newer else "Fit the model again"
        raise StoreError(
            f"format version {show(version)} is not one this doublefeature reads (1 to {VERSION}). {remedy}"
        )
    checksum = plain.pop("checksum", None)
    if checksum != manifest_checksum(plain):
        raise StoreError("the manifest does not match its checksum")
    if version == 1:
        if "scales" in plain:
            raise StoreError("key 'scales' of manifest is not known")
        plain["scales"] = [1.0]
    return _Reader().manifest(plain)


class _Reader:
    """Takes a manifest apart, key by key; no key is left over and none may be absent."""

    def manifest(self, plain: dict[str, Any]) -> Manifest:
        kinds = {"format": str, "version": int, "library": str, "preset": str, "priors": dict, "schedule": dict}
        kinds |= {"moves": dict, "seed": int, "levels": list, "sizes": dict, "base": float, "scales": list}
        kinds |= {"fingerprint": str, "item_columns": list, "tables": dict, "move_names": list, "chains": list}
        _take(plain, "manifest", kinds)
        sizes = _take(plain["sizes"], "sizes", {"users": int, "items": int, "ratings": int})
        schedule = _settings(Schedule, plain["schedule"])
        columns = _names(plain["item_columns"], "item_columns")
        manifest = Manifest(
            library=_text(plain["library"], "library"),
            preset=_text(plain["preset"], "preset"),
            priors=_settings(Priors, plain["priors"]),
            schedule=schedule,
            moves=_settings(Moves, plain["moves"]),
            seed=_seed(plain["seed"]),
            levels=_levels(plain["levels"]),
            **sizes,
            base=plain["base"],
            scales=_factors(plain["scales"]),
            fingerprint=plain["fingerprint"],
            item_columns=columns,
            tables=self.tables(plain["tables"]),
            move_names=_names(plain["move_names"], "move_names"),
            chains=tuple(self.chain(chain, entry) for chain, entry in enumerate(plain["chains"])),
        )
        if schedule.sweeps is None:
            raise StoreError("schedule.sweeps is absent")
        if len(manifest.chains) != schedule.chains:
            raise StoreError(f"{len(manifest.chains)} chains are listed, the schedule has {schedule.chains}")
        if bool(columns) != ("item-table" in manifest.tables):
            raise StoreError("item_columns and the item table do not belong together")
        for chain in manifest.chains:
            if chain.sweeps > schedule.sweeps:
                raise StoreError(f"a chain has {chain.sweeps} sweeps, the schedule {schedule.sweeps}")
        return manifest

    def tables(self, plain: dict[str, Any]) -> dict[str, StoredFile]:
        """Read the list of tables."""
        if not set(TABLES[:3]) <= set(plain) <= set(TABLES):
            raise StoreError(f"tables are {show(sorted(plain))}, not {show(list(TABLES))}")
        return {name: self.file(entry, table_file(name)) for name, entry in plain.items()}

    def chain(self, chain: int, plain: object) -> StoredChain:
        """Read one chain's files, which must carry the names of their places."""
        entry = _take(plain, f"chain {chain}", {"segments": list, "resume": object})
        segments = tuple(self.segment(chain, place, part) for place, part in enumerate(entry["segments"]))
        resume = None
        if entry["resume"] is not None:
            if not segments:
                raise StoreError(f"chain {chain} has a resume point and no segment")
            resume = self.file(entry["resume"], resume_file(chain, len(segments)))
        return StoredChain(segments, resume)

    def segment(self, chain: int, place: int, plain: object) -> StoredSegment:
        """Read one segment's entry."""
        kinds = {"file": str, "sha256": str, "bytes": int, "sweeps": int, "draws": int}
        entry = _take(plain, f"segment {place} of chain {chain}", kinds)
        base = self.file({key: entry[key] for key in ("file", "sha256", "bytes")}, segment_file(chain, place))
        if not entry["draws"] <= entry["sweeps"] or entry["sweeps"] == 0:
            raise StoreError(f"{base.file} has {entry['draws']} draws in {entry['sweeps']} sweeps")
        return StoredSegment(base.file, base.sha256, base.bytes, entry["sweeps"], entry["draws"])

    def file(self, plain: object, name: str) -> StoredFile:
        """Read one file's entry."""
        entry = _take(plain, name, {"file": str, "sha256": str, "bytes": int})
        if entry["file"] != name or not _CHECKSUM.fullmatch(entry["sha256"]):
            raise StoreError(f"the entry of {name} names {show(entry['file'])}, or has no checksum")
        return StoredFile(**entry)


def _take(plain: object, where: str, kinds: dict[str, type]) -> dict[str, Any]:
    """Return a JSON object after checking that it has these keys, of these types, and no others."""
    if not isinstance(plain, dict):
        raise StoreError(f"{where} is not a JSON object")
    odd = sorted(set(plain) ^ set(kinds))
    if odd:
        raise StoreError(f"key {show(odd[0])} of {where} is {'missing' if odd[0] in kinds else 'not known'}")
    for key, kind in kinds.items():
        value = plain[key]
        if kind is not object and type(value) is not kind:
            raise StoreError(f"{key} of {where} is {show(value)}, which is not of type {kind.__name__}")
        if kind is int and not 0 <= value <= _MOST and key != "seed":
            raise StoreError(f"{key} of {where} is {show(value)}, out of range")
    return plain


def _settings(kind: type[S], plain: dict[str, Any]) -> S:
    """Return settings that give back exactly what was read."""
    try:
        found = kind.from_dict(plain)
    except (SettingsError, TypeError, ValueError, OverflowError) as problem:
        raise StoreError(f"{kind.__name__.lower()}: {show(str(problem))}") from None
    again = found.to_dict()
    if any(json.dumps(again[key]) != json.dumps(value) for key, value in plain.items()):
        raise StoreError(f"{kind.__name__.lower()} has a value of the wrong type")
    return found


def _seed(value: int) -> int:
    try:
        return check_seed(value)
    except SettingsError as problem:
        raise StoreError(str(problem).rstrip(".")) from None


def _levels(labels: list[Level]) -> Levels:
    texts = all(isinstance(label, str) and label.strip() == label != "" and is_unicode(label) for label in labels)
    numbers = all(type(label) in (int, float) and math.isfinite(number(label)) for label in labels)
    if not (texts or numbers) or not 2 <= len(labels) <= MAX_LEVELS or len(set(labels)) < len(labels):
        raise StoreError(f"levels {show(labels)} are not 2 to {MAX_LEVELS} different numbers or texts")
    return Levels(labels)


def _factors(values: list[object]) -> tuple[float, ...]:
    found = tuple(value for value in values if type(value) is float and value > 0.0)
    if not 1 <= len(found) == len(values) <= 256:
        raise StoreError(f"scales {show(values)} are not 1 to 256 positive numbers")
    return found


def _names(values: list[object], where: str) -> tuple[str, ...]:
    if len(values) > 1000 or len(set(map(str, values))) < len(values):
        raise StoreError(f"{where} repeats, or is too long")
    return tuple(_text(value, where) for value in values)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > TEXT_LIMIT or not is_unicode(value):
        raise StoreError(f"{where} holds {show(value)}, which is not a short text")
    return value


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8 (lone surrogates cannot)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
