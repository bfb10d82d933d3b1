"""Merged offsets against the whole posterior: the same for one shard, near for few."""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature.config import Schedule, Sharding
from doublefeature.inference.consensus import merge_offsets
from doublefeature.sharded import ShardedDoubleFeature
from tests.inference.reference import PRIORS, mean_z, shard_offsets, whole

SCHEDULE = Schedule(sweeps=300, warmup=100, thin=2, chains=2, threads=1)
SEED = 3
MOST = 4.5


@pytest.fixture(scope="module")
def one_shard(tmp_path_factory):
    model = ShardedDoubleFeature(Sharding(1, merge="draws"), priors=PRIORS, schedule=SCHEDULE, seed=SEED + 1000)
    return model.fit(whole(SEED, SCHEDULE).ratings, out=tmp_path_factory.mktemp("one") / "model")


def by_draw(posterior, value):
    return np.array([[value(draw) for draw in chain] for chain in posterior.chains], float)


def offset_z(merged):
    """The largest z of means and squares of all offsets."""
    exact = whole(SEED, SCHEDULE).offsets
    centre = exact.mean(axis=(0, 1))
    pairs = [(merged, exact), ((merged - centre) ** 2, (exact - centre) ** 2)]
    return max(abs(mean_z(a[..., item], b[..., item])) for a, b in pairs for item in range(exact.shape[-1]))


def test_one_shard_is_the_whole_posterior(one_shard):
    assert offset_z(one_shard.consensus_.offsets) < MOST


def test_the_second_stage_keeps_the_whole_posterior(one_shard):
    """With ρ̃ from the posterior, sweeps given ρ̃ leave features and noise where they belong."""
    refreshed, exact = one_shard.shard_model(0).posterior_, whole(SEED, SCHEDULE).posterior
    for value in (lambda d: d.hyper[0], lambda d: d.n_features, lambda d: d.log_likelihood):
        assert abs(mean_z(by_draw(refreshed, value), by_draw(exact, value))) < MOST


def test_a_shifted_merge_is_seen(one_shard):
    spread = whole(SEED, SCHEDULE).offsets.std(axis=(0, 1))
    assert offset_z(one_shard.consensus_.offsets + spread) > MOST


@pytest.mark.parametrize("shards", [2, 5])
def test_few_shards_are_near(shards):
    data = whole(SEED, SCHEDULE)
    sharding = Sharding(shards)
    merged = merge_offsets(shard_offsets(data.ratings, sharding, SCHEDULE, SEED + 1000), sharding, SEED).offsets
    assert np.sqrt(np.mean(np.square(data.bias(merged)))) < 1.5
    assert data.covered(merged, 0.99).mean() >= 0.6
