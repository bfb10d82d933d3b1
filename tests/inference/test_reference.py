"""Merged offsets against the whole posterior: the same for one shard, near for few."""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature.config import Schedule
from doublefeature.inference.consensus import offsets_of
from tests.inference.reference import compare, mean_z

SCHEDULE = Schedule(sweeps=420, warmup=120, thin=3, chains=2, threads=1)


@pytest.fixture(scope="module")
def one_shard(tmp_path_factory):
    return compare(3, 1, SCHEDULE, tmp_path_factory.mktemp("one") / "model", merge="draws")


def by_draw(posterior, value):
    return np.array([[value(draw) for draw in chain] for chain in posterior.chains], float)


def test_one_shard_is_the_whole_posterior(one_shard):
    exact = offsets_of(one_shard.exact)
    z = [mean_z(one_shard.merged[..., item], exact[..., item]) for item in range(exact.shape[-1])]
    assert np.abs(z).max() < 4.5
    assert one_shard.spread == pytest.approx(1.0, abs=0.35)


def test_the_second_stage_keeps_the_whole_posterior(one_shard):
    """With ρ̃ from the posterior, sweeps given ρ̃ leave features and noise where they belong."""
    for value in (lambda d: d.hyper[0], lambda d: d.n_features, lambda d: d.log_likelihood):
        z = mean_z(by_draw(one_shard.refreshed[0], value), by_draw(one_shard.exact, value))
        assert abs(z) < 4.5


def test_a_shifted_merge_is_seen(one_shard):
    """The test of one shard would notice offsets that are off by half a posterior standard deviation."""
    exact = offsets_of(one_shard.exact)
    shifted = one_shard.merged + 0.5 * exact.std(axis=(0, 1))
    z = [mean_z(shifted[..., item], exact[..., item]) for item in range(exact.shape[-1])]
    assert np.abs(z).max() > 4.5


@pytest.mark.parametrize("shards", [2, 5])
def test_few_shards_are_near(shards, tmp_path):
    found = compare(3, shards, SCHEDULE, tmp_path / "model", refresh_sweeps=1)
    assert np.sqrt(np.mean(np.square(found.bias))) < 1.5
    assert found.covered(found.merged, 0.99).mean() >= 0.6
