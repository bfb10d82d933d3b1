"""Merged item offsets against those of the whole posterior, on data small enough for both.

`python -m tests.inference.reference` prints the table of docs/consensus.md.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import NamedTuple

import numpy as np

from doublefeature.config import Priors, Schedule, Sharding
from doublefeature.inference.chain import sample
from doublefeature.inference.consensus import merge_offsets, offsets_of
from doublefeature.inference.shards import FIRST_STAGE, shard_seed
from doublefeature.model.generative import base_of, draw_levels, draw_parameters
from doublefeature.posterior.convergence import mcse_mean
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.shard_users import ratings_of as part_of
from doublefeature.posterior.shard_users import split_users
from doublefeature.ratings import Ratings
from tests.correctness.tiny import pairs, ratings_of

PRIORS = Priors(mass=1.0, item_rate=0.3, effect_sd=1.0, item_offset_sd=1.0)
SIZES = (60, 8, 5)
N_RATINGS = 360


class Whole(NamedTuple):
    """A data set drawn from the model, the offsets it was drawn with, and its posterior."""

    ratings: Ratings
    truth: np.ndarray
    posterior: Posterior

    @property
    def offsets(self) -> np.ndarray:
        """(chains, draws, items)"""
        return offsets_of(self.posterior)

    def bias(self, merged: np.ndarray) -> np.ndarray:
        """Distance of the merged means from the posterior's, in its standard deviations."""
        return (merged.mean(axis=(0, 1)) - self.offsets.mean(axis=(0, 1))) / self.offsets.std(axis=(0, 1))

    def covered(self, offsets: np.ndarray, mass: float = 0.9) -> np.ndarray:
        """Whether the central interval holds the offsets the data were drawn with."""
        tail = (1.0 - mass) / 2.0
        lower, upper = np.quantile(offsets, [tail, 1.0 - tail], axis=(0, 1))
        return (lower <= self.truth) & (self.truth <= upper)


@cache
def whole(seed: int, schedule: Schedule) -> Whole:
    """Draw a data set and sample its posterior."""
    rng = np.random.default_rng(seed)
    users, items = pairs(SIZES[0], SIZES[1], N_RATINGS, seed)
    parameters = draw_parameters(PRIORS, SIZES[0], SIZES[1], rng, SIZES[2])
    scores = parameters.scores(users, items, base_of(PRIORS, SIZES[2]))
    levels = draw_levels(scores, parameters.noise_of(users), parameters.cutpoints, rng)
    ratings = ratings_of(users, items, levels, *SIZES)
    return Whole(ratings, parameters.item_offset, sample(ratings, PRIORS, schedule, seed=seed))


def shard_offsets(ratings: Ratings, sharding: Sharding, schedule: Schedule, seed: int) -> list[np.ndarray]:
    """Run every shard in memory and return its item offsets, as the first stage of a fit does."""
    stored = []
    for shard, users in enumerate(split_users(ratings.n_users, sharding.shards, seed)):
        own = shard_seed(seed, shard, FIRST_STAGE)
        stored.append(offsets_of(sample(part_of(ratings, users), sharding.shard_priors(PRIORS), schedule, seed=own)))
    return stored


def mean_z(one: np.ndarray, other: np.ndarray) -> float:
    """Return the difference of two means of (chains, draws), in Monte Carlo standard errors."""
    return float((one.mean() - other.mean()) / np.hypot(mcse_mean(one), mcse_mean(other)))


def main(n_seeds: int = 3) -> None:
    schedule = Schedule(sweeps=300, warmup=100, thin=2, chains=2, threads=1)
    print(
        "| S | merge | RMS bias, exact sds | sd / exact sd | 90 % coverage, merged | exact |\n|---|---|---|---|---|---|"
    )
    for shards in (1, 2, 5):
        rows: dict[str, list[list[float]]] = {"precision": [], "draws": [], "paper": []}
        for seed in range(n_seeds):
            data = whole(seed, schedule)
            stored = shard_offsets(data.ratings, Sharding(shards), schedule, seed + 1000)
            full = shard_offsets(data.ratings, Sharding(shards, merge="paper"), schedule, seed + 1000)
            for rule, found in rows.items():
                merged = merge_offsets(full if rule == "paper" else stored, Sharding(shards, merge=rule), seed).offsets
                spread = merged.std(axis=(0, 1)) / data.offsets.std(axis=(0, 1))
                shares = data.covered(merged).mean(), data.covered(data.offsets).mean()
                found.append([np.square(data.bias(merged)).mean(), spread.mean(), *shares])
        for rule, found in rows.items():
            bias, spread, merged, exact = np.mean(found, axis=0)
            print(f"| {shards} | {rule} | {bias**0.5:.2f} | {spread:.2f} | {merged:.0%} | {exact:.0%} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
