"""Runs that die or fail at a chosen operation, and what must be true of the folder afterwards."""

from __future__ import annotations

import errno
import os
import shutil
from functools import cache
from pathlib import Path

from doublefeature.config import Schedule
from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, StoreError
from doublefeature.inference.fit import fit_into
from doublefeature.posterior.disk import Disk
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.store import ModelFolder, draws_digest
from tests.store.cases import FailingDisk, Killed, MortalDisk, QuickDisk, WatchedDisk, parts, undisturbed

PROBLEMS = {
    "disk full": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "quota": OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    "read-only": OSError(errno.EROFS, os.strerror(errno.EROFS)),
    "input/output error": OSError(errno.EIO, os.strerror(errno.EIO)),
    "out of memory": MemoryError(),
}


@cache
def short_model():
    """Two chains of four sweeps, three of them kept."""
    return parts(schedule=Schedule(sweeps=4, warmup=1, thin=1, chains=2, threads=1))


@cache
def short_run() -> Posterior:
    """The draws of the short model when nothing disturbs it."""
    return undisturbed(short_model())


def fit_short(path: Path, disk: Disk) -> None:
    """Create and fit the short model with a checkpoint after every sweep, or go on with it."""
    if (path / "manifest.json").exists():
        folder = ModelFolder.open(path, disk=disk)
    else:
        folder = ModelFolder.create(path, disk=disk, **short_model())
    fit_into(folder, checkpoint_seconds=0.0)


@cache
def count_operations(base: Path) -> int:
    """How many operations an undisturbed short run makes."""
    disk = WatchedDisk()
    fit_short(base / "count", disk)
    shutil.rmtree(base / "count")
    return disk.count


def check_whole_draws(path: Path, whole: Posterior) -> int:
    """Check that a folder opens and each chain has the first draws of the whole run's; return how many in all."""
    found = ModelFolder.open(path).posterior()
    for chain in {draw.chain for draw in whole}:
        wanted = [draw for draw in whole if draw.chain == chain]
        got = [draw for draw in found if draw.chain == chain]
        first = wanted[: len(got)]
        assert draws_digest(Posterior(0.0, got)) == draws_digest(Posterior(0.0, first)), "draws that were never made"
    return len(found)


def check_afterwards(path: Path) -> int:
    """Check a folder left by a short run that was cut short: it opens, goes on, and ends as if nothing had been.

    Returns the number of draws found. A folder without a manifest never became a model and can be created anew.
    """
    draws = 0
    if (path / "manifest.json").exists():
        draws = check_whole_draws(path, short_run())
    elif path.exists():
        try:
            ModelFolder.open(path)
        except StoreError:
            pass
        else:
            raise AssertionError("a folder without manifest was opened")
    fit_short(path, QuickDisk())
    assert draws_digest(ModelFolder.open(path).posterior()) == draws_digest(short_run()), "the resumed draws differ"
    assert not list(path.rglob("*.partial")), "a temporary file was left"
    shutil.rmtree(path)
    return draws


def die_at(path: Path, number: int, half: bool) -> int:
    """Let a short run die at one operation and check what it leaves."""
    try:
        fit_short(path, MortalDisk(number, half))
    except Killed:
        return check_afterwards(path)
    raise AssertionError(f"operation {number} was never reached")


def fail_at(path: Path, number: int, kind: str, for_good: bool) -> int:
    """Let one operation of a short run fail and check the error and what is left."""
    try:
        fit_short(path, FailingDisk(number, PROBLEMS[kind], for_good))
    except DoubleFeatureError as problem:
        text, code = str(problem), problem.exit_code
        if code != EnvironmentProblem.exit_code or not text.isprintable() or str(path) not in text:
            raise AssertionError(f"{kind} at operation {number} gave {problem!r}") from problem
    return check_afterwards(path)


def in_child(function, *arguments) -> str:
    """Run a function in a forked process and return its text; "died" when it left none.

    Compiled code that uses threads must not have run in this process.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            text = str(function(*arguments))
        except BaseException as problem:
            text = f"raised {problem!r}"
        os.write(writer, text.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text or "died"


def really_die_at(path: Path, number: int, half: bool) -> None:
    """End this process at one operation of a short run."""
    fit_short(path, MortalDisk(number, half, really=True))
