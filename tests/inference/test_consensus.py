"""Merging item offsets: against loops, against normals whose product is known, and with planted mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature.config import Priors, Sharding
from doublefeature.errors import SettingsError
from doublefeature.inference.consensus import merge_offsets
from doublefeature.inference.second_stage import distances, nearest
from tests.posterior import make_draw


def by_hand(stored, rule):
    """The formulas of the module, item by item and draw by draw."""
    n_items = stored[0].shape[-1]
    mean, sd = np.zeros(n_items), np.zeros(n_items)
    for item in range(n_items):
        values = [part[..., item].ravel() for part in stored]
        precisions = [1.0 / v.var(ddof=1) for v in values]
        sd[item] = sum(precisions) ** -0.5
        if rule == "paper":
            mean[item] = sum(v.mean() for v in values) / len(values)
        else:
            mean[item] = sum(p * v.mean() for p, v in zip(precisions, values, strict=True)) / sum(precisions)
    return mean, sd


@pytest.fixture
def stored(rng):
    spreads = rng.uniform(0.1, 2.0, (3, 4))
    return [rng.normal(rng.normal(size=4), spread, (2, 50, 4)) for spread in spreads]


@pytest.mark.parametrize("rule", ["precision", "draws", "paper"])
def test_merge_follows_its_formula(stored, rule):
    found = merge_offsets(stored, Sharding(3, merge=rule), seed=1)
    mean, sd = by_hand(stored, rule)
    assert np.allclose(found.mean, mean)
    assert np.allclose(found.sd, sd)
    assert found.offsets.shape == (2, 50, 4)
    if rule == "draws":
        weights = np.stack([1.0 / part.reshape(-1, 4).var(axis=0, ddof=1) for part in stored])
        one = sum(w * part[1, 7] for w, part in zip(weights, stored, strict=True)) / weights.sum(axis=0)
        assert np.allclose(found.offsets[1, 7], one)
    else:
        error = sd / np.sqrt(100)
        assert (np.abs(found.offsets.mean(axis=(0, 1)) - mean) < 5 * error).all()


def normal_shards(rng, n_shards, full_prior, n_draws=4000, prior_sd=1.0):
    """Draws of one offset from each shard's exact posterior, and mean and sd of the posterior of all data."""
    truth, noise = 0.8, 1.0
    sizes = rng.integers(2, 40, n_shards)
    data = [rng.normal(truth, noise, size) for size in sizes]
    prior = prior_sd**-2 if full_prior else prior_sd**-2 / n_shards
    stored = []
    for part in data:
        precision = part.size / noise**2 + prior
        mean = part.sum() / noise**2 / precision
        stored.append(rng.normal(mean, precision**-0.5, (1, n_draws, 1)))
    total = sum(sizes) / noise**2 + prior_sd**-2
    return stored, sum(part.sum() for part in data) / noise**2 / total, total**-0.5


def test_precision_rule_gives_the_whole_posterior_and_planted_mistakes_do_not(rng):
    """Normal data and a normal prior: the product of shards with the 1/S-th power of the prior is the posterior."""
    right, wrong_prior, unweighted = [], [], []
    for _ in range(60):
        stored, mean, sd = normal_shards(rng, 6, full_prior=False)
        found = merge_offsets(stored, Sharding(6), seed=0)
        right.append((found.mean[0] - mean) / sd)
        assert found.sd[0] == pytest.approx(sd, rel=0.05)
        unweighted.append((merge_offsets(stored, Sharding(6, merge="paper"), seed=0).mean[0] - mean) / sd)
        stored, mean, sd = normal_shards(rng, 6, full_prior=True)
        wrong_prior.append((merge_offsets(stored, Sharding(6), seed=0).mean[0] - mean) / sd)
    assert np.sqrt(np.mean(np.square(right))) < 0.1
    assert np.sqrt(np.mean(np.square(unweighted))) > 0.3
    assert np.mean(wrong_prior) < -0.2


def test_hit_rate_and_distance_by_hand(stored):
    found = merge_offsets(stored, Sharding(3, epsilon=1.5), seed=2)
    for shard, part in enumerate(stored):
        gaps = np.abs(part - found.offsets)
        assert found.hit_rate[shard] == np.mean([(gap < 1.5).all() for gap in gaps.reshape(-1, 4)])
        squares = [(gap / found.shard_sd[shard]) ** 2 for gap in gaps.reshape(-1, 4)]
        assert found.distance[shard] == pytest.approx(np.sqrt(np.mean(squares)))


def test_disagreement_is_one_where_shards_say_the_same_thing(rng):
    n_items, sd = 400, 0.3
    centre = rng.normal(size=n_items)
    means = rng.normal(centre, sd, (5, n_items))
    agree = [mean + rng.normal(0, sd, (1, 300, n_items)) for mean in means]
    assert np.median(merge_offsets(agree, Sharding(5), seed=0).disagreement) == pytest.approx(1.0, abs=0.12)
    apart = [part + rng.normal(0, 5 * sd, n_items) for part in agree]
    assert np.median(merge_offsets(apart, Sharding(5), seed=0).disagreement) > 3


def test_one_shard_says_what_it_said(stored):
    found = merge_offsets(stored[:1], Sharding(1, merge="draws"), seed=0)
    assert np.allclose(found.offsets, stored[0])
    assert found.hit_rate[0] == 1.0
    assert (found.disagreement < 1e-9).all()


def test_distances_and_the_nearest_draws(rng):
    draws = [make_draw(rng, sweep=t) for t in range(8)]
    merged, sd = rng.normal(size=(8, 7)), rng.uniform(0.5, 2.0, 7)
    near = distances(draws, merged, sd)
    slow = [[(((m - d.item_offset) / sd) ** 2).sum() for d in draws] for m in merged]
    assert np.allclose(near, slow)
    kept = nearest(draws, merged, near, 3)
    best = sorted(np.argsort(np.diag(slow))[:3].tolist())
    assert [draw.sweep for draw in kept] == best
    assert all(np.array_equal(draw.item_offset, merged[place]) for draw, place in zip(kept, best, strict=True))


def test_shards_run_with_a_power_of_the_prior():
    priors = Priors(item_offset_sd=0.7, learn=("mass", "item_offset_sd"))
    assert Sharding(4).shard_priors(priors).item_offset_sd == pytest.approx(1.4)
    assert Sharding(4).shard_priors(priors).learn == ("mass",)
    assert Sharding(4).merged_priors(priors).item_offset_sd == 0.7
    assert Sharding(4, merge="paper").shard_priors(priors) == priors
    with pytest.raises(SettingsError, match="item_offsets=True"):
        Sharding(2).shard_priors(Priors(item_offsets=False))
