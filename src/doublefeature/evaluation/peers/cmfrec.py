"""Alternating least squares with implicit signal by cmfrec."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from doublefeature.evaluation.peers.base import Factors, Fitted, Peer, Rows, Settings, allowed_threads
from doublefeature.ratings import Ratings


def _fit(train: Ratings, settings: Settings, seed: int) -> Fitted:
    """Fit μ + b_u + b_i + p_u · q_i together with which items each user rated, in shared factors."""
    from cmfrec import CMF
    from scipy.sparse import coo_matrix

    rows, penalty = Rows.of(train), float(settings["penalty"])
    table = coo_matrix((rows.values, (rows.users, rows.items)), shape=(train.n_users, train.n_items))
    model = CMF(
        k=settings["rank"],
        lambda_=np.array([settings["offset_penalty"]] * 2 + [penalty] * 4),
        w_implicit=settings["implicit_weight"],
        add_implicit_features=settings["implicit_weight"] != 0.0,
        niter=settings["rounds"],
        use_cg=False,
        use_float=False,
        random_state=seed % 2**31,
        nthreads=allowed_threads(),
        verbose=False,
    )
    model.fit(table)
    offsets = (np.ravel(model.user_bias_), np.ravel(model.item_bias_))
    return Factors.seen(train, float(model.glob_mean_), model.A_, model.B_, *offsets)


def _import() -> None:
    import_module("cmfrec")
    import_module("scipy.sparse")


CMFREC = Peer(
    name="cmfrec",
    about="alternating least squares with implicit signal (cmfrec)",
    package="cmfrec",
    fit=_fit,
    defaults={"rank": 40, "penalty": 16.0, "offset_penalty": 4.0, "implicit_weight": 1.0, "rounds": 15},
    ladders={
        "penalty": (4.0, 6.0, 8.0, 12.0, 16.0, 20.0, 25.0, 32.0, 45.0),
        "implicit_weight": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0),
        "rank": (10, 20, 40, 80),
        "offset_penalty": (2.0, 4.0, 8.0, 16.0, 32.0),
    },
    prepare=_import,
)
