"""The card of a model over shards, and where its shards disagree."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np

from doublefeature.posterior.card import card_page, data_lines, setting_lines
from doublefeature.posterior.shard_manifest import Consensus
from doublefeature.posterior.sharding import ShardedFolder
from doublefeature.ratings import Ratings

SHOWN = 10
"""Items listed as those that shards disagree about most."""


class Disagreement(NamedTuple):
    """What shards say of one item's offset."""

    item: Hashable
    merged: float
    lowest: float  # smallest and largest mean of a shard
    highest: float
    ratio: float  # spread of the shards' means over what their own spreads allow; 1 when they agree


def disagreements(consensus: Consensus, ratings: Ratings, n: int | None = None) -> list[Disagreement]:
    """Return the items that shards disagree about most, at most n of them."""
    ratios = consensus.disagreement
    order = np.argsort(-ratios, kind="stable")[:n]
    low, high = consensus.shard_mean.min(axis=0), consensus.shard_mean.max(axis=0)
    return [
        Disagreement(ratings.items[i], float(consensus.mean[i]), float(low[i]), float(high[i]), float(ratios[i]))
        for i in order.tolist()
    ]


def consensus_lines(consensus: Consensus, epsilon: float) -> dict[str, str]:
    """Return how well shards agree, in words."""
    hits = f"{consensus.hit_rate.mean():.2%} of the stored draws"
    lines = {
        "draws within ε of the merged offsets": f"{hits} (ε = {epsilon:g} for every item, the paper's rule)",
        "distance of stored from merged offsets": f"{consensus.distance.mean():.2f} of the shards' standard deviations",
    }
    if consensus.shard_mean.shape[0] > 1:
        ratios = consensus.disagreement
        lines["disagreement of shards"] = (
            f"median {np.median(ratios):.2f}, largest {ratios.max():.2f} (1: no more than chance)"
        )
    return lines


def sharded_card(folder: ShardedFolder, quality: Mapping[str, str] | None = None) -> str:
    """Return the card of a model over shards in Markdown."""
    whole, sharding = folder.whole, folder.sharding
    features = [draw.n_features for s in range(sharding.shards) for draw in folder.merged(s).posterior()]
    low, middle, high = np.quantile(features, [0.05, 0.5, 0.95])
    plan = ", ".join(f"{key} {value}" for key, value in sharding.to_dict().items())
    facts = {
        "What it was fitted on": data_lines(whole),
        "How it was fitted": {**setting_lines(whole), "sharding": plan},
        "What came out": {
            "draws": f"{len(features)} of {sharding.shards} shards",
            "features per shard (K)": f"median {middle:g}, 90 % between {low:g} and {high:g}",
            **(quality or {}),
        },
    }
    consensus = folder.consensus()
    if consensus is not None:
        facts["How far shards agree"] = consensus_lines(consensus, sharding.epsilon)
        if sharding.shards > 1:
            facts["Items that shards disagree about most"] = {
                str(row.item): f"merged {row.merged:+.2f}, shards {row.lowest:+.2f} to {row.highest:+.2f}, "
                f"{row.ratio:.1f} times what chance allows"
                for row in disagreements(consensus, whole.ratings, SHOWN)
            }
    return card_page(facts)
