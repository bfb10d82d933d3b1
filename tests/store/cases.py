"""A tiny model to store, and disks that fail, die or take notes."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.inference.chain import sample
from doublefeature.model.ordinal import level_cutpoints
from doublefeature.model.state import SCALES, empty_state, words_of
from doublefeature.posterior.disk import Disk
from doublefeature.posterior.draws import Draw, Posterior, Trace
from doublefeature.ratings import Ratings

PRIORS = Priors(user_offsets=True, learn=("mass", "item_rate"))
FULL = Priors(user_offsets=True, learn=("mass", "item_rate"), graded=True, user_scales=True, free_cutpoints=True)
FULL = replace(FULL, user_grades=True)
TITLES = {f"film {i}": {"title": f"Étude {i}"} for i in range(0, 9, 2)}


def tiny_ratings(seed: int = 3) -> Ratings:
    """Twelve users with whole numbers and nine items with texts for ids."""
    rng = np.random.default_rng(seed)
    users, items = (part.ravel() for part in np.meshgrid(np.arange(12), np.arange(9), indexing="ij"))
    kept = rng.random(users.size) < 0.7
    levels = np.where((users < 6) == (items < 4), 4, 1) - rng.integers(0, 2, users.size)
    return Ratings.from_codes(
        users[kept],
        items[kept],
        levels[kept],
        users=[int(user) * 10 for user in range(12)],
        items=[f"film {i}" for i in range(9)],
        levels="1..5",
    )


def parts(**changed):
    """What `ModelFolder.create` needs, for a run of 12 sweeps in 2 chains."""
    schedule = Schedule(sweeps=12, warmup=4, thin=2, chains=2, threads=1)
    moves = Moves(settle=2)
    usual = {"ratings": tiny_ratings(), "priors": PRIORS, "schedule": schedule, "moves": moves}
    return {**usual, "seed": 5, "preset": "paper", **changed}


def undisturbed(model) -> Posterior:
    """The draws of one run in memory, which every broken and resumed run must give."""
    return sample(model["ratings"], model["priors"], model["schedule"], model["moves"], seed=model["seed"])


def random_posterior(ratings: Ratings, features: list[int], seed: int = 1, chains: int = 1) -> Posterior:
    """Draws of any number of features, one per sweep, that no chain has made."""
    rng = np.random.default_rng(seed)
    draws, traces = [], []
    for chain in range(chains):
        own = [_random_draw(ratings, chain, k + 1, count, rng) for k, count in enumerate(features)]
        draws += own
        traces.append(
            Trace(
                chain=chain,
                log_likelihood=np.array([draw.log_likelihood for draw in own]),
                n_features=np.array(features, np.int64),
                hyper=np.array([draw.hyper for draw in own]),
                tally=np.cumsum(rng.integers(0, 9, (3, 2)), axis=1)[:, ::-1].astype(np.int64),
                move_names=("birth", "death", "split"),
            )
        )
    return Posterior(ratings.n_levels / 2, draws, traces)


def full_posterior(ratings: Ratings, features: list[int], seed: int = 1, chains: int = 1) -> Posterior:
    """Draws like those of `random_posterior`, graded on both sides, with users' noise scales and free cutpoints."""
    rng = np.random.default_rng(seed)
    plain = random_posterior(ratings, features, seed, chains)
    draws = [
        draw._replace(
            item_effect=rng.normal(size=int(np.bitwise_count(draw.item_words).sum())),
            graded=True,
            user_grade=rng.normal(1.0, 0.5, int(np.bitwise_count(draw.user_words).sum())),
            user_graded=True,
            user_scale=rng.integers(0, SCALES.size, ratings.n_users).astype(np.uint8),
            cutpoints=np.array([-np.inf, 1.0, *np.sort(rng.uniform(1.0, 4.0, 2)), 4.0, np.inf]),
        )
        for draw in plain
    ]
    return Posterior(plain.base, draws, plain.traces, SCALES)


def every_sweep(features: list[int], chains: int = 1) -> Schedule:
    """A schedule that keeps every sweep."""
    return Schedule(sweeps=len(features), warmup=0, thin=1, chains=chains, threads=1)


def _random_draw(ratings, chain, sweep, count, rng) -> Draw:
    users = rng.random((ratings.n_users, count)) < 0.4
    users[rng.integers(0, ratings.n_users, count), np.arange(count)] = True
    items = rng.random((ratings.n_items, count)) < 0.4
    n_words = max(1, -(-count // 64))
    return Draw(
        chain=chain,
        sweep=sweep,
        log_likelihood=float(rng.normal()),
        user_words=words_of(users, n_words),
        item_words=words_of(items, n_words),
        effect=rng.normal(size=count),
        item_rate=rng.random(count),
        item_offset=rng.normal(size=ratings.n_items),
        user_offset=rng.normal(size=ratings.n_users),
        user_scale=np.zeros(ratings.n_users, np.uint8),
        cutpoints=level_cutpoints(ratings.n_levels),
        hyper=np.array([*rng.random(3) * 0.9 + 0.1, *empty_state(PRIORS, 0, 0, 5).hyper[3:]]),
    )


def same(one, two) -> bool:
    """Whether two tuples of arrays are equal, types and shapes included."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(one, two, strict=True)]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


class Killed(BaseException):
    """The process is dead from here on."""


class QuickDisk(Disk):
    """Does not wait for the disk: for tests that no power cut interrupts."""

    def sync(self, handle: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


OPERATIONS = ("make_directory", "create", "write", "sync", "close", "replace", "sync_directory", "remove")


class WatchedDisk(QuickDisk):
    """Calls `before` ahead of every operation, one at a time, with its number, name and arguments."""

    def __init__(self) -> None:
        self.count = 0
        self._gate = threading.RLock()

    def before(self, number: int, name: str, arguments: tuple) -> None:
        """See an operation come."""

    def _do(self, name: str, *arguments):
        with self._gate:
            self.count += 1
            self.before(self.count, name, arguments)
            return getattr(QuickDisk, name)(self, *arguments)


def _operation(name: str):
    return lambda self, *arguments: self._do(name, *arguments)


for _name in OPERATIONS:
    setattr(WatchedDisk, _name, _operation(_name))


class MortalDisk(WatchedDisk):
    """Dies at one operation: nothing reaches the disk any more, as after kill -9. A write may be half done."""

    def __init__(self, last: int, half: bool = False, really: bool = False) -> None:
        super().__init__()
        self._last = last
        self._half = half
        self._really = really

    def before(self, number: int, name: str, arguments: tuple) -> None:
        if number < self._last:
            return
        if number == self._last and self._half and name == "write":
            os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
        if self._really:
            os._exit(9)
        if name == "close":
            os.close(arguments[0])
        raise Killed


class FailingDisk(WatchedDisk):
    """Raises at one operation, or at that one and all later ones of its kind."""

    def __init__(self, at: int, problem: Exception, for_good: bool = False) -> None:
        super().__init__()
        self._at = at
        self._problem = problem
        self._for_good = for_good
        self._kind = ""

    def before(self, number: int, name: str, arguments: tuple) -> None:
        if number == self._at:
            self._kind = name
        if self._kind and (number == self._at or (self._for_good and name == self._kind)):
            if name == "close":
                os.close(arguments[0])
            raise self._problem
