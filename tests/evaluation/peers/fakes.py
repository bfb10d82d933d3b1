"""Models for tests of what is built around models: fitted in this process, with known answers."""

from __future__ import annotations

import numpy as np

from doublefeature.evaluation.peers.base import Answer, Peer
from doublefeature.evaluation.peers.child import TookTooLong, Usage
from doublefeature.evaluation.peers.fitting import Fit
from doublefeature.posterior.prediction import level_values


def offsets(train, settings, seed):
    """Item means, with `weight`, and noise with the rest of the weight: 1 is a good model, 0 a bad one."""
    _, items, levels = train.triples()
    values = level_values(train.levels)[levels]
    centre = values.mean()
    sums = np.bincount(items, values - centre, minlength=train.n_items)
    counts = np.bincount(items, minlength=train.n_items)
    noise = np.random.default_rng(seed).normal(size=train.n_items)
    effect = settings["weight"] * sums / (counts + 3.0) + (1.0 - settings["weight"]) * noise
    return lambda users, items: Answer(centre + effect[items])


def shares(train, settings, seed):
    """The shares of levels for every pair, as probabilities."""
    table = (train.level_counts + 1.0) / (train.n_ratings + train.n_levels)
    mean = float(table @ level_values(train.levels))
    return lambda users, items: Answer(np.full(users.size, mean), np.tile(table, (users.size, 1)))


POINTS = Peer(
    "points", "item means", "numpy", offsets, defaults={"weight": 0.0}, choices=({"weight": 1.0}, {"weight": 0.5})
)
LEVELS = Peer("levels", "shares", "numpy", shares, gives_levels=True)


class FitHere:
    """Takes the place of `fit_apart`: fits in this process and remembers what it was given."""

    def __init__(self, hangs=()):
        self.calls, self.hangs = [], list(hangs)

    def __call__(self, peer, train, pairs, settings, *, seed, threads, limit, levels_for):
        self.calls.append((peer.name, train, pairs, dict(settings)))
        if dict(settings) in self.hangs:
            raise TookTooLong(f"{peer.name} did not finish.")
        answer = peer.fit(train, settings, seed)(*pairs)
        if answer.proba is not None:
            answer = answer._replace(proba=answer.proba[:levels_for])
        return Fit(answer, Usage(2.0, 1.5, 100.0), 0.25)
