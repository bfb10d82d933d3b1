"""Probabilistic and biased matrix factorisation by cornac."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from doublefeature.evaluation.peers.base import Answer, Codes, Factors, Fitted, Peer, Rows, Settings
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings


def _train_set(train: Ratings, seed: int) -> Any:
    """Return the ratings in random order, with our codes as the package's indices."""
    from cornac.data import Dataset

    rows = Rows.of(train).shuffled(seed)
    ids = ({code: code for code in range(n)} for n in (train.n_users, train.n_items))
    triples = (rows.users, rows.items, rows.values.astype(np.float32))
    return Dataset(train.n_users, train.n_items, *ids, triples, seed=seed % 2**32)


def _fit_pmf(train: Ratings, settings: Settings, seed: int) -> Fitted:
    """Fit ratings, moved onto 0..1 between the lowest and the highest seen, as logistic(p_u · q_i)."""
    from cornac.models import PMF

    model = PMF(
        k=settings["rank"],
        max_iter=settings["epochs"],
        learning_rate=settings["rate"],
        lambda_reg=settings["penalty"],
        variant="non_linear",
        seed=seed % 2**32,
    )
    model.fit(_train_set(train, seed))
    factors = Factors.seen(train, 0.0, model.U, model.V)
    seen = level_values(train.levels)[np.flatnonzero(train.level_counts)]
    low, high = float(seen.min()), float(seen.max())

    def answer(users: Codes, items: Codes) -> Answer:
        return Answer(low + (high - low) / (1.0 + np.exp(-factors(users, items).points)))

    return answer


def _fit_mf(train: Ratings, settings: Settings, seed: int) -> Fitted:
    """Fit μ + b_u + b_i + p_u · q_i by stochastic gradient, on one thread: with more the result is left to chance."""
    from cornac.models import MF

    model = MF(
        k=settings["rank"],
        max_iter=settings["epochs"],
        learning_rate=settings["rate"],
        lambda_reg=settings["penalty"],
        num_threads=1,
        seed=seed % 2**32,
    )
    model.fit(_train_set(train, seed))
    return Factors.seen(
        train, float(model.global_mean), model.u_factors, model.i_factors, model.u_biases, model.i_biases
    )


def _import() -> None:
    import_module("cornac.models")


PMF = Peer(
    name="pmf",
    about="probabilistic matrix factorisation (cornac)",
    package="cornac",
    fit=_fit_pmf,
    defaults={"rank": 10, "epochs": 100, "rate": 0.005, "penalty": 0.004},
    ladders={
        "penalty": (0.002, 0.003, 0.004, 0.006, 0.01, 0.015, 0.02),
        "rank": (2, 3, 5, 10, 20, 40, 80, 160),
        "epochs": (25, 50, 100, 200, 400),
    },
    prepare=_import,
)
MF = Peer(
    name="mf",
    about="matrix factorisation with user and item offsets (cornac)",
    package="cornac",
    fit=_fit_mf,
    defaults={"rank": 20, "epochs": 60, "rate": 0.01, "penalty": 0.05},
    choices=({"rank": 80, "epochs": 30},),
    ladders={
        "penalty": (0.02, 0.03, 0.05, 0.08, 0.1, 0.12, 0.15, 0.2),
        "rank": (5, 10, 20, 40, 80, 160, 320, 640),
        "epochs": (15, 30, 60, 120, 240),
    },
    prepare=_import,
)
