"""Neighbours and SVD++ by scikit-surprise."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import Any

import numpy as np

from doublefeature.evaluation.peers.base import Answer, Codes, Factors, Fitted, Peer, Rows, Settings
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings


def _train_set(train: Ratings) -> Any:
    """Return the ratings as the package wants them, with our codes as its inner ids."""
    from surprise import Trainset

    rows, values = Rows.of(train), level_values(train.levels)
    by_user: dict[int, list[tuple[int, float]]] = defaultdict(list)
    by_item: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for user, item, value in zip(rows.users.tolist(), rows.items.tolist(), rows.values.tolist(), strict=True):
        by_user[user].append((item, value))
        by_item[item].append((user, value))
    scale = (float(values.min()), float(values.max()))
    ids = ({code: code for code in range(n)} for n in (train.n_users, train.n_items))
    return Trainset(by_user, by_item, train.n_users, train.n_items, train.n_ratings, scale, *ids)


def _fit_neighbours(train: Ratings, settings: Settings, seed: int) -> Fitted:
    from surprise import KNNBaseline

    likeness = {"name": "pearson_baseline", "user_based": False, "shrinkage": settings["shrinkage"]}
    model = KNNBaseline(k=settings["neighbours"], min_k=settings["least"], sim_options=likeness, verbose=False)
    with np.errstate(all="ignore"):
        model.fit(_train_set(train))

    def answer(users: Codes, items: Codes) -> Answer:
        found = (model.estimate(user, item) for user, item in zip(users.tolist(), items.tolist(), strict=True))
        return Answer(np.array([one[0] if isinstance(one, tuple) else one for one in found], np.float64))

    return answer


def _fit_svdpp(train: Ratings, settings: Settings, seed: int) -> Fitted:
    r"""Fit μ + b_u + b_i + q_i · (p_u + |N_u|^{−1/2} Σ_{j ∈ N_u} y_j), N_u the items that u rated."""
    from surprise import SVDpp

    model = SVDpp(
        n_factors=settings["rank"],
        n_epochs=settings["epochs"],
        lr_all=settings["rate"],
        reg_all=settings["penalty"],
        random_state=seed % 2**32,
        cache_ratings=True,
    )
    model.fit(_train_set(train))
    rows = Rows.of(train)
    implicit = np.zeros_like(model.pu)
    np.add.at(implicit, rows.users, model.yj[rows.items])
    counts = np.diff(train.arrays.user_ptr)
    user_factors = model.pu + implicit / np.sqrt(np.maximum(counts, 1))[:, None]
    return Factors.seen(train, float(rows.values.mean()), user_factors, model.qi, model.bu, model.bi)


def _import() -> None:
    import_module("surprise")


KNN = Peer(
    name="knn",
    about="item neighbours around a user and item baseline (scikit-surprise)",
    package="surprise",
    fit=_fit_neighbours,
    defaults={"neighbours": 40, "least": 1, "shrinkage": 100},
    ladders={"neighbours": (5, 10, 20, 40, 80, 160, 320), "shrinkage": (10, 30, 100, 300, 1000, 3000)},
    prepare=_import,
)
SVDPP = Peer(
    name="svdpp",
    about="SVD++, factorisation with implicit signal (scikit-surprise)",
    package="surprise",
    fit=_fit_svdpp,
    defaults={"rank": 10, "epochs": 40, "rate": 0.01, "penalty": 0.08},
    ladders={
        "penalty": (0.02, 0.04, 0.06, 0.08, 0.11, 0.15, 0.2),
        "rank": (3, 5, 10, 20, 40, 80),
        "epochs": (10, 20, 40, 80),
    },
    prepare=_import,
)
