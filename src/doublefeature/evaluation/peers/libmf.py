r"""LIBMF, the factorisation the paper compares with: r_ui ≈ c + p_u · q_i.

With c the mean training rating, LIBMF's stochastic gradient minimises Σ (r_ui − c − p_u · q_i)² + λ (‖p_u‖² + ‖q_i‖²),
the penalty counted once per rating. With `offsets` user and item offsets are taken off first and added again, which
LIBMF has no terms for.

Of the Python package only `fit` and the factors are used. Its `predict` reads pairs by column where `fit` reads them
by row; its import prints; and LIBMF's one worker may wait for ever for a signal that was sent a moment too early. So
fits run in a child process (`child`) that is ended and started again when it takes too long. With one thread LIBMF
gives the same factors every time, so a second try changes nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.baselines import Offsets, fit_offsets
from doublefeature.evaluation.peers.base import Factors, Fitted, FloatArray, Peer, Rows, Settings
from doublefeature.evaluation.peers.child import Message
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

TRIES = 5
_SECONDS = 10.0
_SECONDS_PER_STEP = 1e-6


def hang_seconds(n_ratings: int, iterations: int) -> float:
    """Return after how many seconds a fit has hung."""
    return _SECONDS + _SECONDS_PER_STEP * n_ratings * iterations


def factors_of(
    rows: Rows, size: tuple[int, int], rank: int, penalty: float, iterations: int, rate: float = 0.1
) -> tuple[float, FloatArray, FloatArray]:
    """Return centre, user factors and item factors; rows of what was never rated are not numbers."""
    from libmf.mf import MF

    centre = float(rows.values.mean())
    table = np.column_stack([rows.users, rows.items, rows.values - centre]).astype(np.float32)
    penalties = {"lambda_p1": 0.0, "lambda_q1": 0.0, "lambda_p2": penalty, "lambda_q2": penalty}
    model = MF(k=rank, nr_iters=iterations, nr_threads=1, eta=rate, quiet=True, **penalties)
    model.fit(np.ascontiguousarray(table))
    return centre, _padded(model.p_factors(), size[0]), _padded(model.q_factors(), size[1])


def _padded(factors: NDArray[np.floating], n_rows: int) -> FloatArray:
    """Return the factors with a row for every id: LIBMF stops at the last one that has ratings."""
    out = np.full((n_rows, factors.shape[1]), np.nan)
    out[: factors.shape[0]] = factors
    return out


def factorise_folds(task: Message) -> Message:
    """Factorise several times in this process; each with a rank, a penalty, iterations, a fold to leave out or −1."""
    columns = {name: task.arrays[name] for name in ("users", "items", "values")}
    found: dict[str, FloatArray] = {}
    centres = []
    for number, (rank, penalty, iterations, without) in enumerate(task.note["fits"]):
        kept = task.arrays["folds"] != without
        rows = Rows(**{name: column[kept] for name, column in columns.items()}, levels=np.zeros(0, np.int64))
        centre, *factors = factors_of(rows, task.note["size"], rank, penalty, iterations)
        found[f"users{number}"], found[f"items{number}"] = factors
        centres.append(centre)
    return Message(found, {"centres": centres})


def _fit(train: Ratings, settings: Settings, seed: int) -> Fitted:
    rows, size = Rows.of(train), (train.n_users, train.n_items)
    offsets: Offsets | None = None
    if settings["offsets"]:
        offsets = fit_offsets(train, level_values(train.levels), with_users=True)
        rows = rows._replace(values=rows.values - offsets.points(rows.users, rows.items))
    names = ("rank", "penalty", "iterations", "rate")
    rank, penalty, iterations, rate = (settings[name] for name in names)
    centre, users, items = factors_of(rows, size, int(rank), float(penalty), int(iterations), float(rate))
    if offsets is None:
        return Factors.seen(train, centre, users, items)
    return Factors.seen(train, centre + offsets.centre, users, items, offsets.user, offsets.item)


def _patience(train: Ratings, settings: Settings) -> float:
    return hang_seconds(train.n_ratings, int(settings["iterations"]))


LIBMF = Peer(
    name="libmf",
    about="matrix factorisation by stochastic gradient (LIBMF)",
    package="libmf",
    fit=_fit,
    defaults={"rank": 40, "penalty": 0.08, "iterations": 60, "rate": 0.05, "offsets": True},
    choices=({"offsets": False},),
    ladders={
        "penalty": (0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.12, 0.15, 0.2),
        "rank": (10, 20, 40, 80, 160, 320),
        "iterations": (8, 15, 30, 60, 120),
    },
    patience=_patience,
)
