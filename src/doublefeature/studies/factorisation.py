r"""Matrix factorisation by LIBMF, the peer the paper compares with: r_ui ≈ c + p_u · q_i.

With c the mean training rating, LIBMF's stochastic gradient minimises Σ (r_ui − c − p_u · q_i)² + λ (‖p_u‖² + ‖q_i‖²),
the penalty counted once per rating. Rank and λ are chosen by cross-validation on the training part.

Of the Python package only `fit` and the factors are used. Its `predict` reads pairs by column where `fit` reads them
by row; its import prints; and LIBMF's one worker may wait for ever for a signal that was sent a moment too early.
So fits run in a child process (`python -m doublefeature.studies.factorisation`) that is ended and started again when
it takes too long. With one thread LIBMF gives the same factors every time, so a second try changes nothing.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import EnvironmentProblem, MissingExtraError, SettingsError
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

_TRIES = 5
_SECONDS = 10.0
_SECONDS_PER_STEP = 1e-6


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
    if find_spec("libmf") is None:
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
    values = ratings.values()
    levels = np.array(ratings.levels, np.float64)
    task = _pack({"users": users, "items": items, "values": values, "folds": folds, "fits": np.array(fits, np.float64)})
    steps = len(ratings) * sum(fit.iterations for fit in fits)
    answer = _unpack(_ask_child(task, _SECONDS + _SECONDS_PER_STEP * steps))
    models = []
    for number, fit in enumerate(fits):
        user_factors = _padded(answer[f"users{number}"], ratings.n_users)
        item_factors = _padded(answer[f"items{number}"], ratings.n_items)
        centre = float(values[folds != fit.without].mean())
        models.append(Factorisation(user_factors, item_factors, centre, float(levels.min()), float(levels.max())))
    return models


def _padded(factors: FloatArray, n_rows: int) -> FloatArray:
    """Return the factors with a row for every id: LIBMF stops at the last one that has ratings."""
    out = np.full((n_rows, factors.shape[1]), np.nan)
    out[: factors.shape[0]] = factors
    return out


def _ask_child(task: bytes, seconds: float) -> bytes:
    """Return a child's answer; one that takes too long is ended and tried again with twice the time."""
    command = [sys.executable, "-m", "doublefeature.studies.factorisation"]
    for attempt in range(_TRIES):
        try:
            done = subprocess.run(command, input=task, capture_output=True, timeout=seconds * 2**attempt, check=False)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise EnvironmentProblem(f"LIBMF ended with code {done.returncode}: {last}. Reinstall the package libmf.")
        return done.stdout
    raise EnvironmentProblem(f"LIBMF did not finish in {_TRIES} tries. Run again on a machine with less to do.")


def _pack(arrays: dict[str, NDArray[np.generic]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _unpack(content: bytes) -> dict[str, FloatArray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _fit_here(task: dict[str, FloatArray], fits: Iterable[Fit]) -> dict[str, NDArray[np.generic]]:
    """Make the fits in this process."""
    from libmf.mf import MF  # type: ignore[import-untyped]

    table = np.column_stack([task["users"], task["items"], task["values"]]).astype(np.float32)
    found: dict[str, NDArray[np.generic]] = {}
    for number, fit in enumerate(fits):
        rows = task["folds"] != fit.without
        data = np.ascontiguousarray(table[rows])
        data[:, 2] = (task["values"][rows] - task["values"][rows].mean()).astype(np.float32)
        penalties = {"lambda_p1": 0.0, "lambda_q1": 0.0, "lambda_p2": fit.penalty, "lambda_q2": fit.penalty}
        model = MF(k=int(fit.rank), nr_iters=int(fit.iterations), nr_threads=1, quiet=True, **penalties)
        model.fit(data)
        found[f"users{number}"], found[f"items{number}"] = model.p_factors(), model.q_factors()
    return found


def _serve() -> None:
    """Answer the task on stdin; what the package and its library print goes to stderr."""
    answer = os.dup(1)
    os.dup2(2, 1)
    task = _unpack(sys.stdin.buffer.read())
    found = _fit_here(task, [Fit(*row) for row in task["fits"].tolist()])
    with os.fdopen(answer, "wb") as out:
        out.write(_pack(found))


if __name__ == "__main__":
    _serve()
