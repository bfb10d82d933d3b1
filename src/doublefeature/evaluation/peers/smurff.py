"""Bayesian probabilistic matrix factorisation by SMURFF, on what user and item offsets leave over."""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from doublefeature.evaluation.baselines import fit_offsets
from doublefeature.evaluation.peers.base import Answer, Codes, Fitted, FloatArray, Peer, Rows, Settings, allowed_threads
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings


def _fit(train: Ratings, settings: Settings, seed: int) -> Fitted:
    """Average u · v over draws, added to μ + b_u + b_i."""
    from scipy.sparse import coo_matrix

    rows = Rows.of(train)
    offsets = fit_offsets(train, level_values(train.levels), with_users=True)
    left = rows.values - offsets.points(rows.users, rows.items)
    table = coo_matrix((left, (rows.users, rows.items)), shape=(train.n_users, train.n_items)).tocsr()
    with tempfile.TemporaryDirectory() as folder:
        draws = _draws(table, settings, seed, Path(folder) / "draws.hdf5")

    def answer(users: Codes, items: Codes) -> Answer:
        total = np.zeros(users.size)
        for user_factors, item_factors in draws:
            total += np.einsum("jk,jk->j", user_factors[users], item_factors[items])
        return Answer(offsets.points(users, items) + total / len(draws))

    return answer


def _draws(table: Any, settings: Settings, seed: int, path: Path) -> list[tuple[FloatArray, FloatArray]]:
    """Return the factors of users and items in every kept draw, which the package hands out by way of a file."""
    import smurff

    session = smurff.TrainSession(
        priors=["normal", "normal"],
        num_latent=settings["rank"],
        burnin=settings["warmup"],
        nsamples=settings["draws"],
        num_threads=allowed_threads(),
        seed=seed % 2**31,
        verbose=0,
        save_name=str(path),
        save_freq=1,
    )
    session.setTrain(table, smurff.AdaptiveNoise(1.0, 100.0), True)
    session.init()
    while session.step() is not None:
        pass
    del session
    samples = smurff.PredictSession(str(path)).samples
    return [(sample.latents[0], sample.latents[1]) for sample in samples]


def _import() -> None:
    import_module("smurff")


SMURFF = Peer(
    name="bpmf",
    about="Bayesian probabilistic matrix factorisation (SMURFF)",
    package="smurff",
    fit=_fit,
    defaults={"rank": 16, "warmup": 50, "draws": 150},
    ladders={"rank": (4, 8, 16, 32, 64, 128)},
    prepare=_import,
)
