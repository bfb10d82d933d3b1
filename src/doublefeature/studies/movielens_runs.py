r"""The runs behind the MovieLens study: each is a fit and what is kept of it, as arrays.

The standard error of an effect θ_k is its posterior standard deviation given memberships and the noise scale, item
offsets integrated out: with x_ui the indicators of the features that user and item share and C_i = Σ_u x_ui,

    precision of θ = Σ x x′/τ² + I/σ_θ² − Σ_i C_i C_i′/(τ⁴ q_i),   q_i = n_i/τ² + 1/σ_ρ².
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Hashable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Schedule, Sharding
from doublefeature.evaluation.splits import Split
from doublefeature.inference.engines import SerialEngine
from doublefeature.inference.progress import ProgressCallback
from doublefeature.model.state import EFFECT_SD, ITEM_SD, NOISE, members
from doublefeature.posterior.arrays import Arrays
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.predict import Codes, predict_levels, score_table
from doublefeature.posterior.prediction import level_values
from doublefeature.posterior.ranking import mean_ratings
from doublefeature.posterior.sharding import is_sharded
from doublefeature.ratings import Ratings
from doublefeature.recommender import DoubleFeature
from doublefeature.sharded import ShardedDoubleFeature

FloatArray = NDArray[np.float64]

SHOWN_USERS = 3
_TAILS = (0.025, 0.975)


def shown_users(split: Split) -> Codes:
    """Return the users whose predictions are drawn: three at random among those with a held-out rating."""
    users = np.unique(split.test.triples()[0]).astype(np.int64)
    count = min(SHOWN_USERS, users.size)
    return np.sort(np.random.default_rng([split.seed, 6]).choice(users, count, replace=False))


def run_consensus(
    split: Split,
    sharding: Sharding,
    schedule: Schedule,
    folder: Path,
    progress: ProgressCallback | None = None,
) -> Arrays:
    """Fit preset `paper` over shards, or go on with it in its folder, and return what the study needs of it."""
    engine = SerialEngine(progress)
    if is_sharded(folder):
        model = ShardedDoubleFeature.resume(folder, engine=engine, threads=schedule.threads)
    else:
        model = ShardedDoubleFeature(sharding, preset="paper", schedule=schedule, seed=split.seed, engine=engine)
        model.fit(split.train, out=folder)
    test = _codes(split.test)
    shards = [_shard_arrays(model, shard, test) for shard in range(sharding.shards)]
    of_test = model.shard_of_[test[0]]
    before, scores = np.empty((test[0].size, split.test.n_levels)), np.empty(test[0].size)
    for shard, part in enumerate(shards):
        before[of_test == shard], scores[of_test == shard] = part["before"], part["scores"]
    shown = [
        _shown(model.shard_model(int(model.shard_of_[u])), split.train.users[u]) for u in shown_users(split).tolist()
    ]
    table = model.mean_ratings()
    first = [engine.seconds.get(f"shard {s}", np.nan) for s in range(sharding.shards)]
    second = [engine.seconds.get(f"second stage of shard {s}", np.nan) for s in range(sharding.shards)]
    return {
        "before": before,
        "proba": model.predict_codes(*test[:2]),
        "shard": of_test,
        "scores": scores,
        "features": np.stack([part["features"] for part in shards]),
        "features_before": np.stack([part["features_before"] for part in shards]),
        "effect_errors": np.concatenate([part["effect_errors"] for part in shards]),
        "offset_mean": model.consensus_.mean,
        "offset_sd": model.consensus_.sd,
        "disagreement": model.consensus_.disagreement,
        "hit_rate": model.consensus_.hit_rate,
        "rating_mean": table.mean(axis=0),
        "rating_tails": np.quantile(table, _TAILS, axis=0),
        "shown": np.stack(shown),
        "seconds": np.array([first, second]),
    }


def _shard_arrays(model: ShardedDoubleFeature, shard: int, test: tuple[Codes, Codes, Codes]) -> Arrays:
    """Return what one shard says of its held-out ratings, before and after the merge, and its features."""
    rows = np.flatnonzero(model.shard_of_[test[0]] == shard)
    before, after = model.shard_before(shard), model.shard_model(shard)
    own = np.array([after.ratings_.user_code(model.ratings_.users[u]) for u in test[0][rows].tolist()], np.int64)
    last = [chain[-1] for chain in before.posterior_.chains]
    return {
        "before": predict_levels(before.posterior_, own, test[1][rows]),
        "scores": score_table(after.posterior_, own, test[1][rows]).mean(axis=0),
        "features": _spread(after.posterior_),
        "features_before": _spread(before.posterior_),
        "effect_errors": np.concatenate([effect_errors(draw, before.ratings_) for draw in last]),
    }


def run_exact(
    split: Split, preset: str, schedule: Schedule, folder: Path, progress: ProgressCallback | None = None
) -> Arrays:
    """Fit all users at once, or go on with it in its folder, and return what the study needs of it."""
    begin = time.process_time()
    if (folder / "manifest.json").is_file():
        model = DoubleFeature.resume(folder, threads=schedule.threads, progress=progress)
    else:
        model = DoubleFeature(preset=preset, schedule=schedule, seed=split.seed)
        model.fit(split.train, out=folder, progress=progress)
    seconds = time.process_time() - begin
    test = _codes(split.test)
    posterior = model.posterior_
    offsets = np.stack([draw.item_offset for draw in posterior])
    table = mean_ratings(posterior, level_values(split.train.levels))
    return {
        "proba": predict_levels(posterior, *test[:2]),
        "scores": score_table(posterior, *test[:2]).mean(axis=0),
        "features": _spread(posterior)[None],
        "offset_mean": offsets.mean(axis=0),
        "offset_sd": offsets.std(axis=0, ddof=1),
        "rating_mean": table.mean(axis=0),
        "rating_tails": np.quantile(table, _TAILS, axis=0),
        "shown": np.stack([_shown(model, split.train.users[user]) for user in shown_users(split).tolist()]),
        "seconds": np.array([seconds]),
    }


def drop_folder(folder: Path) -> None:
    """Remove the folder of a finished run."""
    shutil.rmtree(folder, ignore_errors=True)


def effect_errors(draw: Draw, ratings: Ratings) -> FloatArray:
    """Return the standard error of every effect of a draw that two users or more share (not graded)."""
    inside = members(draw.user_words, np.arange(draw.n_features)).astype(np.float64)
    of_items = members(draw.item_words, np.arange(draw.n_features)).astype(np.float64)
    noise, prior = draw.hyper[NOISE] ** -2, draw.hyper[ITEM_SD] ** -2
    precision = np.eye(draw.n_features) * draw.hyper[EFFECT_SD] ** -2
    arrays = ratings.arrays
    for item in range(ratings.n_items):
        own = np.flatnonzero(of_items[item])
        raters = arrays.user_codes[arrays.item_ptr[item] : arrays.item_ptr[item + 1]]
        if not own.size or not raters.size:
            continue
        held = inside[raters][:, own]
        total = noise * held.sum(axis=0)
        block = noise * held.T @ held - np.outer(total, total) / (noise * raters.size + prior)
        precision[np.ix_(own, own)] += block
    errors = np.sqrt(np.diag(np.linalg.inv(precision))) if draw.n_features else np.zeros(0)
    found: FloatArray = errors[inside.sum(axis=0) >= 2]
    return found


def _codes(part: Ratings) -> tuple[Codes, Codes, Codes]:
    users, items, levels = (column.astype(np.int64) for column in part.triples())
    return users, items, levels


def _spread(posterior: Posterior) -> FloatArray:
    """Return mean, least and most features over draws."""
    sizes = posterior.n_features
    return np.array([sizes.mean(), sizes.min(), sizes.max()], np.float64)


def _shown(model: DoubleFeature, user: Hashable) -> FloatArray:
    """Return mean and 95 % interval of a user's score for every item, (items, 3)."""
    code = model.ratings_.user_code(user)
    items = np.arange(model.ratings_.n_items)
    table = score_table(model.posterior_, np.full(items.size, code), items)
    return np.column_stack([table.mean(axis=0), *np.quantile(table, _TAILS, axis=0)])
