"""The first files of a model folder: ids, ratings and settings, before the first sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from numpy.typing import NDArray

from doublefeature._delimited import display_name
from doublefeature._version import __version__
from doublefeature.checks import check_seed
from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import StoreError
from doublefeature.model.state import build_model
from doublefeature.outline import Outline, StreamedRatings
from doublefeature.posterior.arrays import Streamed, encode_arrays
from doublefeature.posterior.disk import PARTIAL, Disk, disk_problems, write_file
from doublefeature.posterior.loading import MANIFEST, Contents, LoadedChain
from doublefeature.posterior.manifest import TABLES, Manifest, StoredChain, StoredFile, table_file
from doublefeature.posterior.tables import ItemColumns, encode_ids, encode_item_table, encode_ratings
from doublefeature.ratings import Ratings

SHARDING = "sharding.json"
"""Beside the manifest of a model over shards (see `doublefeature.posterior.sharding`)."""
_ENDS = ("", PARTIAL)
_FIRST_FILES = frozenset(
    [MANIFEST + PARTIAL] + [name + end for name in (SHARDING, *map(table_file, TABLES)) for end in _ENDS]
)
"""What a creation that was cut short can leave behind."""


class ModelParts(TypedDict):
    """What a model folder is made of, besides draws."""

    ratings: Ratings | StreamedRatings
    priors: Priors
    schedule: Schedule
    moves: Moves
    seed: int
    preset: str
    items: NotRequired[ItemColumns | None]
    """Columns of items by raw id, such as titles; items that are not in the ratings are left out."""
    heldout: NotRequired[Ratings | StreamedRatings | None]
    """Ratings with the same ids and levels that were kept out of the fit."""


def write_first_files(folder: Path, parts: ModelParts, disk: Disk) -> Contents:
    """Make the folder and write its tables; it becomes a model when the manifest returned here is written."""
    ratings, heldout, seed = parts["ratings"], parts.get("heldout"), check_seed(parts["seed"])
    outline = ratings.outline
    tables: dict[str, dict[str, NDArray[Any] | Streamed]] = {
        "users": {**encode_ids(outline.users, "user")},
        "items": {**encode_ids(outline.items, "item")},
        "ratings": encode_ratings(ratings),
    }
    if heldout is not None:
        _check_same_ids(heldout.outline, outline)
        tables["heldout"] = encode_ratings(heldout)
    columns, item_table = encode_item_table(parts.get("items") or {}, outline.items)
    if columns:
        tables["item-table"] = {**item_table}
    with disk_problems(folder, "writing"):
        _claim(folder, disk)
        written = {name: write_arrays(disk, folder, table_file(name), part) for name, part in tables.items()}
        disk.sync_directory(folder)
    schedule = parts["schedule"].on_ratings(outline.n_ratings)
    model = build_model(parts["priors"], 0, 0, len(outline.levels))
    manifest = Manifest(
        library=__version__,
        preset=parts["preset"],
        priors=parts["priors"],
        schedule=schedule,
        moves=parts["moves"],
        seed=seed,
        levels=outline.levels,
        users=len(outline.users),
        items=len(outline.items),
        ratings=outline.n_ratings,
        base=model.base,
        scales=tuple(model.scales.tolist()),
        fingerprint=ratings.fingerprint,
        item_columns=columns,
        tables=written,
        chains=(StoredChain(),) * schedule.chains,
    )
    nothing = [LoadedChain([], None, None)] * schedule.chains
    whole = None if isinstance(ratings, StreamedRatings) or isinstance(heldout, StreamedRatings) else (ratings, heldout)
    return Contents(manifest, outline, whole, item_table if columns else None, nothing)


def _check_same_ids(heldout: Outline, ratings: Outline) -> None:
    ours, theirs = ((list(part.users), list(part.items), part.levels) for part in (ratings, heldout))
    if ours != theirs:
        raise StoreError("held-out ratings must have the ids and levels of the ratings, as `split` gives them")


def write_arrays(disk: Disk, folder: Path, file: str, arrays: Mapping[str, NDArray[Any] | Streamed]) -> StoredFile:
    """Write arrays whole or not at all and return the entry for the manifest."""
    written = write_file(disk, folder / file, encode_arrays(arrays))
    return StoredFile(file, written.sha256, written.size)


def _claim(folder: Path, disk: Disk) -> None:
    """Make a folder and its parents, or take an empty one; leftovers of a creation cut short are removed."""
    if not folder.exists():
        for place in reversed([folder, *folder.parents]):
            if not place.exists():
                disk.make_directory(place)
                disk.sync_directory(place.parent)
        return
    if not folder.is_dir():
        raise StoreError(f"{display_name(folder)} is a file. Choose another path for the model.")
    names = {entry.name for entry in folder.iterdir()}
    if MANIFEST in names:
        raise StoreError(f"{display_name(folder)} holds a model already. Resume it, or choose another path.")
    if not names <= _FIRST_FILES:
        raise StoreError(f"{display_name(folder)} exists and is not empty. Choose another path, or empty it first.")
    for name in names:
        disk.remove(folder / name)
