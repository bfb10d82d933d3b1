"""Tiny data sets and states for proofs, and the figures they are judged by."""

from __future__ import annotations

import numpy as np

from doublefeature.config import Moves, Priors
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.sweep import build_scene
from doublefeature.model.choices import traits_of
from doublefeature.model.generative import base_of, draw_levels, draw_parameters
from doublefeature.model.parameters import Parameters, state_of
from doublefeature.model.state import Traits
from doublefeature.outline import NO_COVARIATES, Covariates
from doublefeature.ratings import Ratings


def pairs(n_users: int, n_items: int, n_ratings: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return so many distinct (user, item) pairs, in user order."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(n_users * n_items)[:n_ratings])
    return chosen // n_items, chosen % n_items


def ratings_of(users, items, levels, n_users: int, n_items: int, n_levels: int) -> Ratings:
    return Ratings.from_codes(
        users.astype(np.uint32),
        items.astype(np.uint32),
        levels.astype(np.uint8),
        users=range(n_users),
        items=range(n_items),
        levels=tuple(range(1, n_levels + 1)),
    )


def scene_of(
    parameters: Parameters,
    priors: Priors,
    moves: Moves,
    observed: tuple[np.ndarray, np.ndarray, np.ndarray],
    n_levels: int,
    stream: tuple[int, int] = (0, 0),
    traits: Traits | None = None,
) -> Scene:
    """Return a scene with these parameters and ratings (users, items, level codes)."""
    n_users, n_items = parameters.user_offset.size, parameters.item_offset.size
    ratings = ratings_of(*observed, n_users, n_items, n_levels)
    state = state_of(parameters, priors, n_levels)
    return build_scene(ratings.arrays, priors, moves, state, stream, traits)


def columns(n_users: int, n_items: int) -> Covariates:
    """Return a column of two kinds for users, and one of numbers and one of kinds for items, each of mean 0."""
    kinds, numbers = (np.arange(n) % 2 - (np.arange(n) % 2).mean() for n in (n_users, n_items)), np.arange(n_items)
    of_users, of_items = kinds
    return Covariates(
        users=of_users[:, None], items=np.column_stack([(numbers - numbers.mean()) / numbers.std(), of_items])
    )


def known_traits(priors: Priors, users, items, sizes: tuple[int, int, int], covariates: Covariates) -> Traits:
    """Return the traits of users and items: who rated what, and columns."""
    return traits_of(ratings_of(users, items, np.zeros_like(users), *sizes).arrays, priors, covariates)


def draw_all(priors: Priors, users, items, sizes: tuple[int, int, int], rng, traits: Traits | None = None):
    """Draw parameters from the prior and levels given them; traits that are not given are those of choices."""
    n_users, n_items, n_levels = sizes
    traits = traits or known_traits(priors, users, items, sizes, NO_COVARIATES)
    parameters = draw_parameters(priors, n_users, n_items, rng, n_levels, traits)
    scores = parameters.scores(users, items, base_of(priors, n_levels))
    return parameters, draw_levels(scores, parameters.noise_of(users), parameters.cutpoints, rng)


def batch_z(batches: np.ndarray, truth: np.ndarray, truth_se: np.ndarray | float = 0.0) -> np.ndarray:
    """Return (mean − truth) / standard error per column, the error from batch means.

    A statistic that is constant on both sides has z = 0.
    """
    mean = batches.mean(axis=0)
    variance = batches.var(axis=0, ddof=1) / batches.shape[0] + np.square(truth_se)
    difference = mean - truth
    flat = np.abs(difference) < 1e-9 * (1.0 + np.abs(truth))
    return np.where(flat, 0.0, difference / np.sqrt(np.maximum(variance, 1e-300)))
