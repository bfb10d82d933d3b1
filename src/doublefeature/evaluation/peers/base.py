"""What an adapter is, and what several adapters share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import MissingExtraError, SettingsError
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]
Value = int | float | str | bool
Settings = Mapping[str, Value]

THREADS = "OMP_NUM_THREADS"
"""Environment variable that holds the number of threads a fit may use."""


class Answer(NamedTuple):
    """What a model says about some pairs: a number each and, from some models, probabilities of levels."""

    points: FloatArray  # (pairs,)
    proba: FloatArray | None = None  # (pairs, levels)


Fitted = Callable[[Codes, Codes], Answer]
"""A fitted model: answers for pairs of user and item codes, those without training ratings included."""


def _nothing() -> None:
    pass


def _as_given(train: Ratings, settings: Settings) -> Settings:
    return settings


@dataclass(frozen=True)
class Peer:
    """A model that can be compared.

    Attributes
    ----------
    name, about
        What it is called, and one line on what it is.
    package
        What has to be installed, by its import name.
    fit
        Fits training ratings with given settings and a seed.
    defaults
        Settings used without tuning; a choice replaces some of them.
    choices
        What tuning starts from beside the defaults.
    ladders
        By name of a setting, the values that tuning goes through, in order (`Search`).
    gives_levels
        Whether its answers hold probabilities; the others are calibrated.
    settle
        What settings become on given training ratings, where some go by them.
    prepare
        What has to be done before the clock starts, such as imports and compilation.
    patience
        Seconds after which a fit has hung and is started again; None: it does not hang.
    meaning
        What its settings stand for beyond their names, so that a finished run is not taken for one of another model.
    """

    name: str
    about: str
    package: str
    fit: Callable[[Ratings, Settings, int], Fitted]
    defaults: Settings = field(default_factory=dict)
    choices: tuple[Settings, ...] = ()
    ladders: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    gives_levels: bool = False
    settle: Callable[[Ratings, Settings], Settings] = _as_given
    prepare: Callable[[], None] = _nothing
    patience: Callable[[Ratings, Settings], float] | None = None
    extra: str = "peers"
    meaning: str = ""

    @property
    def starts(self) -> list[Settings]:
        """The defaults, then every choice put in their place."""
        return [self.defaults, *({**self.defaults, **choice} for choice in self.choices)]

    @property
    def installed(self) -> bool:
        """Whether its package can be imported."""
        return find_spec(self.package) is not None

    @property
    def revision(self) -> str:
        """The version of its package, and what its settings stand for."""
        return f"{_version_of(self.package)} {self.meaning}".strip()

    def check_installed(self) -> None:
        """Raise unless its package can be imported."""
        if not self.installed:
            raise MissingExtraError(f"{self.name} (package {self.package})", self.extra)

    def fit_predict(self, train: Ratings, users: Codes, items: Codes, settings: Settings, seed: int) -> Answer:
        """Fit in this process, and answer for any number of pairs."""
        self.check_installed()
        return self.fit(train, self.complete(settings), seed)(users, items)

    def complete(self, settings: Settings) -> Settings:
        """Return the defaults with the given settings in their place; unknown names are refused."""
        for name in settings:
            if name not in self.defaults:
                known = ", ".join(self.defaults) or "none"
                raise SettingsError(f"{self.name} has no setting {name!r}. Known settings: {known}.")
        return {**self.defaults, **settings}


@dataclass(frozen=True, eq=False)
class Factors:
    """The answers of every factorisation: c + b_u + b_i + p_u · q_i; what was never rated adds nothing."""

    centre: float
    user_offsets: FloatArray  # (users,)
    item_offsets: FloatArray  # (items,)
    user_factors: FloatArray  # (users, rank)
    item_factors: FloatArray  # (items, rank)

    @classmethod
    def seen(
        cls,
        train: Ratings,
        centre: float,
        user_factors: NDArray[np.floating],
        item_factors: NDArray[np.floating],
        user_offsets: NDArray[np.floating] | None = None,
        item_offsets: NDArray[np.floating] | None = None,
    ) -> Factors:
        """Keep the rows of users and items with training ratings, and put zeros elsewhere."""
        users, items = (np.diff(pointer) > 0 for pointer in (train.arrays.user_ptr, train.arrays.item_ptr))
        return cls(
            centre,
            np.where(users, 0.0 if user_offsets is None else user_offsets, 0.0),
            np.where(items, 0.0 if item_offsets is None else item_offsets, 0.0),
            np.where(users[:, None], user_factors, 0.0),
            np.where(items[:, None], item_factors, 0.0),
        )

    def __call__(self, users: Codes, items: Codes) -> Answer:
        """Return the number of every pair."""
        shared = np.einsum("jk,jk->j", self.user_factors[users], self.item_factors[items])
        return Answer(self.centre + self.user_offsets[users] + self.item_offsets[items] + shared)


class Rows(NamedTuple):
    """Training ratings as columns: codes, level values, level codes."""

    users: Codes
    items: Codes
    values: FloatArray
    levels: Codes

    @classmethod
    def of(cls, train: Ratings) -> Rows:
        """Return the ratings in stored order."""
        users, items, levels = (column.astype(np.int64) for column in train.triples())
        return cls(users, items, level_values(train.levels)[levels], levels)

    def shuffled(self, seed: int) -> Rows:
        """Return the ratings in random order: stochastic gradients do badly on one user after the other."""
        order = np.random.default_rng(seed).permutation(self.users.size)
        return Rows(self.users[order], self.items[order], self.values[order], self.levels[order])


@cache
def _version_of(package: str) -> str:
    """Return the version of a package, given its import name."""
    names = packages_distributions().get(package, ())
    return ", ".join(f"{name} {version(name)}" for name in sorted(set(names)))


def allowed_threads() -> int:
    """Return how many threads a fit may use."""
    return int(os.environ.get(THREADS) or os.cpu_count() or 1)
