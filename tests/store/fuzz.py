"""Mutated model folders: each must open with the same content or be refused in one line, quickly, in little memory.

Half of the mutations are *sealed*: checksums and sizes are made right again, so that what lies behind them is tested.
A sealed folder may open with other content, which then has to be usable.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from doublefeature.config import Schedule
from doublefeature.errors import EnvironmentProblem, StoreError
from doublefeature.inference.fit import fit_into
from doublefeature.model.state import check_state
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.store import ModelFolder, draws_digest
from tests.store.cases import FULL, TITLES, QuickDisk, every_sweep, full_posterior, parts, tiny_ratings
from tests.store.mutations import SEALED, UNSEALED, reseal

SECONDS = 2.0
EXTRA_BYTES = 100 * 2**20


@dataclass
class Tally:
    """What came of the mutations."""

    refused: int = 0
    same: int = 0
    other: int = 0
    slowest: float = 0.0
    most_bytes: int = 0
    kinds: Counter = field(default_factory=Counter)

    @property
    def tried(self) -> int:
        return self.refused + self.same + self.other


class Bench:
    """A folder in which files are changed and put back."""

    def __init__(self, path: Path, full: bool = False) -> None:
        self.path = path
        train, test = tiny_ratings().split(0.2, seed=1)
        schedule = Schedule(sweeps=8, warmup=2, thin=1, chains=2, threads=1)
        model = parts(ratings=train, heldout=test, schedule=schedule, items=TITLES)
        if full:
            features = [3, 0, 5, 65]
            posterior = full_posterior(train, features, chains=2)
            model |= {"priors": FULL, "schedule": every_sweep(features, chains=2)}
            ModelFolder.save(path, posterior, disk=QuickDisk(), **model)
        else:
            fit_into(ModelFolder.create(path, disk=QuickDisk(), **model), checkpoint_seconds=0.01)
        (path / "card.md").unlink()
        names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        self.files = {name: (path / name).read_bytes() for name in names}
        self.size = sum(map(len, self.files.values()))
        self.content = fingerprint(ModelFolder.open(path))

    def put(self, files: dict[str, bytes | None]) -> None:
        """Write files, or remove those that are None."""
        for name, data in files.items():
            if data is None:
                (self.path / name).unlink()
            else:
                (self.path / name).write_bytes(data)

    def restore(self, names) -> None:
        """Put files back as they were."""
        self.put({name: self.files[name] for name in names})


def fingerprint(folder: ModelFolder) -> str:
    """Return a digest of all a folder says."""
    digest = hashlib.sha256()
    for ratings in (folder.ratings, folder.heldout):
        digest.update(repr(ratings and ratings.fingerprint).encode())
    settings = (folder.priors, folder.schedule, folder.moves, folder.seed, folder.preset, folder.library)
    digest.update(repr((settings, folder.items, folder.sweeps_done)).encode())
    posterior = folder.posterior()
    digest.update(draws_digest(posterior).encode())
    arrays = [part for trace in posterior.traces for part in trace]
    arrays += [part for point in folder.resume_points if point for part in (*point.state, point.sweep, point.tally)]
    for part in arrays:
        digest.update(np.asarray(part).tobytes() if not isinstance(part, tuple) else repr(part).encode())
    return digest.hexdigest()


def use(folder: ModelFolder) -> None:
    """Ask a folder what a user would: it must not break."""
    posterior = folder.posterior()
    repr((folder.items, folder.heldout))
    for point in folder.resume_points:
        if point is not None:
            check_state(point.state)
    for draw in posterior:
        check_state(draw.to_state())
    if len(posterior):
        users, items = np.arange(folder.ratings.n_users), np.arange(folder.ratings.n_users) % folder.ratings.n_items
        assert np.isfinite(predict_levels(posterior, users, items)).all()


def fuzz(path: Path, count: int, seed: int = 1, full: bool = False) -> Tally:
    """Open so many mutated folders and raise `AssertionError` at the first that breaks a rule.

    The folder is that of a short run or, `full`, of made-up draws of the model with everything in it.
    """
    bench = Bench(path, full)
    tally = Tally()
    tracemalloc.start()
    try:
        for number in range(count):
            _try_one(bench, tally, random.Random(f"{seed} {number}"), number)
    finally:
        tracemalloc.stop()
        shutil.rmtree(path)
    return tally


def _try_one(bench: Bench, tally: Tally, rng: random.Random, number: int) -> None:
    sealed = number % 2 == 1
    mutation = rng.choice(SEALED if sealed else UNSEALED)
    changed = mutation(rng, dict(bench.files))
    if sealed:
        changed = reseal(bench.files, changed)
    what = f"mutation {number} ({mutation.__name__})"
    bench.put(changed)
    size = sum((bench.path / name).stat().st_size for name in bench.files if (bench.path / name).exists())
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    begin = time.monotonic()
    try:
        folder = ModelFolder.open(bench.path)
    except (StoreError, EnvironmentProblem) as problem:
        text = str(problem)
        if not text.isprintable() or len(text) > 1000 or str(bench.path) not in text:
            raise AssertionError(f"{what} gave {text!r}") from problem
        folder = None
        tally.refused += 1
    except Exception as problem:
        raise AssertionError(f"{what} raised {problem!r}") from problem
    seconds = time.monotonic() - begin
    peak = tracemalloc.get_traced_memory()[1] - before
    tally.slowest, tally.most_bytes = max(tally.slowest, seconds), max(tally.most_bytes, peak)
    assert seconds < SECONDS, f"{what} took {seconds:.1f} s"
    assert peak < 2 * size + EXTRA_BYTES, f"{what} took {peak} bytes"
    if folder is not None:
        _check_opened(bench, tally, folder, what, sealed)
    bench.restore(changed)


def _check_opened(bench: Bench, tally: Tally, folder: ModelFolder, what: str, sealed: bool) -> None:
    same = fingerprint(folder) == bench.content
    assert same or sealed, f"{what} opened with other content"
    tally.same += same
    tally.other += not same
    if not same:
        tally.kinds[what.partition("(")[2]] += 1
        try:
            use(folder)
        except Exception as problem:
            raise AssertionError(f"{what} opened and then raised {problem!r}") from problem
