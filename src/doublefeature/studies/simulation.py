"""Section 5 of the paper on several simulated data sets: `run_simulation_study` writes tables and figures.

Each finished data set is a file in `cells/`, and is not computed again unless its settings have changed.
`simulate_into` writes one data set and its truth.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from doublefeature._version import __version__
from doublefeature.checks import check_seed
from doublefeature.config import Schedule
from doublefeature.errors import EnvironmentProblem, InputError, SettingsError
from doublefeature.inference.progress import ProgressCallback
from doublefeature.model.generative import base_of
from doublefeature.posterior.disk import write_whole
from doublefeature.studies.factorisation import Grid, check_factorisation, tune
from doublefeature.studies.recovery import Cell, Design, measure, run_trial, simulate
from doublefeature.studies.tables import Bar, bars_of, summary_page, table_csv, table_markdown

DEFAULT_SCHEDULE = Schedule(sweeps=700, warmup=400, thin=6, chains=8)
"""Eight chains from no features; about a minute per data set on two cores."""

_FORMAT = 2


@dataclass(frozen=True)
class StudyResult:
    """The finished study: its cells, the bars it was held against, and the Markdown that shows them."""

    out: Path
    cells: list[Cell]
    bars: list[Bar]
    summary: str


def run_simulation_study(
    out: Path,
    *,
    seeds: Iterable[int] = range(10),
    taus: Sequence[float] = (0.25, 0.5),
    schedule: Schedule | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    announce: Callable[[str], None] | None = None,
    design: Design | None = None,
    grid: Grid | None = None,
) -> StudyResult:
    """Simulate, fit, tune the peer and compare, for every noise scale and seed; write tables and figures.

    Parameters
    ----------
    out
        Folder for the results, made and checked before anything is sampled. What is finished there is kept.
    taus
        Noise scales τ. The paper says τ = 0.25 but may mean τ² = 0.25, which is τ = 0.5.
    schedule, threads
        How each data set is sampled (`DEFAULT_SCHEDULE`), and threads in all. Results do not depend on threads.
    progress
        Called after every sweep of every chain.
    announce
        Called with one line per data set.
    design, grid
        The simulated design, whose τ is replaced, and what the peer is tuned over.
    """
    from doublefeature.evaluation.drawing import check_drawing
    from doublefeature.studies.figures import draw_figures

    chosen = [check_seed(seed) for seed in seeds]
    if not chosen or not taus:
        raise SettingsError("a study needs at least one seed and one noise scale.")
    check_factorisation()
    check_drawing()
    prepare_folder(out)
    plan = schedule or DEFAULT_SCHEDULE
    plan = replace(plan, threads=threads or plan.threads)
    base, choices = design or Design(), grid or Grid()
    cells = []
    for tau, seed in [(tau, seed) for tau in taus for seed in chosen]:
        cell = _finished_cell(out / "cells", replace(base, tau=tau), seed, plan, choices, progress)
        cells.append(cell)
        if announce is not None:
            found = {name: cell.scores[name] for name in ("oracle", "doublefeature", "factorisation")}
            announce(f"τ {tau:g}  seed {seed}  " + "  ".join(f"{name} {share:.2%}" for name, share in found.items()))
    pictures = draw_figures(cells)
    for name, content in pictures.items():
        write_whole(out / "figures" / name, content)
    bars = bars_of(cells)
    settings = {**asdict(base), **plan.to_dict(), **asdict(choices)}
    summary = summary_page(cells, bars, settings, [name for name in pictures if name.endswith("png")])
    _write_results(out, cells, bars, summary)
    return StudyResult(out, cells, bars, summary)


def simulate_into(folder: Path, design: Design, seed: int) -> None:
    """Simulate one data set and write `ratings.csv` (ids u1, u2, … and i1, i2, …) and its truth, `truth.npz`."""
    ratings, truth = simulate(design, check_seed(seed))
    targets = folder / "truth.npz", folder / "ratings.csv"
    for target in targets:
        if target.exists():
            raise InputError(f"{target} is there already. Name a new folder.")
    _make_folder(folder)
    arrays = io.BytesIO()
    np.savez(
        arrays,
        user_members=truth.user_members,
        item_members=truth.item_members,
        effect=truth.effect,
        noise=truth.noise,
        base=base_of(design.priors(), design.levels),
        seed=seed,
        allow_pickle=False,
    )
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    table.writerow(("user", "item", "rating"))
    for user, item, level in zip(*(column.tolist() for column in ratings.triples()), strict=True):
        table.writerow((f"u{user + 1}", f"i{item + 1}", ratings.levels[level]))
    write_whole(targets[0], arrays.getvalue())
    write_whole(targets[1], rows.getvalue().encode())


def prepare_folder(out: Path) -> None:
    """Make the study's folders and see that files can be written there."""
    if out.is_dir() and any(out.iterdir()) and not (out / "cells").is_dir():
        raise InputError(f"{out} holds something else than a study. Name a new or empty folder.")
    for folder in (out, out / "cells", out / "figures"):
        _make_folder(folder)


def _make_folder(folder: Path) -> None:
    """Make a folder and try to write into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{folder} cannot be a folder: a file is in the way. Name another folder.") from error
    except OSError as error:
        raise EnvironmentProblem(f"cannot write into {folder}: {error.strerror}. Check permissions.") from error


def _finished_cell(
    folder: Path, design: Design, seed: int, schedule: Schedule, grid: Grid, progress: ProgressCallback | None
) -> Cell:
    """Return a data set's cell: read if it was finished with the same settings, computed and written otherwise."""
    path = folder / f"tau{design.tau:g}_seed{seed}.json"
    run = {key: value for key, value in schedule.to_dict().items() if key != "threads"}
    settings = {"format": _FORMAT, "version": __version__, "design": asdict(design), "seed": seed}
    text = json.dumps({**settings, "schedule": run, "grid": asdict(grid)}, sort_keys=True)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    try:
        stored = json.loads(path.read_text("utf-8"))
        if stored["settings"] == fingerprint:
            return Cell(**stored["cell"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    trial = run_trial(design, seed, schedule, progress=progress)
    cell = measure(trial, tune(trial.train, grid, seed=seed, threads=schedule.threads), seed)
    write_whole(path, _json({"settings": fingerprint, "cell": asdict(cell)}))
    return cell


def _json(values: Any) -> bytes:
    return (json.dumps(values, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def _write_results(out: Path, cells: Sequence[Cell], bars: Sequence[Bar], summary: str) -> None:
    kept = ("tau", "seed", "scores", "chosen", "coverage", "recovery")
    kept_cells = [{key: getattr(cell, key) for key in kept} for cell in cells]
    write_whole(out / "results.json", _json({"cells": kept_cells, "bars": [bar._asdict() for bar in bars]}))
    write_whole(out / "table.csv", table_csv(cells))
    write_whole(out / "table.md", table_markdown(cells).encode())
    write_whole(out / "summary.md", summary.encode())
