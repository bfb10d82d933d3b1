"""Chains: sweeps in a row, some of them kept; several chains side by side."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_seed
from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import SettingsError
from doublefeature.inference.progress import Progress, ProgressCallback
from doublefeature.kernels.scene import MOVE_NAMES, Scene
from doublefeature.kernels.sweep import build_plan, build_scene, prepare, sweep_once
from doublefeature.model.choices import traits_of
from doublefeature.model.state import NOISE, State, Traits, build_model, check_state, empty_state
from doublefeature.posterior.draws import Draw, Posterior, Trace, draw_of, gather, with_item_shares
from doublefeature.ratings import Ratings

_HOT, _COLD = 3.0, 0.6
"""Where τ starts and ends while a chain settles, as multiples of the centre of its prior."""


class Start(NamedTuple):
    """Where a chain goes on from: a state and the number of sweeps behind it."""

    state: State
    sweep: int = 0


class Sweep(NamedTuple):
    """What one sweep left behind. The state is the sampler's own: copy what is to be kept."""

    chain: int
    number: int  # sweeps done
    state: State
    log_likelihood: float
    tally: NDArray[np.int64]  # (moves, 2) tries and acceptances since the start of this run


def run_sweeps(
    ratings: Ratings,
    priors: Priors,
    schedule: Schedule,
    moves: Moves | None = None,
    *,
    stream: tuple[int, int] = (0, 0),
    start: Start | None = None,
    progress: ProgressCallback | None = None,
    traits: Traits | None = None,
) -> Iterator[Sweep]:
    """Run one chain and yield after every sweep. The caller may stop at any time.

    Parameters
    ----------
    stream
        (seed, chain number): together they fix every random number, whatever the number of threads.
    start
        None starts with no features. A start goes on after `start.sweep` sweeps; started from the state a chain
        had then, the draws are those the chain would have made without the break.
    progress
        Called after every sweep.
    traits
        What is known of users and items besides the ratings; None finds it out (see `traits_of`).
    """
    moves, schedule = moves or Moves(), schedule.on_ratings(ratings.n_ratings)
    seed, chain = check_seed(stream[0]), check_seed(stream[1])
    sizes = (ratings.n_users, ratings.n_items, ratings.n_levels)
    begin = start or Start(empty_state(priors, *sizes))
    check_start(begin, sizes)
    traits = traits or traits_of(ratings.arrays, priors, ratings.covariates)
    scene = build_scene(ratings.arrays, priors, moves, begin.state, (seed, chain), traits)
    yield from sweep_through(scene, priors, schedule, moves, (chain, begin.sweep), progress)


def sweep_through(
    scene: Scene,
    priors: Priors,
    schedule: Schedule,
    moves: Moves,
    place: tuple[int, int],
    progress: ProgressCallback | None = None,
) -> Iterator[Sweep]:
    """Run a scene's chain to the end of a schedule and yield after every sweep. `place` is (chain, sweeps done)."""
    chain, begin = place
    n_users = scene.state.user_offset.size
    plan = build_plan(moves, n_users, warmup=schedule.warmup, graded=priors.graded)
    centre = float(empty_state(priors, 0, 0, scene.state.cutpoints.size - 1).hyper[NOISE])
    threads = usable_threads(schedule.threads)
    numba.set_num_threads(threads)
    scene = scene._replace(threads=threads)
    clock = time.monotonic()
    for sweep in range(begin, schedule.n_sweeps):
        if sweep < plan.settle and scene.model.learn_noise and not priors.graded:
            _cool(scene, centre, sweep / plan.settle)
        state, log_likelihood = sweep_once(scene._replace(sweep=sweep), plan)
        scene = scene._replace(state=state)
        done = sweep + 1
        if progress is not None:
            per_sweep = (time.monotonic() - clock) / (done - begin)
            left = per_sweep * (schedule.n_sweeps - done)
            progress(_news(scene, (chain, done, schedule.n_sweeps), log_likelihood, left))
        yield Sweep(chain, done, state, log_likelihood, scene.tally)


