"""Chains into a model folder, run by a team: workers sweep together, who asked for it writes.

A chain goes on in batches: one call of every worker, up to the next checkpoint. What the first worker brings back is
appended to the folder before the next batch begins, and ratings and states stay with the workers. When a worker is
lost, those that are there get their slices again and the chain goes on from the folder, with the same draws.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import EnvironmentProblem
from doublefeature.inference.chain import Recorder, Start, usable_threads
from doublefeature.inference.fit import LEAST_SHARE
from doublefeature.inference.placing import SLICE, place_folder
from doublefeature.inference.progress import Progress, ProgressCallback
from doublefeature.inference.slices import run_slices, shared_traits
from doublefeature.inference.teams import Desk, LostWorker, Team
from doublefeature.model.state import State
from doublefeature.posterior.card import card_text
from doublefeature.posterior.draws import Draw, Trace
from doublefeature.posterior.store import ModelFolder
from doublefeature.ratings import Covariates

TRIES = 3
"""How often a batch is tried in all when workers are lost."""
_NEWS_SECONDS = 0.2
_SWEEPS, _TRAITS = "sweeps", "traits"


class Settings(NamedTuple):
    """What all batches of a folder have in common."""

    priors: Priors
    schedule: Schedule
    moves: Moves
    seed: int
    n_levels: int
    covariates: Covariates


class Beginning(NamedTuple):
    """Where a chain goes on: where it starts, and the moves tried and accepted before."""

    settings: Settings
    start: Start | None
    tally: NDArray[np.int64] | int


class Batch(NamedTuple):
    """What some sweeps of a chain have left behind."""

    trace: Trace
    draws: list[Draw]
    state: State


def fit_by_team(
    folder: ModelFolder,
    team: Team,
    *,
    placed: bool = False,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
    checkpoint_seconds: float = 10.0,
    tries: int = TRIES,
) -> bool:
    """Run or go on with all chains of a folder, one after the other; return whether they are now finished.

    The draws are those of `fit_into`, for any number of workers and however many are lost on the way.

    Parameters
    ----------
    placed
        Whether the workers have their slices of the folder's ratings.
    stop
        When set, the workers finish their sweep, everything is written, and False is returned.
    tries
        How often workers may be lost before the next checkpoint is reached.
    """
    with folder.writing():
        folder.check_resumable(folder.schedule.n_sweeps)
        was_finished = folder.finished
        losses = 0
        ready = placed
        while not folder.finished and not (stop is not None and stop.is_set()):
            try:
                if not ready:
                    place_folder(team, folder)
                    ready = True
                for _ in _batches(folder, team, progress, stop, checkpoint_seconds):
                    losses = 0
            except LostWorker as problem:
                losses += 1
                if losses >= tries:
                    raise EnvironmentProblem(
                        f"workers were lost {losses} times before the next checkpoint ({problem}). "
                        f"What is done is kept: doublefeature resume {folder.path}"
                    ) from problem
                team.regroup()
                ready = False
        if not was_finished:
            folder.write_card(card_text(folder))
    return folder.finished


def _batches(
    folder: ModelFolder,
    team: Team,
    progress: ProgressCallback | None,
    stop: threading.Event | None,
    seconds: float,
) -> Iterator[None]:
    """Run the folder's chains to their ends and yield after every checkpoint."""
    outline = folder.outline
    settings = Settings(
        folder.priors, folder.schedule, folder.moves, folder.seed, len(outline.levels), outline.covariates
    )
    for chain, done in enumerate(folder.sweeps_done):
        if done >= settings.schedule.n_sweeps:
            continue
        point = folder.resume_points[chain]
        start = point and Start(point.state, point.sweep)
        beginning = Beginning(settings, start, 0 if point is None else point.tally)
        team.together(begin_chain, [(chain, beginning)] * team.size)
        while folder.sweeps_done[chain] < settings.schedule.n_sweeps:
            news = progress and _teller(progress)
            batch = team.together(run_batch, [(seconds,)] * team.size, stop=stop, news=news)[0]
            folder.append(batch.trace, batch.draws, batch.state)
            yield
            if stop is not None and stop.is_set():
                return


def _teller(progress: ProgressCallback) -> Callable[[dict[str, Any]], None]:
    return lambda news: progress(Progress(**news))


def begin_chain(desk: Desk, chain: int, beginning: Beginning) -> None:
    """Get ready for a chain's next sweep."""
    settings = beginning.settings
    schedule = replace(settings.schedule, threads=desk.threads)
    last: list[Progress] = []

    def note(news: Progress) -> None:
        last[:] = [news]

    if _TRAITS not in desk.kept:
        desk.kept[_TRAITS] = shared_traits(desk.kept[SLICE], desk.link, settings.priors, settings.covariates)
    sweeps = run_slices(
        desk.kept[SLICE],
        desk.link,
        settings.priors,
        schedule,
        settings.moves,
        n_levels=settings.n_levels,
        stream=(settings.seed, chain),
        start=beginning.start,
        progress=note,
        traits=desk.kept[_TRAITS],
    )
    desk.kept[_SWEEPS] = sweeps, last, beginning.tally, settings.schedule


def run_batch(desk: Desk, seconds: float) -> Batch | None:
    """Sweep up to the next checkpoint, which the first worker decides on; return what it has recorded."""
    sweeps, last, before, schedule = desk.kept[_SWEEPS]
    numba.set_num_threads(usable_threads(desk.threads))
    recorder, begin, told = Recorder(schedule), time.monotonic(), 0.0
    for sweep in sweeps:
        over = b""
        if desk.link.rank == 0:
            recorder.add(sweep)
            now = time.monotonic()
            due = now - begin >= seconds and len(recorder) * LEAST_SHARE >= sweep.number
            over = bytes([due or desk.stop.is_set()])
            if now - told >= _NEWS_SECONDS and last:
                desk.tell(last[0]._asdict())
                told = now
        if desk.link.exchange(over)[0] == b"\1":
            break
    desk.stop.clear()
    trace = recorder.trace()
    if trace is None or recorder.last is None:
        return None
    return Batch(trace._replace(tally=trace.tally + before), recorder.draws, recorder.last.state)
