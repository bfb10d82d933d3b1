"""Merged item offsets against those of the whole posterior, on data small enough for both.

`python -m tests.inference.reference` prints the table of docs/consensus.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from doublefeature.config import Priors, Schedule, Sharding
from doublefeature.inference.chain import sample
from doublefeature.inference.consensus import offsets_of
from doublefeature.model.generative import base_of, draw_levels, draw_parameters
from doublefeature.posterior.convergence import mcse_mean
from doublefeature.posterior.draws import Posterior
from doublefeature.sharded import ShardedDoubleFeature
from tests.correctness.tiny import pairs, ratings_of

PRIORS = Priors(mass=1.0, item_rate=0.3, effect_sd=1.0, item_offset_sd=1.0)
SIZES = (60, 8, 5)
N_RATINGS = 360


class Compared(NamedTuple):
    """One data set: the whole posterior's offsets and the merged ones, per item."""

    truth: np.ndarray
    exact: Posterior
    merged: np.ndarray  # (chains, draws, items)
    refreshed: list[Posterior]  # one per shard

    @property
    def bias(self) -> np.ndarray:
        """Distance of the merged mean from the whole posterior's, in its standard deviations."""
        exact = offsets_of(self.exact)
        return (self.merged.mean(axis=(0, 1)) - exact.mean(axis=(0, 1))) / exact.std(axis=(0, 1))

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of the merged offsets over the whole posterior's."""
        return self.merged.std(axis=(0, 1)) / offsets_of(self.exact).std(axis=(0, 1))

    def covered(self, offsets: np.ndarray, mass: float = 0.9) -> np.ndarray:
        """Whether the central interval holds the offsets the data were drawn with."""
        tail = (1.0 - mass) / 2.0
        lower, upper = np.quantile(offsets, [tail, 1.0 - tail], axis=(0, 1))
        return (lower <= self.truth) & (self.truth <= upper)


def compare(seed: int, shards: int, schedule: Schedule, out: Path, **sharding) -> Compared:
    """Draw a data set from the model, sample its posterior as a whole and over shards."""
    rng = np.random.default_rng(seed)
    users, items = pairs(SIZES[0], SIZES[1], N_RATINGS, seed)
    parameters = draw_parameters(PRIORS, SIZES[0], SIZES[1], rng, SIZES[2])
    scores = parameters.scores(users, items, base_of(PRIORS, SIZES[2]))
    levels = draw_levels(scores, parameters.noise_of(users), parameters.cutpoints, rng)
    ratings = ratings_of(users, items, levels, *SIZES)
    exact = sample(ratings, PRIORS, schedule, seed=seed)
    model = ShardedDoubleFeature(Sharding(shards, **sharding), priors=PRIORS, schedule=schedule, seed=seed + 1000)
    model.fit(ratings, out=out)
    parts = [model.shard_model(shard).posterior_ for shard in range(shards)]
    return Compared(parameters.item_offset, exact, model.consensus_.offsets, parts)


def mean_z(one: np.ndarray, other: np.ndarray) -> float:
    """Return the difference of two means of (chains, draws), in Monte Carlo standard errors."""
    return float((one.mean() - other.mean()) / np.hypot(mcse_mean(one), mcse_mean(other)))


def main(n_seeds: int = 10) -> None:
    schedule = Schedule(sweeps=900, warmup=300, thin=3, chains=4, threads=1)
    print(
        "| S | merge | RMS bias, exact sds | sd / exact sd | 90 % coverage, merged | exact |\n|---|---|---|---|---|---|"
    )
    for shards in (1, 2, 5):
        for rule in ("precision", "draws", "paper"):
            with tempfile.TemporaryDirectory() as folder:
                found = [
                    compare(seed, shards, schedule, Path(folder) / str(seed), merge=rule, refresh_sweeps=1)
                    for seed in range(n_seeds)
                ]
            bias = np.sqrt(np.mean([np.square(one.bias) for one in found]))
            spread = np.mean([one.spread for one in found])
            covered = np.mean([one.covered(one.merged) for one in found])
            exact = np.mean([one.covered(offsets_of(one.exact)) for one in found])
            print(f"| {shards} | {rule} | {bias:.2f} | {spread:.2f} | {covered:.0%} | {exact:.0%} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
