"""The full tier: `python -m tests.store` prints one line per bar and fails if one fails.

    python -m tests.store [--effort 1.0] [--only WORD] [--processes 1]

Every bar runs in a process of its own. Effort 1 is the stated number of kills, cuts and mutations.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

Outcome = tuple[str, bool]
Bar = Callable[[Path, float], Outcome]


def _steps(effort: float) -> int:
    return max(1, round(1 / effort))


def resumed_runs(base: Path, effort: float) -> Outcome:
    """R3 resume"""
    from doublefeature.config import Moves, Schedule
    from doublefeature.inference.fit import extend, fit_into
    from doublefeature.posterior.store import ModelFolder, draws_digest
    from doublefeature.studies.recovery import Design, simulate
    from tests.store.cases import parts, undisturbed

    rng = random.Random(1)
    ratings = simulate(Design(users=30, items=20, tau=0.5), seed=3)[0].split(0.2, seed=1)[0]
    schedule = Schedule(sweeps=60, warmup=10, thin=3, chains=2, threads=1)
    model = parts(ratings=ratings, schedule=schedule, moves=Moves())
    whole = draws_digest(undisturbed(model))
    plans = [[20, 40, 60]] + [sorted({*rng.sample(range(11, 60), 4), 60}) for _ in range(round(11 * effort))]
    equal = 0
    for number, plan in enumerate(plans):
        short = {**model, "schedule": replace(schedule, sweeps=plan[0])}
        ModelFolder.create(base / str(number), **short)
        for sweeps in plan:
            folder = ModelFolder.open(base / str(number))
            extend(folder, sweeps)
            fit_into(folder, threads=rng.choice((1, 2)), checkpoint_seconds=rng.choice((0.0, 0.05, 10.0)))
        equal += draws_digest(ModelFolder.open(base / str(number)).posterior()) == whole
    return f"{equal} of {len(plans)} broken runs give the draws of the unbroken one", equal == len(plans)


def kills(base: Path, effort: float) -> Outcome:
    """R4 kill -9 at random moments"""
    from doublefeature.inference.fit import fit_into
    from doublefeature.posterior.store import ModelFolder, draws_digest
    from tests.store.cases import undisturbed
    from tests.store.crash import check_whole_draws
    from tests.store.victim import leftovers, strike, victim_model

    path, rng, count = base / "model", random.Random(2), max(2, round(20 * effort))
    whole = undisturbed(victim_model(600))
    inside, draws = 0, [0]
    for attempt in range(count):
        strike(path, 600, rng.uniform(0.0, 0.6), slow=attempt % 2 == 0)
        inside += leftovers(path)
        draws.append(check_whole_draws(path, whole))
    unfinished = not ModelFolder.open(path).finished
    fit_into(ModelFolder.open(path))
    same = draws_digest(ModelFolder.open(path).posterior()) == draws_digest(whole)
    figure = f"{count} kills, {inside} inside a checkpoint (bar 5), {draws[-1]} draws by then, final draws "
    passed = same and unfinished and draws == sorted(draws) and inside >= min(5, count // 4)
    return figure + ("identical" if same else "DIFFERENT"), passed


def terminations(base: Path, effort: float) -> Outcome:
    """R4 SIGTERM"""
    from doublefeature.posterior.store import ModelFolder
    from tests.store.victim import strike

    waits = []
    for number in range(max(2, round(5 * effort))):
        path = base / str(number)
        said, seconds = strike(path, 100_000, 0.2, slow=True, number=signal.SIGTERM)
        waits.append(seconds)
        folder = ModelFolder.open(path)
        if said != "stopped" or list(path.rglob("*.partial")) or not min(folder.sweeps_done):
            return f"the run said {said!r} and left {folder.sweeps_done} sweeps", False
    return f"slowest end {max(waits):.2f} s after the signal, bar 5 s, everything written", max(waits) < 5


def exits(base: Path, effort: float) -> Outcome:
    """R4 exit at every operation"""
    from tests.store.crash import check_afterwards, count_operations, in_child, really_die_at

    last = int(in_child(count_operations, base))
    tried, draws = 0, []
    for number in range(1, last + 1, _steps(effort)):
        path = base / str(number)
        ended = in_child(really_die_at, path, number, number % 2 == 1)
        found = in_child(check_afterwards, path)
        if ended != "died" or not found.isdigit():
            return f"operation {number} of {last}: {ended}, then {found}", False
        tried += 1
        draws.append(int(found))
    figure = f"{tried} of {last} operations, draws found {draws[0]} to {draws[-1]}, never fewer than before"
    return figure, draws == sorted(draws)


def deaths(base: Path, effort: float) -> Outcome:
    """R4 death at every operation, writes half done or not begun"""
    from tests.store.crash import count_operations, die_at

    last = count_operations(base)
    numbers = range(1, last + 1, _steps(effort))
    for half in (True, False):
        draws = [die_at(base / str(number), number, half) for number in numbers]
        if draws != sorted(draws):
            return "a later death left fewer draws", False
    return f"{2 * len(numbers)} deaths in {last} operations, all folders open and resume to the same draws", True


def power_cuts(base: Path, effort: float) -> Outcome:
    """R5 power loss"""
    from tests.store.cutting import cut_power, record_run

    notes = record_run(base)
    outcome = cut_power(base, notes, variants=12, stride=_steps(effort), resume_every=25)
    figure = f"{outcome.cuts} cuts after {len(notes)} operations, {outcome.opened} open at the last or next checkpoint"
    return f"{figure}, the rest were no model yet, {outcome.resumed} resumed to the same draws", outcome.opened > 0


def failures(base: Path, effort: float) -> Outcome:
    """R6 disk full, quota, read-only, EIO, out of memory"""
    from tests.store.crash import PROBLEMS, count_operations, fail_at

    last = count_operations(base)
    tried = 0
    for place, kind in enumerate(PROBLEMS):
        for number in range(1 + place % _steps(effort), last + 1, _steps(effort)):
            fail_at(base / str(number), number, kind, for_good=number % 2 == 0)
            tried += 1
    return (
        f"{tried} failures of {len(PROBLEMS)} kinds in {last} operations: exit 3, one line, resumed identically",
        True,
    )


def size_limit(base: Path, effort: float) -> Outcome:
    """R6 a limit that the system enforces"""
    from tests.store.crash import check_afterwards, in_child

    lines = []
    for limit in (100, 500, 1500, 2500):
        path = base / str(limit)
        lines.append(in_child(_fit_with_limit, path, limit))
        after = in_child(check_afterwards, path)
        if not after.isdigit() or "EnvironmentProblem" not in lines[-1] or "\\n" in lines[-1]:
            return f"limit {limit}: {lines[-1]}, then {after}", False
    return f"{len(lines)} limits: EnvironmentProblem each time, resumed identically", True


def _fit_with_limit(path: Path, limit: int) -> str:
    import resource

    from doublefeature.posterior.disk import Disk
    from tests.store.crash import fit_short, short_run

    short_run()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    fit_short(path, Disk())
    return "no error"


def mutations(base: Path, effort: float) -> Outcome:
    """R8 mutated folders"""
    from tests.store.fuzz import fuzz

    tally = fuzz(base / "model", round(10_000 * effort))
    figure = f"{tally.tried} folders: {tally.refused} refused in one line, {tally.same} opened with the same content, "
    figure += f"{tally.other} resealed ones opened and could be used; slowest {tally.slowest:.2f} s (bar 2), "
    return figure + f"most memory {tally.most_bytes / 2**20:.0f} MB (bar 100 + twice the files)", True


def memory(base: Path, effort: float) -> Outcome:
    """R8 memory of a large folder"""
    import numpy as np

    from doublefeature.posterior.store import ModelFolder, draws_digest
    from doublefeature.ratings import Ratings
    from tests.store.cases import every_sweep, parts, random_posterior

    rng = np.random.default_rng(1)
    users, items = 60_000, 2_000
    pairs = np.unique(rng.integers(0, users * items, 5_000_000))
    ratings = Ratings.from_codes(
        pairs // items,
        pairs % items,
        rng.integers(0, 5, pairs.size),
        users=[f"user {u}" for u in range(users)],
        items=range(items),
        levels="1..5",
    )
    features = [60, 70] * 30
    posterior = random_posterior(ratings, features)
    ModelFolder.save(base / "model", posterior, **parts(ratings=ratings, schedule=every_sweep(features)))
    digest = draws_digest(posterior)
    del posterior, ratings, pairs
    size = sum(file.stat().st_size for file in base.rglob("*") if file.is_file())
    tracemalloc.start()
    begin = time.monotonic()
    folder = ModelFolder.open(base / "model")
    seconds, peak = time.monotonic() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    same = draws_digest(folder.posterior()) == digest
    figure = f"{size / 2**20:.0f} MB of files opened in {seconds:.1f} s with {peak / 2**20:.0f} MB"
    return f"{figure}, bar {2 * size / 2**20 + 100:.0f} MB", same and peak < 2 * size + 100 * 2**20


BARS: tuple[Bar, ...] = (
    exits,
    failures,
    mutations,
    deaths,
    power_cuts,
    kills,
    resumed_runs,
    terminations,
    size_limit,
    memory,
)


def _run(bar: Bar, effort: float) -> tuple[str, str, bool]:
    name = (bar.__doc__ or "").strip()
    fast = Path("/dev/shm")
    base = Path(tempfile.mkdtemp(dir=fast if fast.is_dir() and bar is not kills else None))
    try:
        return name, *bar(base, effort)
    except AssertionError as problem:
        return name, str(problem), False
    finally:
        shutil.rmtree(base)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--only", default="", help="run the bars whose description contains this word")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    chosen = [bar for bar in BARS if options.only.lower() in (bar.__doc__ or "").lower()]
    failed = 0
    begin = time.monotonic()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[2]))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(_run, bar, options.effort) for bar in chosen]):
            name, figure, passed = future.result()
            failed += not passed
            print(f"{'pass' if passed else 'FAIL'}  {name}: {figure}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} bars hold ({time.monotonic() - begin:.0f} s)")
    return int(failed > 0)
