"""Section 6 of the paper on MovieLens-1M: `run_movielens_study` writes tables and figures.

Every finished run is a file in `cells/` and is not made again unless its settings have changed; a run that was broken
off goes on where it was, in `models/`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from doublefeature._version import __version__
from doublefeature.checks import check_seed
from doublefeature.config import Schedule, Sharding
from doublefeature.errors import SettingsError, StoreError
from doublefeature.evaluation.splits import PAPER_ITEMS, Split, make_splits
from doublefeature.inference.progress import ProgressCallback
from doublefeature.item_table import ItemTable
from doublefeature.posterior.arrays import Arrays, decode_arrays, encode_arrays
from doublefeature.posterior.disk import read_file, write_whole
from doublefeature.ratings import Ratings
from doublefeature.studies.movielens_data import UserCount, movielens, user_counts
from doublefeature.studies.movielens_runs import drop_folder, run_consensus, run_exact
from doublefeature.studies.simulation import prepare_folder

DEFAULT_SCHEDULE = Schedule(sweeps=240, warmup=80, thin=4, chains=4)
SIZES = (1, 2, 5, 15, 30)
"""Numbers of shards whose cost and standard error are measured."""
OURS, AUTHORS = ("precision", "refresh"), ("paper", "paper")
"""Merge rule and second stage: the defaults, and as the authors ran it."""

_FORMAT = 1
_MOST_BYTES = 2**30


@dataclass(frozen=True, eq=False)
class Study:
    """All runs of the study.

    Attributes
    ----------
    splits
        One per seed.
    runs
        By name, one per seed: `consensus`, `authors` (consensus as the authors ran it), `exact paper`, `exact full`.
    by_shards
        Consensus on the first seed by number of shards.
    """

    counts: list[UserCount]
    splits: list[Split]
    shards: int
    schedule: Schedule
    runs: dict[str, list[Arrays]]
    by_shards: dict[int, Arrays]
    items: ItemTable

    def title(self, code: int) -> str:
        """Return an item's title, or its id."""
        item = self.splits[0].train.items[code]
        return self.items.get(item, {}).get("title", str(item))


@dataclass(frozen=True)
class StudyResult:
    """Where the study was written, and the Markdown that shows it."""

    out: Path
    summary: str


def run_movielens_study(
    out: Path,
    *,
    seeds: Iterable[int] = (0, 1, 2),
    shards: int = 15,
    sizes: Sequence[int] = SIZES,
    schedule: Schedule | None = None,
    threads: int | None = None,
    ratings: Ratings | None = None,
    items: ItemTable | None = None,
    n_items: int = PAPER_ITEMS,
    progress: ProgressCallback | None = None,
    announce: Callable[[str], None] | None = None,
) -> StudyResult:
    """Fit over shards and at once, for every seed; write tables and figures beside the paper's numbers.

    Parameters
    ----------
    out
        Folder for the results, made and checked before anything is sampled. What is finished there is kept.
    seeds
        Each draws the held-out film of every user, the split into shards, and the chains.
    shards, sizes
        Shards of the study, and those of the measurement of cost (first seed only).
    schedule, threads
        How every run is sampled (`DEFAULT_SCHEDULE`), and threads in all. Results do not depend on threads.
    ratings, items, n_items
        In place of MovieLens-1M, its titles and the 200 most rated films.
    announce
        Called with one line per run.
    """
    from doublefeature.evaluation.drawing import check_drawing
    from doublefeature.studies.movielens_figures import draw_figures
    from doublefeature.studies.movielens_tables import table_files

    chosen = [check_seed(seed) for seed in seeds]
    if not chosen:
        raise SettingsError("a study needs at least one seed.")
    check_drawing()
    prepare_folder(out)
    data, titles = (ratings, items or {}) if ratings is not None else movielens()
    counts = user_counts(data, n_items)
    tell = announce or (lambda line: None)
    for count in counts:
        tell(f"users with {count.rule}: {count.users} ({count.ratings} ratings)")
    plan = replace(schedule or DEFAULT_SCHEDULE, threads=threads or (schedule or DEFAULT_SCHEDULE).threads)
    splits = [make_splits(data, "paper", seed=seed, top_items=n_items)[0] for seed in chosen]
    maker = _Maker(out, plan, progress, tell)
    runs = {
        "consensus": [maker.consensus(split, Sharding(shards, *OURS)) for split in splits],
        "authors": [maker.consensus(split, Sharding(shards, *AUTHORS)) for split in splits],
        "exact paper": [maker.exact(split, "paper") for split in splits],
        "exact full": [maker.exact(split, "full") for split in splits],
    }
    by_shards = {size: maker.consensus(splits[0], Sharding(size, *OURS)) for size in sorted({*sizes, shards})}
    study = Study(counts, splits, shards, plan, runs, by_shards, titles)
    for name, content in draw_figures(study).items():
        write_whole(out / "figures" / name, content)
    files = table_files(study)
    for name, text in files.items():
        write_whole(out / name, text.encode())
    return StudyResult(out, files["summary.md"])


class _Maker:
    """Makes runs, or reads those that are finished."""

    def __init__(
        self, out: Path, schedule: Schedule, progress: ProgressCallback | None, tell: Callable[[str], None]
    ) -> None:
        self._out, self._schedule, self._progress, self._tell = out, schedule, progress, tell

    def consensus(self, split: Split, sharding: Sharding) -> Arrays:
        """Return a run over shards."""
        name = f"consensus-{sharding.merge}-{sharding.shards:02}-seed{split.seed}"

        def make(folder: Path) -> Arrays:
            return run_consensus(split, sharding, self._schedule, folder, self._progress)

        return self._kept(name, {"sharding": sharding.to_dict(), "split": split.fingerprint}, make)

    def exact(self, split: Split, preset: str) -> Arrays:
        """Return a run over all users at once."""

        def make(folder: Path) -> Arrays:
            return run_exact(split, preset, self._schedule, folder, self._progress)

        return self._kept(f"exact-{preset}-seed{split.seed}", {"preset": preset, "split": split.fingerprint}, make)

    def _kept(self, name: str, settings: dict[str, object], make: Callable[[Path], Arrays]) -> Arrays:
        """Return a run's arrays: read if it was finished with the same settings, made and written otherwise."""
        run = {key: value for key, value in self._schedule.to_dict().items() if key != "threads"}
        text = json.dumps({**settings, "format": _FORMAT, "version": __version__, "schedule": run}, sort_keys=True)
        digest = hashlib.sha256(text.encode())
        key = np.frombuffer(digest.digest(), np.uint8)
        path = self._out / "cells" / f"{name}.safetensors"
        try:
            found = decode_arrays(read_file(path, most=_MOST_BYTES))
            if np.array_equal(found.pop("key"), key):
                return found
        except (OSError, StoreError, KeyError):
            pass
        self._tell(f"running {name}")
        folder = self._out / "models" / f"{name}-{digest.hexdigest()[:12]}"
        made = make(folder)
        write_whole(path, b"".join(encode_arrays({**made, "key": key})))
        drop_folder(folder)
        return made
