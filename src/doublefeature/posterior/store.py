"""A model as a folder: written so that a kill at any moment leaves one that opens and can be gone on with.

    manifest.json                        settings, sizes, and the files that count, each with its SHA-256
    users.safetensors, ratings…, …       tables, written once
    chain-0/segment-00000.safetensors    draws and trace rows, one file per checkpoint, written once
    chain-0/resume-00001.safetensors     the state after the last segment
    card.md                              for people

The manifest is replaced last. Files it does not list are leftovers of a broken run: reading ignores them, writing
removes them.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self, Unpack

import numpy as np

from doublefeature._delimited import display_name
from doublefeature.checks import check_count
from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import SettingsError, StoreError
from doublefeature.model.state import State
from doublefeature.posterior.card import card_text
from doublefeature.posterior.creating import ModelParts, write_arrays, write_first_files
from doublefeature.posterior.disk import PARTIAL, Disk, disk_problems, sole_writer, write_file
from doublefeature.posterior.draws import Draw, Posterior, Trace, with_item_shares
from doublefeature.posterior.loading import (
    MANIFEST,
    Contents,
    LoadedChain,
    ResumePoint,
    checking,
    gather_chains,
    load_both,
    load_chains,
    load_folder,
    read_manifest_text,
)
from doublefeature.posterior.manifest import (
    MANIFEST_LIMIT,
    Manifest,
    StoredChain,
    StoredSegment,
    read_manifest,
    resume_file,
    segment_file,
    write_manifest,
)
from doublefeature.posterior.rating_file import RatingFile
from doublefeature.posterior.segments import (
    Place,
    decode_segment,
    decode_state,
    encode_segment,
    encode_state,
    sizes_of,
)
from doublefeature.posterior.tables import decode_item_table
from doublefeature.ratings import Ratings

CARD = "card.md"
_CHAIN_FILE = re.compile(r"chain-[0-9]+/(segment|resume)-[0-9]+\.safetensors(\.partial)?")


class ModelFolder:
    """A model on disk. Made by `create` (to be filled by `fit_into`), `save` or `open`."""

    def __init__(self, path: Path, contents: Contents, disk: Disk) -> None:
        self.path = path
        self.outline = contents.outline
        if contents.whole is not None:
            self._both = contents.whole
        self._whole = contents.whole is not None
        self._manifest = contents.manifest
        self._item_table = contents.item_table
        self._chains: list[LoadedChain] | None = contents.chains
        self._disk = disk
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        disk: Disk | None = None,
        beside: Mapping[str, bytes] | None = None,
        **parts: Unpack[ModelParts],
    ) -> Self:
        """Make the folder and write all but the draws, so that a disk that cannot be written to shows now.

        Parameters
        ----------
        path
            A new or empty folder.
        parts
            ratings, priors, schedule, moves, seed and preset; items and heldout if wanted (see `ModelParts`).
        disk
            What writes; tests pass one that fails.
        beside
            Files by name that are to be there before the manifest makes the folder a model.
        """
        folder, disk = Path(path), disk or Disk()
        made = cls(folder, write_first_files(folder, parts, disk), disk)
        with disk_problems(folder, "writing"):
            for name, content in (beside or {}).items():
                write_file(disk, folder / name, [content])
        made._replace_manifest(made._manifest)
        return made

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, disk: Disk | None = None, whole: bool = True) -> Self:
        """Open a folder after checking every file that counts; unless it is wanted whole, ratings stay on the disk."""
        folder = Path(path)
        return cls(folder, load_folder(folder, whole=whole), disk or Disk())

    @classmethod
    def save(
        cls,
        path: str | os.PathLike[str],
        posterior: Posterior,
        *,
        disk: Disk | None = None,
        **parts: Unpack[ModelParts],
    ) -> Self:
        """Write a posterior that was sampled in memory. Chains that ended on a draw can be gone on with."""
        chains = range(parts["schedule"].chains)
        traced = [trace.chain for trace in posterior.traces]
        if not {draw.chain for draw in posterior.draws} <= set(traced) <= set(chains):
            raise StoreError(f"the draws, traces and {len(chains)} scheduled chains do not agree: not stored")
        drawn = {chain: [draw for draw in posterior.draws if draw.chain == chain] for chain in traced}
        for trace in posterior.traces:
            encode_segment(trace, drawn[trace.chain], Place(trace.chain, 0, parts["schedule"]))
        folder = cls.create(path, disk=disk, **parts)
        for trace in posterior.traces:
            draws = drawn[trace.chain]
            complete = bool(draws) and draws[-1].sweep == trace.n_features.size
            folder.append(trace, draws, draws[-1].to_state() if complete else None)
        folder.write_card(card_text(folder))
        return folder

    @property
    def ratings(self) -> Ratings:
        """What the model is fitted on, read now if it was left on the disk."""
        return self._both[0]

    @property
    def heldout(self) -> Ratings | None:
        """What was kept out of the fit."""
        return self._both[1]

    @property
    def holds_ratings(self) -> bool:
        """Whether all ratings are in memory."""
        return "_both" in self.__dict__

    @property
    def n_heldout(self) -> int:
        """How many ratings were kept out of the fit."""
        entry = self._manifest.tables.get("heldout")
        with checking(self.path, "heldout"):
            return 0 if entry is None else RatingFile(self.path, entry, check=False).n_ratings

    @cached_property
    def _both(self) -> tuple[Ratings, Ratings | None]:
        return load_both(self.path, self._manifest, self.outline)

    @property
    def rating_file(self) -> RatingFile:
        """What the model is fitted on, to be read in pieces."""
        return RatingFile(self.path, self._manifest.tables["ratings"], check=False)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the ratings."""
        return self._manifest.fingerprint

    @property
    def preset(self) -> str:
        """Name of the preset the priors came from."""
        return self._manifest.preset

    @property
    def priors(self) -> Priors:
        """The model."""
        return self._manifest.priors

    @property
    def schedule(self) -> Schedule:
        """How long the run is."""
        return self._manifest.schedule

    @property
    def moves(self) -> Moves:
        """How a sweep goes."""
        return self._manifest.moves

    @property
    def seed(self) -> int:
        """Fixes every random number."""
        return self._manifest.seed

    @property
    def library(self) -> str:
        """Version of doublefeature that made the folder."""
        return self._manifest.library

    @cached_property
    def items(self) -> dict[Hashable, dict[str, str]] | None:
        """Columns of items by raw id; None when none were given."""
        if self._item_table is None:
            return None
        return decode_item_table(self._item_table, self._manifest.item_columns, self.outline.items)

    @property
    def sweeps_done(self) -> list[int]:
        """Sweeps behind each chain."""
        return [chain.sweeps for chain in self._manifest.chains]

    @property
    def finished(self) -> bool:
        """Whether every chain has made all its sweeps."""
        return min(self.sweeps_done) >= self.schedule.n_sweeps

    def posterior(self) -> Posterior:
        """Return the draws and traces written so far."""
        posterior = gather_chains(self._manifest, self._loaded())
        return with_item_shares(posterior, self.outline.item_ptr) if self.priors.item_choices else posterior

    @property
    def resume_points(self) -> list[ResumePoint | None]:
        """Where each chain goes on; None for a chain not begun, or saved without its last state."""
        return [chain.resume for chain in self._loaded()]

    def _loaded(self) -> list[LoadedChain]:
        if self._chains is None:
            self._chains = load_chains(self.path, self._manifest, self.outline.covariates)
        return self._chains

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder against other writers, catch up with what it holds, and remove leftovers."""
        with ExitStack() as held:
            with disk_problems(self.path, "writing"):
                held.enter_context(sole_writer(self.path))
                if read_manifest_text(self.path) != write_manifest(self._manifest):
                    contents = load_folder(self.path, whole=self._whole)
                    self._manifest, self._chains = contents.manifest, contents.chains
                self._remove_leftovers()
            yield

    def append(self, trace: Trace, draws: Sequence[Draw], state: State | None) -> None:
        """Add a run of sweeps to a chain: its trace rows, the draws among them, and the state to go on from.

        The tally of the trace counts from the chain's first sweep. When this returns, all of it is on the disk; when
        it raises or the process dies, all or nothing of it is.
        """
        chain = trace.chain
        stored = self._manifest.chains[chain]
        place = Place(chain, stored.sweeps, self.schedule)
        self._check_place(trace, place)
        arrays = encode_segment(trace, draws, place)
        outline = self.outline
        counts = len(outline.users), len(outline.items), len(outline.levels)
        sizes = sizes_of(self.priors, *counts, outline.covariates)
        decode_segment(arrays, sizes, place, trace.move_names)
        if state is not None:
            decode_state(encode_state(state), sizes, trace)
        count = len(stored.segments)
        with disk_problems(self.path, "writing"):
            self._make_chain_folder(chain)
            written = write_arrays(self._disk, self.path, segment_file(chain, count), arrays)
            resume = state and write_arrays(self._disk, self.path, resume_file(chain, count + 1), encode_state(state))
            self._disk.sync_directory(self.path / f"chain-{chain}")
        segment = StoredSegment(**vars(written), sweeps=trace.n_features.size, draws=len(draws))
        longer = StoredChain((*stored.segments, segment), resume)
        with self._lock:
            self._replace_manifest(replace(self._manifest, move_names=trace.move_names).with_chain(chain, longer))
            self._chains = None
        if stored.resume is not None:
            with suppress(OSError, MemoryError):
                self._disk.remove(self.path / stored.resume.file)

    def lengthen(self, sweeps: int) -> None:
        """Set the number of sweeps per chain, not below those done; call it inside `writing`."""
        self.check_enough(sweeps)
        self.check_resumable(sweeps)
        with self._lock:
            self._replace_manifest(replace(self._manifest, schedule=replace(self.schedule, sweeps=int(sweeps))))

    def check_longer(self, sweeps: int) -> None:
        """Raise unless so many sweeps per chain are at least as many as planned."""
        check_count("sweeps", sweeps, least=1)
        if sweeps < self.schedule.n_sweeps:
            raise SettingsError(
                f"{display_name(self.path)} has {self.schedule.n_sweeps} sweeps per chain, {sweeps} are fewer. "
                "Give more."
            )

    def check_enough(self, sweeps: int) -> None:
        """Raise unless so many sweeps per chain are at least as many as are done."""
        check_count("sweeps", sweeps, least=1)
        done = max(self.sweeps_done, default=0)
        if sweeps < done:
            raise SettingsError(
                f"{display_name(self.path)} has made {done} of {self.schedule.n_sweeps} sweeps per chain, {sweeps} are "
                f"fewer. Give {done} sweeps or more."
            )

    def check_resumable(self, sweeps: int) -> None:
        """Raise unless every chain short of so many sweeps can be begun or gone on with."""
        for number, chain in enumerate(self._manifest.chains):
            if chain.segments and chain.resume is None and chain.sweeps < sweeps:
                raise StoreError(
                    f"{display_name(self.path)}: chain {number} was saved without its last state and cannot go on. "
                    "Fit again with more sweeps."
                )

    def write_card(self, text: str) -> None:
        """Write the text for people that lies beside the model."""
        with disk_problems(self.path, "writing"):
            write_file(self._disk, self.path / CARD, [text.encode()])
            self._disk.sync_directory(self.path)

    def _check_place(self, trace: Trace, place: Place) -> None:
        if self._manifest.move_names not in ((), trace.move_names):
            raise StoreError(
                f"{display_name(self.path)} was begun by a version with other moves. Go on with that version."
            )
        if place.before + trace.n_features.size > self.schedule.n_sweeps or not trace.n_features.size:
            raise StoreError(f"chain {place.chain} has {self.schedule.n_sweeps} sweeps to make, not more: not stored")

    def _make_chain_folder(self, chain: int) -> None:
        folder = self.path / f"chain-{chain}"
        if not folder.is_dir():
            self._disk.make_directory(folder)
            self._disk.sync_directory(self.path)

    def _replace_manifest(self, manifest: Manifest) -> None:
        text = write_manifest(manifest)
        if len(text) > MANIFEST_LIMIT:
            raise StoreError(f"{display_name(self.path)} has too many segments. Checkpoint less often.")
        read_manifest(text)
        with disk_problems(self.path, "writing"):
            write_file(self._disk, self.path / MANIFEST, [text])
            self._disk.sync_directory(self.path)
        self._manifest = manifest

    def _remove_leftovers(self) -> None:
        chains = self._manifest.chains
        listed = {segment.file for chain in chains for segment in chain.segments}
        listed |= {chain.resume.file for chain in chains if chain.resume is not None}
        for file in self.path.glob("chain-*/*"):
            name = file.relative_to(self.path).as_posix()
            if name not in listed and _CHAIN_FILE.fullmatch(name):
                self._disk.remove(file)
        for name in (MANIFEST, CARD):
            if (self.path / (name + PARTIAL)).exists():
                self._disk.remove(self.path / (name + PARTIAL))


def draws_digest(posterior: Posterior) -> str:
    """Return the SHA-256 of all draws, bit by bit: equal digests mean equal draws in the same order."""
    digest = hashlib.sha256()
    for draw in posterior:
        for name, value in draw._replace(item_shares=np.zeros(0))._asdict().items():
            array = np.asarray(value)
            digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()
