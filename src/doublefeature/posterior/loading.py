"""Reading a model folder: every file that counts, checked before it is believed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._delimited import display_name
from doublefeature.errors import StoreError
from doublefeature.model.state import State, build_model
from doublefeature.outline import Outline
from doublefeature.posterior.arrays import Arrays, decode_arrays
from doublefeature.posterior.disk import disk_problems, read_file
from doublefeature.posterior.draws import Draw, Posterior, Trace
from doublefeature.posterior.manifest import MANIFEST_LIMIT, Manifest, StoredFile, read_manifest
from doublefeature.posterior.rating_file import RatingFile
from doublefeature.posterior.segments import Place, Sizes, decode_segment, decode_state, sizes_of
from doublefeature.posterior.tables import Ids, check_item_table, decode_ids, decode_ratings
from doublefeature.ratings import Covariates, Ratings

MANIFEST = "manifest.json"
_ANY_SIZE = 2**62
_TRIES = 50


class ResumePoint(NamedTuple):
    """Where a chain goes on: its state, the sweeps behind it, and the moves tried and accepted in them."""

    state: State
    sweep: int
    tally: NDArray[np.int64]


class LoadedChain(NamedTuple):
    """One chain as far as it has come."""

    draws: list[Draw]
    trace: Trace | None
    resume: ResumePoint | None


class Contents(NamedTuple):
    """All that a folder holds."""

    manifest: Manifest
    outline: Outline
    whole: tuple[Ratings, Ratings | None] | None
    """Ratings, and those kept out; None when they were left on the disk."""
    item_table: Arrays | None
    chains: list[LoadedChain]


def load_folder(path: Path, *, whole: bool = True) -> Contents:
    """Read and check everything; while another process is writing, what it has just replaced is read again.

    Unless wanted as a whole, ratings are checked piece by piece and left on the disk.
    """
    text = read_manifest_text(path)
    for _ in range(_TRIES):
        try:
            return _load(path, text, whole)
        except StoreError:
            again = read_manifest_text(path)
            if again == text:
                raise
            text = again
    return _load(path, text, whole)


def read_manifest_text(path: Path) -> bytes:
    """Return the bytes of a folder's manifest."""
    with disk_problems(path, "reading"):
        if not path.is_dir():
            raise StoreError(f"{display_name(path)} is not a folder. Give the folder that fit or save has written.")
        try:
            return read_file(path / MANIFEST, most=MANIFEST_LIMIT).tobytes()
        except FileNotFoundError:
            raise StoreError(
                f"{display_name(path)} is not a model: it has no {MANIFEST}. "
                "Give the folder that fit or save has written."
            ) from None
        except StoreError as problem:
            raise _damage(path, MANIFEST, problem) from None


def _load(path: Path, text: bytes, whole: bool) -> Contents:
    with checking(path, MANIFEST):
        manifest = read_manifest(text)
        levels = manifest.levels
        model = build_model(manifest.priors, 0, 0, len(levels))
        if manifest.base != model.base:
            raise StoreError("the base score is not that of the priors and levels")
        if list(manifest.scales) != model.scales.tolist():
            raise StoreError("the noise scales of users are not those of the priors")
    states = _read_states(path, manifest)
    ids = _read_ids(path, manifest)
    if whole:
        both = _read_both(path, manifest, ids)
        outline = both[0].outline
    else:
        both, outline = None, _read_outline(path, manifest, ids)
    item_table = None
    if "item-table" in manifest.tables:
        with checking(path, "item-table"):
            item_table = read_entry(path, manifest.tables["item-table"])
            check_item_table(item_table, manifest.item_columns, manifest.items)
    chains = _load_chains(path, manifest, states, outline.covariates)
    return Contents(manifest, outline, both, item_table, chains)


def _read_ids(path: Path, manifest: Manifest) -> tuple[Ids, Ids]:
    with checking(path, "users"):
        users = decode_ids(read_entry(path, manifest.tables["users"]), manifest.users)
    with checking(path, "items"):
        items = decode_ids(read_entry(path, manifest.tables["items"]), manifest.items)
    return users, items


def _read_both(path: Path, manifest: Manifest, ids: tuple[Ids, Ids]) -> tuple[Ratings, Ratings | None]:
    with checking(path, "ratings"):
        ratings = decode_ratings(read_entry(path, manifest.tables["ratings"]), *ids, manifest.levels)
        if ratings.n_ratings != manifest.ratings or ratings.fingerprint != manifest.fingerprint:
            raise StoreError("the ratings are not those of the manifest")
    if "heldout" not in manifest.tables:
        return ratings, None
    with checking(path, "heldout"):
        return ratings, decode_ratings(read_entry(path, manifest.tables["heldout"]), *ids, manifest.levels)


