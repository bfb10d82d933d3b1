"""Fit over shards: the shards' chains, the merge, the second stage, each only when what it needs is there."""

from __future__ import annotations

import os
import threading

from doublefeature.inference.chain import threads_may_nest
from doublefeature.inference.consensus import merge_shards
from doublefeature.inference.engines import TRIES, Engine, Task, engine_of, run_tasks
from doublefeature.inference.progress import ProgressCallback
from doublefeature.inference.second_stage import finish_shard
from doublefeature.inference.shards import run_shard
from doublefeature.posterior.shard_card import sharded_card
from doublefeature.posterior.sharding import ShardedFolder


def fit_shards(
    folder: ShardedFolder,
    *,
    engine: str | Engine = "threads",
    workers: int | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
    tries: int = TRIES,
) -> bool:
    """Run or go on with a model over shards; return whether it can answer now.

    The draws depend neither on the engine, nor on the order in which shards end, nor on breaks.

    Parameters
    ----------
    engine
        A name (see `engine_of`), or an object with an engine's four methods, which the caller closes.
    workers
        Most workers of an engine made here; None: as many as threads, or every Dask worker there is.
    threads
        Threads in all, in place of the schedule's; with an engine of the caller's, threads of each task.
    stop
        When set, every chain finishes its sweep, everything is written, and False is returned.
    tries
        How often a shard that fails is tried in all.
    """
    total = threads or folder.whole.schedule.threads or os.cpu_count() or 1
    if not isinstance(engine, str):
        with folder.writing():
            return _run(folder, engine, total, stop, tries)
    count = min(workers or total, folder.sharding.shards)
    each = max(total // count, 1) if threads_may_nest() else max(min(total // count, folder.whole.schedule.chains), 1)
    made = engine_of(engine, count, progress)
    try:
        with folder.writing():
            return _run(folder, made, each, stop, tries)
    finally:
        made.close()


def _run(folder: ShardedFolder, engine: Engine, threads: int, stop: threading.Event | None, tries: int) -> bool:
    path = str(folder.path)
    shards = range(folder.sharding.shards)
    if folder.finished:
        return True
    if folder.consensus() is None:
        first = [Task(f"shard {shard}", run_shard, (path, shard, threads)) for shard in shards]
        if not run_tasks(engine, first, tries=tries, stop=stop):
            return False
        folder.write_consensus(merge_shards(folder))
    left = [shard for shard in shards if not folder.is_merged(shard)]
    second = [Task(f"second stage of shard {shard}", finish_shard, (path, shard, threads)) for shard in left]
    if not run_tasks(engine, second, tries=tries, stop=stop):
        return False
    folder.whole.write_card(sharded_card(folder))
    return True
