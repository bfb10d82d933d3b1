"""One fit of one model, in a child process: data there, answers and what it took back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.peers.base import Answer, Codes, Fitted, FloatArray, Peer, Settings
from doublefeature.evaluation.peers.child import Clock, Message, Usage, ask_child
from doublefeature.levels import Levels
from doublefeature.ratings import Ratings

DEFAULT_LIMIT = 3600.0
"""Seconds a fit may take."""
_BATCH = 200_000
_HANG_TRIES = 5


class Pairs(NamedTuple):
    """Users and items asked about, in codes."""

    users: Codes
    items: Codes

    @classmethod
    def of(cls, ratings: Ratings) -> Pairs:
        """Return the pairs that carry a rating, in stored order."""
        users, items, _ = ratings.triples()
        return cls(users.astype(np.int64), items.astype(np.int64))


class Fit(NamedTuple):
    """Answers of a model that was fitted in a child, and what that took."""

    answer: Answer
    usage: Usage
    """Of the fit alone, without imports and without answering."""
    answer_seconds: float


def fit_apart(
    peer: Peer,
    train: Ratings,
    pairs: Pairs,
    settings: Settings,
    *,
    seed: int,
    threads: int | None = None,
    limit: float = DEFAULT_LIMIT,
    levels_for: int | None = None,
) -> Fit:
    """Fit a model in a child process and ask it about some pairs.

    Parameters
    ----------
    levels_for
        For how many pairs, from the first on, probabilities of levels are wanted; None: for all.
    """
    chosen = peer.complete(settings)
    users, items, levels = train.triples()
    arrays: dict[str, NDArray[Any]] = {
        "users": users,
        "items": items,
        "levels": levels,
        "ask_users": pairs.users,
        "ask_items": pairs.items,
    }
    note = {
        "name": peer.name,
        "settings": dict(chosen),
        "seed": seed,
        "size": [train.n_users, train.n_items],
        "levels": list(train.levels),
        "levels_for": pairs.users.size if levels_for is None else levels_for,
    }
    hangs = peer.patience is not None
    seconds = min(limit, peer.patience(train, chosen)) if peer.patience is not None else limit
    found = ask_child(
        "fitting:_fit_here",
        Message(arrays, note),
        seconds=seconds,
        what=peer.name,
        tries=_HANG_TRIES if hangs else 1,
        threads=threads,
    )
    proba = found.arrays.get("proba")
    usage = Usage(*found.note["usage"])
    return Fit(Answer(found.arrays["points"], proba), usage, float(found.note["answer_seconds"]))


def _fit_here(message: Message) -> Message:
    """Fit and answer in this process."""
    from doublefeature.evaluation.peers.registry import KNOWN

    arrays, note = message
    peer = KNOWN[note["name"]]
    peer.check_installed()
    peer.prepare()
    users, items = (range(n) for n in note["size"])
    train = Ratings.from_codes(
        arrays["users"], arrays["items"], arrays["levels"], users=users, items=items, levels=Levels(note["levels"])
    )
    clock = Clock()
    fitted = peer.fit(train, note["settings"], note["seed"])
    usage = clock.stop()
    clock = Clock()
    answers = _answers(fitted, Pairs(arrays["ask_users"], arrays["ask_items"]), note["levels_for"])
    return Message(answers, {"usage": list(usage), "answer_seconds": clock.stop().wall_seconds})


def _answers(fitted: Fitted, pairs: Pairs, levels_for: int) -> dict[str, FloatArray]:
    """Ask in batches; tables of probabilities that nobody wants are not kept."""
    points, tables = [], []
    for first in range(0, max(1, pairs.users.size), _BATCH):
        part = fitted(pairs.users[first : first + _BATCH], pairs.items[first : first + _BATCH])
        points.append(part.points)
        if part.proba is not None and first < max(1, levels_for):
            tables.append(part.proba)
    found: dict[str, FloatArray] = {"points": np.concatenate(points)}
    return {**found, "proba": np.concatenate(tables)[:levels_for]} if tables else found
