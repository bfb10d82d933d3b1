"""Time sweeps over Dask workers: beside threads of one process, and as the ratings grow.

    python benchmarks/scale.py overhead                    MovieLens-1M, two workers beside two threads
    python benchmarks/scale.py curve --millions 1 10 100   simulated ratings, read in parts from Parquet files

`overhead` takes turns, so that a noisy machine hits both alike, and checks that both make the same draws. `curve` keeps
the share of pairs that are rated: 480,000 users and 17,770 items at 100 million ratings, both shrinking with the root
of the number of ratings. Chains start from 50 planted features and are stopped and resumed by another cluster. Memory
is that of all processes together (PSS), sampled five times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from doublefeature.config import PRESETS, Moves, Schedule
from doublefeature.datasets import load_dataset
from doublefeature.inference.dask_engine import Connection, DaskTeam
from doublefeature.inference.fit import extend, fit_into
from doublefeature.inference.progress import Progress
from doublefeature.inference.team_fit import fit_by_team
from doublefeature.inference.team_models import create_in_parts
from doublefeature.kernels.scene import MOVE_NAMES
from doublefeature.model.state import NOISE, empty_state, state_from_parts
from doublefeature.posterior.draws import Trace
from doublefeature.posterior.store import ModelFolder, draws_digest
from doublefeature.readers import ratings_folder

FEATURES = 50
MEMBERS, SPREAD = 0.2, 0.8
WHOLE = (480_000, 17_770, 100_000_000)
FILE_ROWS = 2_000_000


class Clock:
    """Takes the time of every sweep it is told of."""

    def __init__(self) -> None:
        self.times: list[tuple[int, float]] = []

    def __call__(self, news: Progress) -> None:
        """Take note of a sweep."""
        self.times.append((news.sweep, time.perf_counter()))

    @property
    def seconds_per_sweep(self) -> float:
        """Wall time from the first sweep to the last."""
        (first, begin), (last, end) = self.times[0], self.times[-1]
        return (end - begin) / max(last - first, 1)


@contextmanager
def team(workers: int) -> Iterator[DaskTeam]:
    made = DaskTeam(Connection("dask", workers))
    try:
        yield made
    finally:
        made.close()


def overhead(workers: int, sweeps: int, rounds: int, preset: str) -> None:
    """Print wall seconds per sweep of both, and their ratio."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    os.environ.setdefault("DOUBLEFEATURE_DATA", str(shared))
    ratings = load_dataset("ml-1m")
    base = Path(tempfile.mkdtemp(prefix="doublefeature-scale-"))
    schedule = Schedule(sweeps=20, warmup=19, thin=1000, chains=1, threads=workers)
    folder = ModelFolder.create(
        base / "threads",
        ratings=ratings,
        priors=PRESETS[preset],
        schedule=schedule,
        moves=Moves(),
        seed=1,
        preset=preset,
    )
    fit_into(folder)
    while folder.posterior().traces[0].n_features[-1] < FEATURES:
        extend(folder, folder.schedule.sweeps + 10)
        fit_into(folder)
    shutil.copytree(base / "threads", base / "dask")
    other = ModelFolder.open(base / "dask", whole=False)
    seconds: dict[str, list[float]] = {"threads": [], "dask": []}
    with team(workers) as hands:
        for _ in range(rounds):
            for one in (folder, other):
                extend(one, one.schedule.sweeps + sweeps)
            seconds["threads"].append(_timed(lambda **to: fit_into(folder, **to)))
            seconds["dask"].append(_timed(lambda **to: fit_by_team(other, hands, **to)))
    states = [one.resume_points[0].state for one in (folder, other)]
    same = all(np.array_equal(mine, theirs) for mine, theirs in zip(*states, strict=True))
    best = {name: float(np.median(found)) for name, found in seconds.items()}
    shutil.rmtree(base)
    print(
        json.dumps(
            {
                "ratings": ratings.n_ratings,
                "preset": preset,
                "features": FEATURES,
                "workers": workers,
                "seconds_per_sweep": {name: round(value, 3) for name, value in best.items()},
                "ratio": round(best["dask"] / best["threads"], 3),
                "same_states": same,
            }
        )
    )


def _timed(run: Callable[..., bool]) -> float:
    """Run to the end of the schedule; return seconds per sweep after the first."""
    clock = Clock()
    run(progress=clock, checkpoint_seconds=1e9)
    return clock.seconds_per_sweep


