"""Named data sets, read from a folder that the user keeps: none comes with the package.

Set the environment variable ``DOUBLEFEATURE_DATA`` to a folder that holds the unpacked data sets under their
names, such as ``ml-1m/ratings.dat``, or fetch them into the user's cache (`doublefeature.fetching`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from doublefeature._delimited import Layout, display_name, read_delimited
from doublefeature._parts import ratings_of
from doublefeature.errors import InputError, show
from doublefeature.levels import parse_levels
from doublefeature.ratings import Ratings


@dataclass(frozen=True)
class _DataSet:
    file: str
    layout: Layout
    levels: str


_DATA_SETS = {
    "ml-100k": _DataSet("u.data", Layout("\t", header=False), "1..5"),
    "ml-1m": _DataSet("ratings.dat", Layout("::", header=False), "1..5"),
    "ml-latest-small": _DataSet("ratings.csv", Layout(",", header=True), "0.5..5:0.5"),
}

DATASET_NAMES = tuple(_DATA_SETS)
"""Names that `load_dataset` knows."""


def data_folder() -> Path | None:
    """Return the folder that ``DOUBLEFEATURE_DATA`` names, None when it is not set."""
    folder = os.environ.get("DOUBLEFEATURE_DATA")
    return Path(folder) if folder else None


def cache_folder() -> Path:
    """Return where fetched data sets go: `data_folder`, or a folder in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return data_folder() or Path(home) / "doublefeature" / "data"


def load_dataset(name: str, *, folder: Path | None = None) -> Ratings:
    """Read one of `DATASET_NAMES`, with the levels its publishers declare, from a folder, or where fetched ones go."""
    if name not in _DATA_SETS:
        raise InputError(f"data set {show(name)} is not known. Known are: {', '.join(DATASET_NAMES)}.")
    known = _DATA_SETS[name]
    path = (folder or cache_folder()) / name / known.file
    if not path.is_file():
        remedy = f"Set DOUBLEFEATURE_DATA to the folder that holds {name}/{known.file}"
        raise InputError(
            f"{display_name(path)}: there is no such file. {remedy}, or run: doublefeature data fetch {name}"
        )
    return ratings_of(read_delimited(path, lambda head: known.layout), parse_levels(known.levels), "error")
