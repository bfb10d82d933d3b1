"""Shards: users split at random, each part with its chains, all with the whole list of items."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from doublefeature.config import Sharding
from doublefeature.errors import SettingsError
from doublefeature.inference.engines import Watch
from doublefeature.inference.fit import extend, fit_into
from doublefeature.inference.progress import Progress, ProgressCallback
from doublefeature.posterior.creating import ModelParts
from doublefeature.posterior.shard_users import ratings_of, split_users
from doublefeature.posterior.sharding import ShardedFolder
from doublefeature.posterior.store import ModelFolder
from doublefeature.ratings import Ratings

FIRST_STAGE, SECOND_STAGE, MERGE = range(1, 4)
"""Streams of random numbers."""


def shard_seed(seed: int, shard: int, stage: int) -> int:
    """Return a shard's own seed, which depends on nothing but these three."""
    return int(np.random.SeedSequence([seed, stage, shard]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def create_sharded(path: Path, sharding: Sharding, parts: ModelParts) -> ShardedFolder:
    """Make the folder of a model over shards."""
    sharding.shard_priors(parts["priors"])
    ratings = parts["ratings"]
    if not isinstance(ratings, Ratings):
        raise SettingsError("shards need all ratings in one place.")
    groups = split_users(ratings.n_users, sharding.shards, parts["seed"])
    if parts["schedule"].chains * parts["schedule"].draws_per_chain < 2:
        raise SettingsError("merging shards needs two draws or more of each. Give more sweeps or more chains.")
    marks = tuple(ratings_of(ratings, users).fingerprint for users in groups)
    return ShardedFolder.create(path, sharding=sharding, fingerprints=marks, **parts)


def begin_shard(folder: ShardedFolder, shard: int) -> None:
    """Make the folder of a shard unless it is there."""
    if folder.is_begun(shard):
        return
    whole = folder.whole
    users = split_users(whole.ratings.n_users, folder.sharding.shards, whole.seed)[shard]
    ModelFolder.create(
        folder.shard_path(shard),
        ratings=ratings_of(whole.ratings, users),
        priors=folder.sharding.shard_priors(whole.priors),
        schedule=whole.schedule,
        moves=whole.moves,
        seed=shard_seed(whole.seed, shard, FIRST_STAGE),
        preset=whole.preset,
        items=whole.items,
        heldout=None if whole.heldout is None else ratings_of(whole.heldout, users),
    )


def run_shard(path: str, shard: int, threads: int, watch: Watch) -> None:
    """Run a shard's chains, or go on with them: the first stage, as a task for an engine."""
    folder = ShardedFolder.open(path)
    begin_shard(folder, shard)
    part = folder.shard(shard)
    if part.schedule.n_sweeps < folder.whole.schedule.n_sweeps:
        extend(part, folder.whole.schedule.n_sweeps)
    told = watch.progress and _numbered(watch.progress, shard * part.schedule.chains)
    fit_into(part, progress=told, stop=watch.stop, threads=threads)


def _numbered(progress: ProgressCallback, first: int) -> ProgressCallback:
    """Return a callback that numbers a shard's chains after those of the shards before it."""

    def tell(news: Progress) -> None:
        progress(news._replace(chain=first + news.chain))

    return tell
