"""One chain over several workers: the draws are those of one process, bit by bit."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from doublefeature.config import PRESETS, Moves, Priors, Schedule
from doublefeature.errors import EnvironmentProblem, SettingsError
from doublefeature.inference.chain import Start, run_sweeps
from doublefeature.inference.slices import RatingSlice, cut_slice, own_rows, run_slices
from doublefeature.kernels.features import update_features
from doublefeature.kernels.grades import update_grades_and_offsets
from doublefeature.kernels.latent import update_latent
from doublefeature.kernels.memberships import update_users_parallel
from doublefeature.model.state import copy_state
from doublefeature.ratings import Covariates, Ratings
from tests.inference.local_workers import LocalWorkers

BUSY = Moves(effect_every=4, noise_slice_every=5, feature_every=1, settle=4)
MODELS: dict[str, tuple[Priors, Moves]] = {
    "paper": (PRESETS["paper"], BUSY),
    "offsets on both sides": (
        Priors(user_offsets=True, item_rate_by_feature=True, mass=6.0).with_everything_learnt(),
        BUSY,
    ),
    "full": (PRESETS["full"], BUSY),
    "remainder": (Priors(user_offsets=True, remainder=2), BUSY),
    "symmetric": (Priors(item_prior="ibp"), BUSY),
    "many features": (Priors(mass=80.0), replace(BUSY, table_from=0)),
    "listed effects": (Priors(effect_values=(-1.0, 0.5, 1.5)), BUSY),
}
SWEEPS, FEW = 24, 8


def simulated(n_users: int = 120, n_items: int = 40, seed: int = 1) -> Ratings:
    """Two camps of users; popular items are rated more often."""
    rng = np.random.default_rng(seed)
    chance = 0.6 / (1.0 + 0.1 * np.arange(n_items))
    users, items = np.nonzero(rng.random((n_users, n_items)) < chance)
    taste = np.where((users % 2 == items % 2), 1.0, -1.0) + 0.5 * rng.standard_normal(n_items)[items]
    levels = np.clip(np.round(2.0 + taste + 0.7 * rng.standard_normal(users.size)), 0, 4)
    return Ratings.from_codes(
        users.astype(np.uint32),
        items.astype(np.uint32),
        levels.astype(np.uint8),
        users=range(n_users),
        items=range(n_items),
        levels=range(1, 6),
    )


def digest(sweeps) -> str:
    """Return a digest of every array of every state, the log likelihoods and the tallies."""
    total = hashlib.sha256()
    count = 0
    for sweep in sweeps:
        count += 1
        for values in (*sweep.state, np.array([sweep.log_likelihood]), sweep.tally):
            total.update(repr((values.dtype.str, values.shape)).encode())
            total.update(np.ascontiguousarray(values).tobytes())
    assert count > 0
    return total.hexdigest()


def schedule(threads: int = 1, sweeps: int = SWEEPS) -> Schedule:
    return Schedule(chains=1, sweeps=sweeps, warmup=sweeps // 2, thin=1, threads=threads)


class ThreadLink:
    """A link between threads of one process."""

    def __init__(self, rank: int, room: list[bytes], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.size = len(room)
        self._room = room
        self._barrier = barrier

    def exchange(self, mine: bytes) -> list[bytes]:
        self._room[self.rank] = mine
        self._barrier.wait(60)
        found = list(self._room)
        self._barrier.wait(60)
        return found


def read_only(array):
    """Return an array as one that came as bytes."""
    return np.frombuffer(array.tobytes(), array.dtype)


def over_threads(ratings: Ratings, model: str, workers: int, **told) -> list[str]:
    """Return the digest that each of several workers, threads of this process, comes to."""
    priors, moves = MODELS[model]
    room, barrier = [b""] * workers, threading.Barrier(workers)

    def work(rank: int) -> str:
        link = ThreadLink(rank, room, barrier)
        part = RatingSlice(*map(read_only, cut_slice(ratings.arrays, rank, workers)))
        settings = {"n_levels": ratings.n_levels, "stream": (3, 0), "covariates": ratings.covariates, **told}
        try:
            return digest(run_slices(part, link, priors, schedule(), moves, **settings))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(workers)))


@cache
def reference(model: str, sweeps: int = SWEEPS) -> str:
    priors, moves = MODELS[model]
    return digest(run_sweeps(simulated(), priors, schedule(1, sweeps), moves, stream=(3, 0)))


def over_processes(model: str, workers: int, threads: int = 1) -> str:
    priors, moves = MODELS[model]
    with LocalWorkers(workers, simulated(), priors, schedule(threads, FEW), moves, stream=(3, 0)) as sweeps:
        return digest(sweeps)


@pytest.mark.parametrize("model", MODELS)
def test_workers_draw_what_one_process_draws(model):
    """One worker with two layouts, two, and as many as make parts uneven."""
    for workers in (1, 2, 3):
        assert set(over_threads(simulated(), model, workers)) == {reference(model)}


def test_slices_need_no_kernels_of_their_own():
    """Arrays of another type, such as read-only ones, would compile every kernel again."""
    over_threads(simulated(), "full", 2)
    reference("full")
    for kernel in (update_users_parallel, update_latent, update_features, update_grades_and_offsets):
        assert len(kernel.signatures) == 1, kernel


@pytest.mark.parametrize(("model", "workers"), [("paper", 4), ("full", 20)])
def test_many_workers(model, workers):
    """Also more than there are parts: some have nothing to do."""
    assert set(over_threads(simulated(), model, workers)) == {reference(model)}


@pytest.mark.parametrize(("model", "workers", "threads"), [("paper", 2, 2), ("full", 4, 2)])
def test_processes_draw_what_one_process_draws(model, workers, threads):
    assert over_processes(model, workers, threads) == reference(model, FEW)


def test_few_users_and_items():
    """Fewer rows than chunks, users and items without ratings."""
    ratings = simulated(5, 3)
    expected = digest(run_sweeps(ratings, *(MODELS["paper"][0], schedule(), BUSY), stream=(3, 0)))
    assert set(over_threads(ratings, "paper", 4)) == {expected}


def test_covariates():
    ratings = simulated()
    rng = np.random.default_rng(0)
    columns = [rng.standard_normal((n, 2)) for n in (ratings.n_users, ratings.n_items)]
    users, items = (one - one.mean(axis=0) for one in columns)
    ratings = replace(ratings, covariates=Covariates(users, items, ("a", "b"), ("c", "d")))
    expected = digest(run_sweeps(ratings, MODELS["full"][0], schedule(), BUSY, stream=(3, 0)))
    assert expected != reference("full")
    assert set(over_threads(ratings, "full", 2)) == {expected}


def test_a_start_goes_on():
    priors, moves = MODELS["full"]
    sweeps = list(_kept(run_sweeps(simulated(), priors, schedule(), moves, stream=(3, 0))))
    start = Start(sweeps[9].state, 10)
    assert set(over_threads(simulated(), "full", 2, start=start)) == {
        digest(run_sweeps(simulated(), priors, schedule(), moves, stream=(3, 0), start=start))
    }


def _kept(sweeps):
    for sweep in sweeps:
        yield sweep._replace(state=copy_state(sweep.state))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 40])
def test_slices_are_all_ratings_once(size):
    arrays = simulated().arrays
    parts = [cut_slice(arrays, rank, size) for rank in range(size)]
    assert np.array_equal(np.concatenate([part.item_codes for part in parts]), arrays.item_codes)
    assert np.array_equal(np.concatenate([part.user_levels for part in parts]), arrays.levels)
    assert np.array_equal(np.concatenate([part.user_codes for part in parts]), arrays.user_codes)
    assert np.array_equal(np.concatenate([part.item_levels for part in parts]), arrays.levels[arrays.positions])
    rows = [own_rows(arrays.user_ptr, rank, size) for rank in range(size)]
    assert rows[0][0] == 0
    assert rows[-1][1] == arrays.user_ptr.size - 1
    assert all(a[1] == b[0] for a, b in pairwise(rows))


def test_a_worker_that_dies_is_told_of():
    priors, moves = MODELS["paper"]
    with LocalWorkers(2, simulated(), priors, schedule(sweeps=100_000), moves) as sweeps:
        waiting = iter(sweeps)
        next(waiting)
        pid = sweeps.processes[1].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EnvironmentProblem, match="gone"):
            for _ in waiting:
                pass
        sweeps.processes[0].join(20)
        assert sweeps.processes[0].exitcode == 0


@pytest.mark.parametrize("model", ["paper", "full"])
@pytest.mark.parametrize("after", [0, 10, 50, 300])
def test_a_link_that_breaks_is_raised_after_the_sweep(model, after):
    """Kernels end in good time, whatever is missing."""

    class Breaking:
        rank, size, left = 0, 2, after

        def exchange(self, mine: bytes) -> list[bytes]:
            self.left -= 1
            if self.left < 0:
                raise EnvironmentProblem("worker 1 is gone")
            return other.exchange(mine)

    room, barrier = [b"", b""], threading.Barrier(2)
    other = ThreadLink(0, room, barrier)

    def work(link) -> None:
        part = cut_slice(simulated().arrays, link.rank, 2)
        try:
            for _ in run_slices(part, link, MODELS[model][0], schedule(), MODELS[model][1], n_levels=5):
                pass
        finally:
            barrier.abort()

    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(work, link) for link in (Breaking(), ThreadLink(1, room, barrier)))
        with pytest.raises(EnvironmentProblem, match="worker 1 is gone"):
            first.result(30)
        with pytest.raises(threading.BrokenBarrierError):
            second.result(30)


def test_users_one_by_one_are_refused():
    part = cut_slice(simulated().arrays, 0, 2)
    link = ThreadLink(0, [b"", b""], threading.Barrier(2))
    with pytest.raises(SettingsError, match="user_scan must be 'parallel'"):
        next(run_slices(part, link, PRESETS["paper"], schedule(), Moves(user_scan="serial"), n_levels=5))
