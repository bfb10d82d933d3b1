"""Chains into a model folder: run, stop, go on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from doublefeature.inference.chain import Job, Lane, Recorder, Start, Sweep, run_chains
from doublefeature.inference.progress import ProgressCallback
from doublefeature.posterior.card import card_text
from doublefeature.posterior.loading import ResumePoint
from doublefeature.posterior.store import ModelFolder

LEAST_SHARE = 200
"""A checkpoint holds at least one in so many of the chain's sweeps, so that long runs do not make ever more files."""


def fit_into(
    folder: ModelFolder,
    *,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
    checkpoint_seconds: float = 10.0,
    threads: int | None = None,
) -> bool:
    """Run or go on with all chains of a folder that are not finished; return whether they now are.

    The draws do not depend on where a run was broken off, nor on the number of threads.

    Parameters
    ----------
    stop
        When set, every chain finishes its sweep, everything is written, and False is returned.
    checkpoint_seconds
        How often a chain is written to the disk: what a kill can lose, unless that is under half a percent of it.
    threads
        Threads in all, in place of the schedule's.
    """
    with folder.writing():
        schedule = folder.schedule
        folder.check_resumable(schedule.n_sweeps)
        if threads is not None:
            schedule = replace(schedule, threads=threads)
        job = Job(folder.ratings, folder.priors, schedule, folder.moves, folder.seed)
        points = zip(folder.sweeps_done, folder.resume_points, strict=True)
        lanes = [
            Lane(chain, FolderSink(folder, point, checkpoint_seconds), point and Start(point.state, point.sweep))
            for chain, (done, point) in enumerate(points)
            if done < schedule.n_sweeps
        ]
        run_chains(job, lanes, progress=progress, stop=stop)
        if lanes:
            folder.write_card(card_text(folder))
    return folder.finished


def extend(folder: ModelFolder, sweeps: int) -> None:
    """Lengthen a folder's schedule to so many sweeps per chain, warm-up included; `fit_into` then makes them."""
    with folder.writing():
        folder.lengthen(sweeps)


class FolderSink:
    """Writes the sweeps of one chain to its folder, a checkpoint at a time."""

    def __init__(self, folder: ModelFolder, point: ResumePoint | None, seconds: float) -> None:
        self._folder = folder
        self._before: NDArray[np.int64] | int = 0 if point is None else point.tally
        self._seconds = seconds
        self._written = time.monotonic()
        self._recorder = Recorder(folder.schedule)

    def add(self, sweep: Sweep) -> None:
        """Take a sweep; write a checkpoint when one is due."""
        self._recorder.add(sweep)
        enough = len(self._recorder) * LEAST_SHARE >= sweep.number
        if enough and time.monotonic() - self._written >= self._seconds:
            self.close()

    def close(self) -> None:
        """Write what has not been written yet."""
        trace, last = self._recorder.trace(), self._recorder.last
        if trace is None or last is None:
            return
        self._folder.append(trace._replace(tally=trace.tally + self._before), self._recorder.draws, last.state)
        self._recorder = Recorder(self._folder.schedule)
        self._written = time.monotonic()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; a second SIGINT raises `KeyboardInterrupt` at once.

    Signals reach the main thread only: elsewhere nothing sets the event.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