def run_chain(
    ratings: Ratings,
    priors: Priors,
    schedule: Schedule,
    moves: Moves | None = None,
    *,
    stream: tuple[int, int] = (0, 0),
    start: Start | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[Draw]:
    """Run one chain and yield the draws it keeps (see `run_sweeps` for the parameters)."""
    for sweep in run_sweeps(ratings, priors, schedule, moves, stream=stream, start=start, progress=progress):
        if schedule.keeps(sweep.number):
            yield draw_of(sweep.state, sweep.chain, sweep.number, sweep.log_likelihood)


class Sink(Protocol):
    """Somewhere the sweeps of one chain go."""

    def add(self, sweep: Sweep) -> None:
        """Take a sweep before the next one changes its state."""

    def close(self) -> None:
        """Take note that the chain has made its last sweep, or was stopped after a whole one."""


class Recorder:
    """Keeps a chain's draws and its trace in memory."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._rows: list[tuple[float, int, NDArray[np.float64]]] = []
        self.last: Sweep | None = None
        self.draws: list[Draw] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, sweep: Sweep) -> None:
        """Take a sweep's row of the trace, and its draw if the schedule keeps it."""
        self._rows.append((sweep.log_likelihood, int(sweep.state.active.sum()), sweep.state.hyper.copy()))
        self.last = sweep
        if self._schedule.keeps(sweep.number):
            self.draws.append(draw_of(sweep.state, sweep.chain, sweep.number, sweep.log_likelihood))

    def close(self) -> None:
        """Nothing is left to do: all is kept already."""

    def trace(self) -> Trace | None:
        """Return what was recorded; None before the first sweep."""
        if self.last is None:
            return None
        return Trace(
            chain=self.last.chain,
            log_likelihood=np.array([row[0] for row in self._rows]),
            n_features=np.array([row[1] for row in self._rows]),
            hyper=np.array([row[2] for row in self._rows]),
            tally=self.last.tally.copy(),
            move_names=MOVE_NAMES,
        )


class Job(NamedTuple):
    """What chains have in common."""

    ratings: Ratings
    priors: Priors
    schedule: Schedule
    moves: Moves | None = None
    seed: int = 0


class Lane(NamedTuple):
    """One chain of a job: its number, where its sweeps go, and where it starts if not with no features."""

    chain: int
    sink: Sink
    start: Start | None = None


def run_chains(
    job: Job,
    lanes: Sequence[Lane],
    *,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run chains side by side as far as threads allow, each into its own sink.

    When `stop` is set, when one chain fails, or at Ctrl-C, every chain finishes its sweep and closes its sink; what
    was raised is raised again.
    """
    if not lanes:
        return
    threads = usable_threads(job.schedule.threads)
    side_by_side = min(threads, len(lanes))
    each = threads // side_by_side if threads_may_nest() or side_by_side == 1 else 1
    schedule = replace(job.schedule, threads=each)
    traits = traits_of(job.ratings.arrays, job.priors, job.ratings.covariates)
    halts = [threading.Event()] + ([] if stop is None else [stop])

    def run(lane: Lane) -> None:
        if any(halt.is_set() for halt in halts):
            return
        sweeps = run_sweeps(
            job.ratings,
            job.priors,
            schedule,
            job.moves,
            stream=(job.seed, lane.chain),
            start=lane.start,
            progress=progress,
            traits=traits,
        )
        for sweep in sweeps:
            lane.sink.add(sweep)
            if any(halt.is_set() for halt in halts):
                break
        lane.sink.close()

    with ThreadPoolExecutor(side_by_side) as pool:
        futures = [pool.submit(run, lane) for lane in lanes]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future.done():
                    future.result()
        except BaseException:
            halts[0].set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def sample(
    ratings: Ratings,
    priors: Priors,
    schedule: Schedule | None = None,
    moves: Moves | None = None,
    *,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
) -> Posterior:
    """Run all chains of a schedule in memory and return their draws: those so far when `stop` was set.

    Interrupted (Ctrl-C), it lets every chain finish its sweep and raises again.
    """
    schedule = schedule or Schedule()
    recorders = [Recorder(schedule) for _ in range(schedule.chains)]
    job = Job(ratings, priors, schedule, moves, check_seed(seed))
    lanes = [Lane(chain, recorder) for chain, recorder in enumerate(recorders)]
    run_chains(job, lanes, progress=progress, stop=stop)
    model = build_model(priors, 0, 0, ratings.n_levels)
    traces = [trace for recorder in recorders if (trace := recorder.trace()) is not None]
    posterior = gather(model.base, [recorder.draws for recorder in recorders], traces, model.scales)
    return with_item_shares(posterior, ratings.arrays.item_ptr) if priors.item_choices else posterior


def _cool(scene: Scene, centre: float, share: float) -> None:
    """Hold τ on its way down. While noise is high, features that are fragments of others have nothing to explain."""
    scene.state.hyper[NOISE] = centre * _HOT ** (1.0 - share) * _COLD**share
    prepare(scene)


def check_start(start: Start, wanted: tuple[int, int, int]) -> None:
    """Raise unless a start is sound and has as many users, items and levels as the ratings."""
    check_state(start.state)
    sizes = (start.state.user_offset.size, start.state.item_offset.size, start.state.cutpoints.size - 1)
    if sizes != wanted:
        raise SettingsError(
            f"the start has {sizes[0]} users, {sizes[1]} items and {sizes[2]} levels, "
            f"the ratings {wanted[0]}, {wanted[1]} and {wanted[2]}."
        )


def _news(scene: Scene, place: tuple[int, int, int], log_likelihood: float, left: float) -> Progress:
    shares = scene.tally[:, 1] / np.maximum(scene.tally[:, 0], 1)
    acceptance = dict(zip(MOVE_NAMES, shares.tolist(), strict=True))
    return Progress(*place, int(scene.state.active.sum()), log_likelihood, acceptance, left)


def usable_threads(wanted: int | None) -> int:
    """Return how many of the wanted threads there can be; None: as many as cores."""
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    return min(wanted or os.cpu_count() or 1, most)


def threads_may_nest() -> bool:
    """Whether several chains may use several threads each: not with Numba's own work queue."""
    try:
        import numba.np.ufunc.omppool  # noqa: F401
    except ImportError:
        return False
    return True
