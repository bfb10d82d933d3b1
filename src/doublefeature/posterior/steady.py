"""The features to show to people: those that draws really have, and that recur."""

from __future__ import annotations

import numpy as np

from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.features import Allocation, FeatureSummary, estimate, summarise
from doublefeature.ratings import Ratings


def steady_features(posterior: Posterior, ratings: Ratings | None = None) -> tuple[Allocation, list[FeatureSummary]]:
    """Return the estimate whose features recur most, weighed by their size and effect, with its summaries.

    Where chains sit in different modes, the allocation nearest to all of them on average is made of overlaps of
    different features, which no draw has. The estimate from a single chain is then the better picture. Candidates are
    the estimate from all draws and that of each chain; each is judged over all draws by
    Σ_k recurrence_k · users_k · items_k · |effect_k|. Features that recur in no draw at all are left out.
    """
    chains = posterior.chains
    parts = [posterior, *(Posterior(posterior.base, draws) for draws in chains)] if len(chains) > 1 else [posterior]
    found = []
    for part in parts:
        allocation = estimate(part)
        found.append((allocation, summarise(posterior, allocation, ratings)))
    allocation, summaries = max(found, key=lambda pair: sum(map(_weight, pair[1])))
    kept = [k for k, feature in enumerate(summaries) if feature.recurrence > 0.0]
    return _only(allocation, np.array(kept, np.int64)), [summaries[k] for k in kept]


def _weight(feature: FeatureSummary) -> float:
    return feature.recurrence * feature.users.size * feature.items.size * abs(feature.effect)


def _only(allocation: Allocation, kept: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Allocation:
    return Allocation(
        allocation.user_members[:, kept],
        allocation.item_members[:, kept],
        allocation.effect[kept],
        allocation.expected_distance,
        allocation.method,
    )
