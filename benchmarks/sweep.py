"""Time one sweep against one iteration of myFM's ordered probit, on the same ratings in the same run.

    python benchmarks/sweep.py              MovieLens-1M's 200 most rated films (DOUBLEFEATURE_DATA or ../shared/data)

Prints CPU seconds per sweep (one thread, at least 50 features), per myFM iteration (rank 8), their ratio, and the
wall-clock gain of two threads. Blocks of the three are interleaved, so that a noisy machine hits all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numba
import numpy as np

from doublefeature.config import Moves, Priors
from doublefeature.datasets import load_dataset
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.sweep import build_plan, build_scene, sweep_once
from doublefeature.model.state import copy_state, empty_state
from doublefeature.ratings import Ratings

LEAST_FEATURES = 50


def films() -> Ratings:
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    os.environ.setdefault("DOUBLEFEATURE_DATA", str(shared))
    return load_dataset("ml-1m").top_items(200)


def copied(scene: Scene) -> Scene:
    """Return a scene whose sweeps leave the given one as it is."""
    return scene._replace(
        state=copy_state(scene.state),
        scores=scene.scores.copy(),
        like=type(scene.like)(*(x.copy() for x in scene.like)),
    )


def run(scene: Scene, plan, n_sweeps: int, threads: int) -> tuple[Scene, float, float]:
    """Return the scene after so many sweeps, with CPU and wall seconds per sweep."""
    numba.set_num_threads(threads)
    scene = scene._replace(threads=threads)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(n_sweeps):
        state, _ = sweep_once(scene, plan)
        scene = scene._replace(state=state, sweep=scene.sweep + 1)
    return scene, (time.process_time() - cpu) / n_sweeps, (time.perf_counter() - wall) / n_sweeps


def myfm_iteration(ratings: Ratings, rank: int, n_iterations: int) -> float:
    """Return CPU seconds per iteration of myFM's ordered probit, set-up subtracted."""
    import myfm
    import scipy.sparse as sparse

    users, items, levels = ratings.triples()
    n = levels.size
    columns = np.stack([users.astype(np.int64), ratings.n_users + items.astype(np.int64)], axis=1).ravel()
    design = sparse.csr_matrix((np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)))
    groups = np.repeat([0, 1], [ratings.n_users, ratings.n_items])

    def cpu(count: int) -> float:
        start = time.process_time()
        myfm.MyFMOrderedProbit(rank=rank, random_seed=1).fit(
            design, levels.astype(np.int64), n_iter=count, group_shapes=np.bincount(groups).tolist()
        )
        return time.process_time() - start

    return (cpu(2 + n_iterations) - cpu(2)) / n_iterations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of each competitor")
    parser.add_argument("--sweeps", type=int, default=10, help="sweeps per round")
    options = parser.parse_args()
    ratings = films()
    priors, moves = Priors(), Moves()
    start = empty_state(priors, ratings.n_users, ratings.n_items, ratings.n_levels)
    scene = build_scene(ratings.arrays, priors, moves, start, (1, 0))
    plan = build_plan(moves, ratings.n_users)
    while scene.state.active.sum() < LEAST_FEATURES:
        scene, _, _ = run(scene, plan, 5, 1)
    run(scene, plan, 1, 2)
    one, two, peer = [], [], []
    for _ in range(options.rounds):
        _, cpu, wall_one = run(copied(scene), plan, options.sweeps, 1)
        last, _, wall_two = run(copied(scene), plan, options.sweeps, 2)
        one.append((cpu, wall_one))
        two.append(wall_two)
        peer.append(myfm_iteration(ratings, 8, 10))
    sweep = float(np.median([cpu for cpu, _ in one]))
    iteration = float(np.median(peer))
    figures = {
        "ratings": len(ratings),
        "features": [int(scene.state.active.sum()), int(last.state.active.sum())],
        "sweep_cpu_seconds": round(sweep, 4),
        "myfm_iteration_cpu_seconds": round(iteration, 4),
        "sweep_over_myfm": round(sweep / iteration, 3),
        "two_threads_gain": round(float(np.median([w for _, w in one]) / np.median(two)), 2),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
