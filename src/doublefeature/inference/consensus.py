r"""Consensus: item offsets of shards become one.

Shard s, run by itself, has draws of ρ with mean $\mu_s$ and variance $\sigma_s^2$ for each item. Where its prior was
the 1/S-th power of the model's, the product of the shards' posteriors is the posterior of a model whose users share ρ
and nothing else. Taken as normal,

    precision   ρ̃ ~ N(μ, 1/Λ),   Λ = Σ 1/σ_s²,   μ = Σ (μ_s/σ_s²) / Λ
    draws       ρ̃ of draw t = Σ ρ_s of draw t / σ_s² / Λ   (Scott et al.)
    paper       ρ̃ ~ N(μ, 1/Λ) with the plain mean μ = Σ μ_s / S, as the authors ran it: each shard had the whole prior,
                which so counts S times, and the prior is not counted once more

Items are taken one by one: shards have far too few draws for covariances of many items.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Sharding
from doublefeature.errors import StoreError
from doublefeature.inference.shards import MERGE
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.shard_manifest import Consensus
from doublefeature.posterior.sharding import ShardedFolder

FloatArray = NDArray[np.float64]


def merge_shards(folder: ShardedFolder) -> Consensus:
    """Merge the item offsets of all shards, which must have made all their draws."""
    stored = [offsets_of(folder.shard(shard).posterior()) for shard in range(folder.sharding.shards)]
    return merge_offsets(stored, folder.sharding, folder.whole.seed)


def offsets_of(posterior: Posterior) -> FloatArray:
    """Return the item offsets of all draws, (chains, draws, items)."""
    chains = [[draw.item_offset for draw in chain] for chain in posterior.chains]
    if len({len(chain) for chain in chains}) != 1:
        raise StoreError("the chains of a shard have different numbers of draws: it cannot be merged.")
    return np.array(chains)


def merge_offsets(stored: Sequence[FloatArray], sharding: Sharding, seed: int) -> Consensus:
    """Merge the offsets of shards, each (chains, draws, items), by the rule of `sharding`."""
    means = np.stack([part.mean(axis=(0, 1)) for part in stored])
    flat = [part.reshape(-1, part.shape[-1]) for part in stored]
    sds = np.stack([np.maximum(part.std(axis=0, ddof=1), 1e-12) for part in flat])
    weights = sds**-2
    total = weights.sum(axis=0)
    mean = means.mean(axis=0) if sharding.merge == "paper" else (weights * means).sum(axis=0) / total
    sd = total**-0.5
    if sharding.merge == "draws":
        offsets = _average(stored, weights / total)
    else:
        offsets = mean + sd * np.random.default_rng([seed, MERGE]).standard_normal(stored[0].shape)
    gaps = [part - offsets for part in stored]
    return Consensus(
        mean=mean,
        sd=sd,
        offsets=offsets,
        shard_mean=means,
        shard_sd=sds,
        hit_rate=np.array([(np.abs(gap).max(axis=-1) < sharding.epsilon).mean() for gap in gaps]),
        distance=np.array([np.sqrt(((gap / own) ** 2).mean()) for gap, own in zip(gaps, sds, strict=True)]),
    )


def _average(stored: Sequence[FloatArray], shares: FloatArray) -> FloatArray:
    """Return the weighted average of shards, draw by draw."""
    total = np.zeros_like(stored[0])
    for part, share in zip(stored, shares, strict=True):
        total += share * part
    return total
