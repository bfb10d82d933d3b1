"""Memberships shifted by traits: without traits they are the Indian buffet process."""

import numpy as np

from doublefeature.model.generative import draw_tilted_buffet


def counts(traits: np.ndarray, seed: int, n_draws: int = 3_000) -> np.ndarray:
    rng = np.random.default_rng(seed)
    draws = [draw_tilted_buffet(1.0, traits, 0.5, rng)[0] for _ in range(n_draws)]
    return np.array([(d.shape[1], d.sum(), (d.sum(axis=0) == 1).sum()) for d in draws], float)


def test_traits_of_zero_give_the_buffet() -> None:
    n_users = 6
    found = counts(np.zeros((n_users, 1)), seed=1)
    truth = np.array([sum(1.0 / j for j in range(1, n_users + 1)), float(n_users), 1.0])
    z = (found.mean(axis=0) - truth) / (found.std(axis=0) / np.sqrt(len(found)))
    assert np.abs(z).max() < 4


def test_traits_bring_alike_users_together() -> None:
    rng = np.random.default_rng(2)
    traits = np.array([[-1.5], [-1.5], [1.5], [1.5]])
    members = [draw_tilted_buffet(1.0, traits, 0.8, rng)[0] for _ in range(3_000)]
    alike = np.array([(d[0] & d[1]).sum() for d in members], float)
    apart = np.array([(d[0] & d[2]).sum() for d in members], float)
    gap = alike - apart
    assert gap.mean() > 4 * gap.std() / np.sqrt(gap.size)
