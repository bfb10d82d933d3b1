"""Matrix factorisation by LIBMF, the peer the paper compares with, tuned by cross-validation on the training part.

The factorisation itself is the adapter's (`doublefeature.evaluation.peers.libmf`). As there, fits run in a child
process that is ended and started again when it takes too long; here one child makes many small fits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import MissingExtraError, SettingsError
from doublefeature.evaluation.peers.child import Message, ask_child
from doublefeature.evaluation.peers.libmf import LIBMF, TRIES, hang_seconds
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """What cross-validation chooses from, and how it goes."""

    ranks: tuple[int, ...] = (5, 10, 15, 20, 30, 40)
    penalties: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04, 0.08)
    folds: int = 5
    iterations: int = 60


class Fit(NamedTuple):
    """One factorisation to make; `without` is a fold to leave out, −1 for none."""

    rank: int
    penalty: float
    iterations: int
    without: int = -1


@dataclass(frozen=True, eq=False)
class Factorisation:
    """Factors of users and items; rows of users and items without training ratings are not numbers."""

    user_factors: FloatArray  # (users, rank)
    item_factors: FloatArray  # (items, rank)
    centre: float
    lowest: float
    highest: float

    def predict(self, users: Codes, items: Codes) -> FloatArray:
        """Return the rating of every pair, kept within the levels; the mean rating where nothing is known."""
        shared = np.einsum("jk,jk->j", self.user_factors[users], self.item_factors[items])
        ratings = self.centre + np.where(np.isnan(shared), 0.0, shared)
        return np.clip(ratings, self.lowest, self.highest)


@dataclass(frozen=True, eq=False)
class Tuned:
    """The choice of cross-validation, refitted on all training ratings."""

    model: Factorisation
    rank: int
    penalty: float
    validation_rmse: dict[tuple[int, float], float]
    """Root mean squared error on the folds left out, for every rank and penalty."""


def check_factorisation() -> None:
    """Raise unless LIBMF's package is installed."""
    if not LIBMF.installed:
        raise MissingExtraError("matrix factorisation", "study")


def factorise(ratings: Ratings, rank: int, penalty: float, iterations: int = Grid.iterations) -> Factorisation:
    """Factorise all ratings with a given rank and penalty."""
    return _fit_all(ratings, [Fit(rank, penalty, iterations)], np.zeros(len(ratings), np.int64))[0]


def tune(ratings: Ratings, grid: Grid | None = None, *, seed: int = 0, threads: int | None = None) -> Tuned:
    """Choose rank and penalty by the least squared error on folds left out, and refit on all ratings.

    Parameters
    ----------
    seed
        Fixes the folds.
    threads
        How many fits run side by side. None: one per core. The result does not depend on it.
    """
    grid = grid or Grid()
    if len(ratings) < grid.folds:
        raise SettingsError(f"{grid.folds} folds need as many ratings, got {len(ratings)}. Give more ratings.")
    check_factorisation()
    folds = np.random.default_rng(seed).permutation(len(ratings)) % grid.folds

    def errors(rank: int) -> list[tuple[tuple[int, float], float]]:
        fits = [Fit(rank, *rest) for rest in product(grid.penalties, [grid.iterations], range(grid.folds))]
        squares = _squared_errors(ratings, fits, folds)
        return [((rank, penalty), float(np.sqrt(squares[penalty] / len(ratings)))) for penalty in grid.penalties]

    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        validation = dict(pair for pairs in pool.map(errors, grid.ranks) for pair in pairs)
    rank, penalty = min(validation, key=lambda choice: (validation[choice], choice))
    return Tuned(factorise(ratings, rank, penalty, grid.iterations), rank, penalty, validation)


def _squared_errors(ratings: Ratings, fits: Sequence[Fit], folds: Codes) -> dict[float, float]:
    """Return, for every penalty, the sum of squared errors over the folds left out."""
    users, items, _ = ratings.triples()
    values, sums = ratings.values(), dict.fromkeys([fit.penalty for fit in fits], 0.0)
    for fit, model in zip(fits, _fit_all(ratings, fits, folds), strict=True):
        left_out = folds == fit.without
        predicted = model.predict(users[left_out].astype(np.int64), items[left_out].astype(np.int64))
        sums[fit.penalty] += float(((predicted - values[left_out]) ** 2).sum())
    return sums


def _fit_all(ratings: Ratings, fits: Sequence[Fit], folds: Codes) -> list[Factorisation]:
    check_factorisation()
    users, items, _ = ratings.triples()
    levels = np.array(ratings.levels, np.float64)
    columns: dict[str, NDArray[Any]] = {"users": users, "items": items, "values": ratings.values(), "folds": folds}
    task = Message(columns, {"size": [ratings.n_users, ratings.n_items], "fits": [list(fit) for fit in fits]})
    seconds = hang_seconds(len(ratings), sum(fit.iterations for fit in fits))
    found = ask_child("libmf:factorise_folds", task, seconds=seconds, what="LIBMF", tries=TRIES)
    return [
        Factorisation(
            found.arrays[f"users{number}"],
            found.arrays[f"items{number}"],
            float(centre),
            float(levels.min()),
            float(levels.max()),
        )
        for number, centre in enumerate(found.note["centres"])
    ]
