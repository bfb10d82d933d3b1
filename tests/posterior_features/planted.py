"""Posteriors made by hand: a known allocation, disturbed in every way in which draws differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from doublefeature.model.state import words_of
from doublefeature.posterior.draws import Draw, Posterior


@dataclass
class Truth:
    """Features as dense matrices."""

    users: np.ndarray  # (users, K)
    items: np.ndarray  # (items, K)
    effect: np.ndarray  # (K,)


def make_draw(truth, chain=0, sweep=1, offset=0.3):
    n_features = truth.effect.size
    n_words = max(1, -(-n_features // 64))
    n_users, n_items = truth.users.shape[0], truth.items.shape[0]
    return Draw(
        chain=chain,
        sweep=sweep,
        log_likelihood=0.0,
        user_words=words_of(truth.users, n_words),
        item_words=words_of(truth.items, n_words),
        effect=np.asarray(truth.effect, float),
        item_rate=np.full(n_features, 0.2),
        item_offset=np.full(n_items, offset),
        user_offset=np.zeros(n_users),
        user_scale=np.zeros(n_users, np.uint8),
        cutpoints=np.array([-np.inf, 1.0, 2.0, 3.0, 4.0, np.inf]),
        hyper=np.array([0.5, 3.0, 0.2, 2.0, 1.0, 0.5, 0.4, 0.3]),
    )


def make_truth(rng, n_users=60, n_items=40, n_features=6, user_share=0.25, item_share=0.2):
    users = rng.random((n_users, n_features)) < user_share
    items = rng.random((n_items, n_features)) < item_share
    return Truth(users, items, rng.choice([-1.0, 1.0], n_features) * rng.uniform(0.8, 2.0, n_features))


def shuffle(truth, rng):
    order = rng.permutation(truth.effect.size)
    return Truth(truth.users[:, order], truth.items[:, order], truth.effect[order])


def disturb(truth, rng, *, noise=0.04, spurious=2, missing=0.1, complement=0.4):
    """Flip bits, lose features, add others, renumber, and turn some into their complements."""
    users = truth.users ^ (rng.random(truth.users.shape) < noise)
    items = truth.items ^ (rng.random(truth.items.shape) < noise)
    effect = truth.effect + 0.05 * rng.standard_normal(truth.effect.size)
    kept = rng.random(effect.size) >= missing
    extra = int(rng.integers(0, spurious + 1))
    more = make_truth(rng, users.shape[0], items.shape[0], extra, 0.1, 0.1)
    users = np.hstack((users[:, kept], more.users))
    items = np.hstack((items[:, kept], more.items))
    effect = np.concatenate((effect[kept], more.effect))
    turned = rng.random(effect.size) < complement
    return shuffle(Truth(users ^ turned, items, np.where(turned, -effect, effect)), rng)


def make_posterior(truths, rng, *, draws=60, offset=0.3, **disturbance):
    """Return as many chains as truths, each with its own truth and as many draws."""
    return Posterior(
        2.5,
        [
            make_draw(disturb(truth, rng, **disturbance), chain, sweep, offset)
            for chain, truth in enumerate(truths)
            for sweep in range(draws // len(truths))
        ],
    )


def is_same(allocation, truth):
    """Whether an allocation is exactly the truth, features in any order and of two complements the smaller one."""
    if allocation.n_features != truth.effect.size:
        return False
    large = 2 * truth.users.sum(axis=0) > truth.users.shape[0]
    users, effect = truth.users ^ large, np.where(large, -truth.effect, truth.effect)
    expected = {(u.tobytes(), i.tobytes(), e > 0) for u, i, e in zip(users.T, truth.items.T, effect, strict=True)}
    columns = zip(allocation.user_members.T, allocation.item_members.T, allocation.effect, strict=True)
    return {(u.tobytes(), i.tobytes(), e > 0) for u, i, e in columns} == expected
