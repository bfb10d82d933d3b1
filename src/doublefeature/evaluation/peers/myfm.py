r"""Bayesian factorisation machine with ordered probit by myFM, the nearest relative among the peers.

A rating's latent score is w_u + w_i + v_u · v_i plus noise, with learnt cutpoints. In the SVD++ form a user is
also described by the items rated in the training part, each with weight |N_u|^{−1/2}: these items have a weight and a
vector of their own in that role. Answers are computed here from the package's own samples: what it says of a pair is
the same to the last digits, and takes it three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.peers.base import Answer, Codes, Fitted, Peer, Rows, Settings
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

RANKS = (8, 16, 32)
_BLOCK = 1024


def _user_columns(train: Ratings, implicit: bool) -> Any:
    """Return what describes each user: the user's own column and, if asked for, one for every rated item."""
    from scipy.sparse import csr_matrix, hstack, identity

    alone = identity(train.n_users, format="csr")
    if not implicit:
        return alone
    counts = np.diff(train.arrays.user_ptr)
    weights = np.repeat(1.0 / np.sqrt(np.maximum(counts, 1)), counts)
    shape = (train.n_users, train.n_items)
    rated = csr_matrix((weights, train.arrays.item_codes.astype(np.int64), train.arrays.user_ptr), shape=shape)
    return hstack([alone, rated]).tocsr()


def _fit(train: Ratings, settings: Settings, seed: int) -> Fitted:
    from myfm import MyFMOrderedProbit, RelationBlock
    from scipy.sparse import identity

    implicit = bool(settings["implicit"])
    user_columns, item_columns = _user_columns(train, implicit), identity(train.n_items, format="csr")

    def blocks(users: Codes, items: Codes) -> list[Any]:
        return [RelationBlock(users, user_columns), RelationBlock(items, item_columns)]

    rows = Rows.of(train)
    seen, places = np.unique(rows.levels, return_inverse=True)
    sizes = [train.n_users, *([train.n_items] if implicit else []), train.n_items]
    iterations = int(settings["iterations"])
    kept = iterations - int(settings["warmup"])
    model = MyFMOrderedProbit(rank=settings["rank"], random_seed=seed % 2**31)
    model.fit(None, places, blocks(rows.users, rows.items), n_iter=iterations, n_kept_samples=kept, group_shapes=sizes)
    values = level_values(train.levels)

    def answer(users: Codes, items: Codes) -> Answer:
        proba = np.zeros((users.size, train.n_levels))
        proba[:, seen] = level_shares(model.predictor_.samples, user_columns, users, items)
        return Answer(proba @ values, proba)

    return answer


def level_shares(samples: Sequence[Any], user_columns: Any, users: Codes, items: Codes) -> NDArray[np.float64]:
    """Return the level probabilities of pairs, averaged over samples; items are columns after those of users."""
    from scipy.special import ndtr

    asked, rows = np.unique(users, return_inverse=True)
    columns = user_columns[asked]
    squares, n_columns = columns.multiply(columns), columns.shape[1]
    below = np.zeros((users.size, samples[0].cutpoints[0].size))
    for sample in samples:
        weights, vectors = np.asarray(sample.w), np.asarray(sample.V)
        of_users, of_items = columns @ vectors[:n_columns], vectors[n_columns:]
        among_own = (of_users**2).sum(axis=1) - squares @ (vectors[:n_columns] ** 2).sum(axis=1)
        alone = sample.w0 + columns @ weights[:n_columns] + 0.5 * among_own
        for first in range(0, users.size, _BLOCK):
            block = slice(first, first + _BLOCK)
            row, item = rows[block], items[block]
            together = np.einsum("ij,ij->i", of_users[row], of_items[item])
            score = alone[row] + weights[n_columns:][item] + together
            below[block] += ndtr(sample.cutpoints[0] - score[:, None])
    return np.diff(below / len(samples), axis=1, prepend=0.0, append=1.0)


def _import() -> None:
    import_module("myfm")
    import_module("scipy.sparse")


def _peer(rank: int, implicit: bool) -> Peer:
    return Peer(
        name=f"myfm-svdpp-{rank}" if implicit else f"myfm-{rank}",
        about=f"Bayesian factorisation machine, ordered probit{', SVD++ form' if implicit else ''}, rank {rank} (myFM)",
        package="myfm",
        fit=_fit,
        defaults={"rank": rank, "implicit": implicit, "iterations": 512, "warmup": 100},
        gives_levels=True,
        prepare=_import,
    )


MYFM = tuple(_peer(rank, implicit) for implicit in (False, True) for rank in RANKS)