class Plan:
    """Planted features of so many users and items."""

    def __init__(self, n_ratings: int, seed: int = 0) -> None:
        shrink = (n_ratings / WHOLE[2]) ** 0.5
        self.n_users, self.n_items, self.n_ratings = round(WHOLE[0] * shrink), round(WHOLE[1] * shrink), n_ratings
        rng = np.random.default_rng(seed)
        self.users = rng.random((self.n_users, FEATURES)) < MEMBERS
        self.items = rng.random((self.n_items, FEATURES)) < MEMBERS
        self.effect = rng.normal(0.0, 0.5, FEATURES)
        popular = 1.0 / (20.0 + np.arange(self.n_items))
        self.share = np.cumsum(popular / popular.sum())

    def write(self, folder: Path, seed: int = 1) -> int:
        """Write Parquet files, some users each; return how many ratings there are."""
        import polars as pl

        files = max(2, -(-self.n_ratings // FILE_ROWS))
        written = 0
        for number in range(files):
            rng = np.random.default_rng([seed, number])
            low, high = (self.n_users * k // files for k in (number, number + 1))
            wanted = self.n_ratings * (number + 1) // files - written
            users, items = self._pairs(rng, low, high, wanted)
            score = (self.users[users] & self.items[items]) @ self.effect + 3.0
            levels = np.clip(np.round(score + rng.normal(0.0, SPREAD, users.size)), 1, 5).astype(np.uint8)
            columns = {"user": users.astype(np.uint32), "item": items.astype(np.uint32), "rating": levels}
            pl.DataFrame(columns).write_parquet(folder / f"part-{number:04}.parquet")
            written += users.size
        return written

    def _pairs(self, rng, low: int, high: int, wanted: int):
        """Return about so many different pairs of users low, …, high − 1 and items, popular ones more often."""
        pairs = np.empty(0, np.int64)
        while pairs.size < wanted:
            more = int(1.2 * (wanted - pairs.size)) + 100
            users = rng.integers(low, high, more)
            items = np.searchsorted(self.share, rng.random(more)).clip(max=self.n_items - 1)
            pairs = np.unique(np.concatenate([pairs, users * self.n_items + items]))
        pairs = np.sort(rng.permutation(pairs)[:wanted])
        return pairs // self.n_items, pairs % self.n_items

    def start(self, folder: ModelFolder) -> None:
        """Let a folder's chain begin with the planted features, as if one sweep had found them."""
        outline = folder.outline
        user_codes, item_codes = np.array(outline.users), np.array(outline.items)
        empty = empty_state(folder.priors, user_codes.size, item_codes.size, len(outline.levels))
        users, items = self.users[user_codes], self.items[item_codes]
        empty.hyper[NOISE] = SPREAD
        kept = users.any(axis=0)
        graded = np.where(items, self.effect, 0.0) if folder.priors.graded else None
        by_user = users.astype(float) if folder.priors.user_grades else None
        state = state_from_parts(
            empty,
            users[:, kept],
            items[:, kept],
            self.effect[kept],
            item_effect=None if graded is None else graded[:, kept],
            user_grade=None if by_user is None else by_user[:, kept],
        )
        trace = Trace(
            chain=0,
            log_likelihood=np.zeros(1),
            n_features=np.array([int(kept.sum())]),
            hyper=state.hyper[None],
            tally=np.zeros((len(MOVE_NAMES), 2), np.int64),
            move_names=MOVE_NAMES,
        )
        with folder.writing():
            folder.append(trace, [], state)


class Memory:
    """Samples the memory of this process and of its children."""

    def __init__(self) -> None:
        self.peak = self.driver = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.2):
            mine = me.memory_full_info().pss
            total = mine
            for child in me.children(recursive=True):
                try:
                    total += child.memory_full_info().pss
                except psutil.Error:
                    continue
            self.peak, self.driver = max(self.peak, total), max(self.driver, mine)


def curve(millions: float, workers: int, sweeps: int, preset: str) -> dict[str, object]:
    """Return what a number of ratings costs."""
    base = Path(tempfile.mkdtemp(prefix="doublefeature-scale-"))
    (base / "parts").mkdir()
    plan = Plan(round(millions * 1e6))
    begin = time.perf_counter()
    n_ratings = plan.write(base / "parts")
    simulated = time.perf_counter()
    schedule = Schedule(sweeps=1 + sweeps, warmup=sweeps, thin=1, chains=1, threads=1)
    settings = {"priors": PRESETS[preset], "schedule": schedule, "moves": Moves(settle=0), "seed": 1}
    clock, again = Clock(), Clock()
    try:
        with Memory() as memory:
            with team(workers) as first:
                source = ratings_folder(base / "parts", levels="1..5")
                folder = create_in_parts(
                    first, source, base / "model", {**settings, "preset": preset, "items": None}, 0.0
                )
                plan.start(folder)
                read = time.perf_counter()
                fit_by_team(folder, first, placed=True, progress=clock, checkpoint_seconds=0.0)
            extend(folder := ModelFolder.open(base / "model", whole=False), 1 + sweeps + 2)
            with team(workers) as second:
                fit_by_team(folder, second, progress=again, checkpoint_seconds=0.0)
        return {
            "ratings": n_ratings,
            "users": len(folder.outline.users),
            "items": len(folder.outline.items),
            "preset": preset,
            "workers": workers,
            "features": int(folder.resume_points[0].state.active.sum()),
            "seconds_to_simulate": round(simulated - begin, 1),
            "seconds_to_read": round(read - simulated, 1),
            "seconds_per_sweep": round(clock.seconds_per_sweep, 3),
            "nanoseconds_per_rating": round(1e9 * clock.seconds_per_sweep / n_ratings, 1),
            "sweeps": folder.sweeps_done[0] - 1,
            "peak_gigabytes": round(memory.peak / 1e9, 2),
            "driver_gigabytes": round(memory.driver / 1e9, 2),
            "digest": draws_digest(folder.posterior())[:16],
        }
    finally:
        shutil.rmtree(base)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["overhead", "curve"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--preset", default="paper", choices=list(PRESETS))
    parser.add_argument("--sweeps", type=int, default=6, help="sweeps per turn, or per size")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--millions", type=float, nargs="+", default=[1.0, 10.0, 100.0])
    chosen = parser.parse_args()
    if chosen.what == "overhead":
        overhead(chosen.workers, chosen.sweeps, chosen.rounds, chosen.preset)
        return
    first = None
    for millions in chosen.millions:
        found = curve(millions, chosen.workers, chosen.sweeps, chosen.preset)
        first = first or found["nanoseconds_per_rating"]
        print(json.dumps({**found, "against_first": round(found["nanoseconds_per_rating"] / first, 2)}), flush=True)


if __name__ == "__main__":
    main()