def _read_outline(path: Path, manifest: Manifest, ids: tuple[Ids, Ids]) -> Outline:
    with checking(path, "ratings"):
        outline = RatingFile(path, manifest.tables["ratings"]).outline(*ids, manifest.levels)
        if outline.n_ratings != manifest.ratings:
            raise StoreError("the ratings are not those of the manifest")
        return outline


def load_both(path: Path, manifest: Manifest, outline: Outline) -> tuple[Ratings, Ratings | None]:
    """Read and check ratings that were left on the disk."""
    return _read_both(path, manifest, (outline.users, outline.items))


def load_chains(path: Path, manifest: Manifest, covariates: Covariates) -> list[LoadedChain]:
    """Read and check the draws, traces and resume points of all chains."""
    return _load_chains(path, manifest, _read_states(path, manifest), covariates)


def _read_states(path: Path, manifest: Manifest) -> list[Arrays | None]:
    """Read the resume points, which a running fit replaces: before anything that takes longer."""
    states: list[Arrays | None] = []
    for chain in manifest.chains:
        with checking(path, chain.resume.file if chain.resume else MANIFEST):
            states.append(read_entry(path, chain.resume) if chain.resume else None)
    return states


def _load_chains(
    path: Path, manifest: Manifest, states: list[Arrays | None], covariates: Covariates
) -> list[LoadedChain]:
    sizes = sizes_of(manifest.priors, manifest.users, manifest.items, len(manifest.levels), covariates)
    return [_load_chain(path, manifest, sizes, chain, state) for chain, state in enumerate(states)]


def _load_chain(path: Path, manifest: Manifest, sizes: Sizes, chain: int, arrays: Arrays | None) -> LoadedChain:
    stored = manifest.chains[chain]
    draws: list[Draw] = []
    traces: list[Trace] = []
    before = 0
    for segment in stored.segments:
        with checking(path, segment.file):
            place = Place(chain, before, manifest.schedule)
            trace, found = decode_segment(read_entry(path, segment), sizes, place, manifest.move_names)
            if (trace.n_features.size, len(found)) != (segment.sweeps, segment.draws):
                raise StoreError(f"it has {trace.n_features.size} sweeps and {len(found)} draws, not those listed")
        draws += found
        traces.append(trace)
        before += segment.sweeps
    whole = _join(traces) if traces else None
    if stored.resume is None or arrays is None or whole is None:
        return LoadedChain(draws, whole, None)
    with checking(path, stored.resume.file):
        state = decode_state(arrays, sizes, whole)
    return LoadedChain(draws, whole, ResumePoint(state, before, whole.tally))


def _join(traces: list[Trace]) -> Trace:
    return traces[-1]._replace(
        log_likelihood=np.concatenate([trace.log_likelihood for trace in traces]),
        n_features=np.concatenate([trace.n_features for trace in traces]),
        hyper=np.concatenate([trace.hyper for trace in traces]),
    )


def gather_chains(manifest: Manifest, chains: list[LoadedChain]) -> Posterior:
    """Return the draws and traces of all chains as one posterior."""
    draws = [draw for chain in chains for draw in chain.draws]
    traces = [chain.trace for chain in chains if chain.trace is not None]
    return Posterior(manifest.base, draws, traces, np.array(manifest.scales))


def read_entry(path: Path, entry: StoredFile) -> Arrays:
    """Return the arrays of a listed file after checking its size and checksum."""
    try:
        data = read_file(path / entry.file, most=_ANY_SIZE, size=entry.bytes)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError("it is missing") from None
    if hashlib.sha256(data.data).hexdigest() != entry.sha256:
        raise StoreError("it does not match its checksum")
    return decode_arrays(data)


@contextmanager
def checking(path: Path, file: str) -> Iterator[None]:
    """Name the folder and the file in what goes wrong, and what to do."""
    with disk_problems(path, f"reading {file}"):
        try:
            yield
        except StoreError as problem:
            raise _damage(path, file, problem) from None


def _damage(path: Path, file: str, problem: StoreError) -> StoreError:
    return StoreError(
        f"{display_name(path)}: {file} cannot be used: {problem}. Restore the folder from a copy, or fit again."
    )
