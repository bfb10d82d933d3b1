"""Fetch a named data set into a folder of the user: only when asked to, from its publisher or a local archive."""

from __future__ import annotations

import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from doublefeature._delimited import display_name
from doublefeature.datasets import DATASET_NAMES, cache_folder, load_dataset
from doublefeature.errors import EnvironmentProblem, InputError, show
from doublefeature.ratings import Ratings

PUBLISHER = "https://files.grouplens.org/datasets/movielens"
TERMS = (
    "Data of GroupLens, University of Minnesota: for research, no redistribution; see the README in the folder. "
    "Cite Harper and Konstan (2015), The MovieLens Datasets."
)
MOST_BYTES = 200 * 2**20
"""No archive may unpack to more."""


def fetch(name: str, *, source: str | None = None, folder: Path | None = None) -> tuple[Path, Ratings]:
    """Unpack a data set into `folder`/`name` and read it; return where it is and what is in it.

    Parameters
    ----------
    source
        A zip file or its address. None: the publisher's address.
    folder
        Where data sets are kept. None: `DOUBLEFEATURE_DATA`, or the user's cache.
    """
    if name not in DATASET_NAMES:
        raise InputError(f"data set {show(name)} is not known. Known are: {', '.join(DATASET_NAMES)}.")
    home = folder or cache_folder()
    target = home / name
    if target.exists():
        raise InputError(f"{display_name(target)}: already there. Remove it to fetch it again.")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix=".fetch-") as place:
            archive = Path(place) / "archive.zip"
            _copy(source or f"{PUBLISHER}/{name}.zip", archive)
            unpacked = _unpack(archive, Path(place) / "unpacked", name)
            ratings = load_dataset(name, folder=unpacked.parent)
            unpacked.replace(target)
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise EnvironmentProblem(f"{display_name(home)}: cannot be written ({reason}). Pass another folder.") from None
    return target, ratings


def _copy(source: str, archive: Path) -> None:
    """Copy a local archive, or download one."""
    if urlsplit(source).scheme not in ("http", "https"):
        path = Path(source)
        if not path.is_file():
            raise InputError(f"{display_name(path)}: there is no such file. Give a zip file or its address.")
        shutil.copyfile(path, archive)
        return
    try:
        with urllib.request.urlopen(source, timeout=30) as answer, archive.open("wb") as out:
            _pour(answer, out)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as problem:
        reason = show(str(getattr(problem, "reason", problem)))
        remedy = "Check the network, or download it yourself and pass --from FILE"
        raise EnvironmentProblem(f"{source}: cannot be fetched ({reason}). {remedy}.") from None


def _pour(answer: IO[bytes], out: IO[bytes]) -> None:
    left = MOST_BYTES
    while block := answer.read(2**16):
        left -= len(block)
        if left < 0:
            raise EnvironmentProblem(f"the archive is larger than {MOST_BYTES >> 20} MB: not the data set asked for.")
        out.write(block)


def _unpack(archive: Path, place: Path, name: str) -> Path:
    """Unpack the files of one folder of the archive, by their bare names, and return it."""
    target = place / name
    target.mkdir(parents=True)
    try:
        with zipfile.ZipFile(archive) as packed:
            entries = [entry for entry in packed.infolist() if not entry.is_dir()]
            if sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise InputError(f"the archive unpacks to more than {MOST_BYTES >> 20} MB: not {name}.")
            for entry in entries:
                parts = Path(entry.filename).parts
                if len(parts) == 2 and parts[0] == name:
                    with packed.open(entry) as raw, (target / parts[1]).open("wb") as out:
                        shutil.copyfileobj(raw, out)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as problem:
        raise InputError(f"the archive cannot be unpacked ({show(str(problem))}). Fetch it again.") from None
    return target
