"""Small models over shards for tests."""

from __future__ import annotations

import numpy as np

from doublefeature.config import Schedule, Sharding
from doublefeature.posterior.sharding import ShardedFolder
from doublefeature.posterior.store import draws_digest
from doublefeature.sharded import ShardedDoubleFeature
from doublefeature.studies.recovery import Design, simulate

SCHEDULE = Schedule(sweeps=24, warmup=8, thin=2, chains=2, threads=1)
RATINGS, _ = simulate(Design(users=40, items=25, tau=0.5), seed=3)[0].split(0.4, seed=1)
TITLES = {item: {"title": f"Film {item}"} for item in range(25)}


def fit(out, shards=3, preset="paper", engine="threads", schedule=SCHEDULE, **sharding) -> ShardedDoubleFeature:
    model = ShardedDoubleFeature(Sharding(shards, **sharding), preset=preset, seed=5, schedule=schedule, engine=engine)
    return model.fit(RATINGS, out=out, items=TITLES, holdout=0.1)


def digests(path) -> list[str]:
    """The draws of every shard, before and after the merge, and the merged offsets."""
    folder = ShardedFolder.open(path)
    found = [
        draws_digest(part(s).posterior())
        for s in range(folder.sharding.shards)
        for part in (folder.shard, folder.merged)
    ]
    consensus = folder.consensus()
    assert consensus is not None
    return [*found, *(np.ascontiguousarray(array).tobytes().hex() for array in consensus)]
