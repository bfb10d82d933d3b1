"""Time per sweep and memory against the number of ratings, with the number of features held fixed.

    python benchmarks/growth.py                     0.1, 1 and 10 million ratings, each in a process of its own

Users grow, items and ratings per user do not. Features are planted at the start and none is born or dies, so that
every sweep does the same work per rating. Prints JSON per size, then the ratio of the times per rating.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numba
import numpy as np

from doublefeature.config import Moves, Priors
from doublefeature.kernels.sweep import build_plan, build_scene, sweep_once
from doublefeature.model.state import State, empty_state, state_from_parts
from doublefeature.ratings import Ratings

N_ITEMS, PER_USER, N_LEVELS, N_FEATURES = 1_000, 100, 5, 30
SHARE = 0.15
"""Share of users, and of items, that belong to a feature."""
USERS = (1_000, 10_000, 100_000)
BLOCK = 1_000
RATIO_BAR = 1.5
BYTES_PER_RATING, BASE_MB = 40, 300


def plant(n_users: int) -> State:
    """Return a state with features at random."""
    rng = np.random.default_rng(1)
    start = empty_state(Priors(), n_users, N_ITEMS, N_LEVELS)
    start.item_offset[:] = 0.5 * rng.standard_normal(N_ITEMS)
    return state_from_parts(
        start,
        rng.random((n_users, N_FEATURES), np.float32) < SHARE,
        rng.random((N_ITEMS, N_FEATURES), np.float32) < SHARE,
        rng.standard_normal(N_FEATURES),
    )


def block_scores(truth: State, first: int, items: np.ndarray) -> np.ndarray:
    """Return the scores of a block of users, one row of rated items each."""
    shared = truth.user_words[first : first + items.shape[0], :1] & truth.item_words[items, 0]
    scores = N_LEVELS / 2 + truth.item_offset[items]
    for k in range(N_FEATURES):
        scores += truth.effect[k] * ((shared >> np.uint64(k)) & np.uint64(1))
    return scores


def simulate(truth: State) -> Ratings:
    """Draw the ratings of a planted state block by block, in the types `Ratings` keeps."""
    rng = np.random.default_rng(2)
    n_users = truth.user_offset.size
    users = np.repeat(np.arange(n_users, dtype=np.uint32), PER_USER)
    items = np.empty(users.size, np.uint32)
    levels = np.empty(users.size, np.uint8)
    for first in range(0, n_users, BLOCK):
        keys = rng.random((min(BLOCK, n_users - first), N_ITEMS), np.float32)
        chosen = np.argpartition(keys, PER_USER, axis=1)[:, :PER_USER]
        scores = block_scores(truth, first, chosen)
        latent = scores + 0.5 * rng.standard_normal(scores.shape)
        part = slice(first * PER_USER, first * PER_USER + chosen.size)
        items[part] = chosen.ravel()
        levels[part] = np.clip(np.ceil(latent), 1, N_LEVELS).ravel() - 1
    return Ratings.from_codes(
        users, items, levels, users=range(n_users), items=range(N_ITEMS), levels=range(1, N_LEVELS + 1)
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(n_users: int, n_sweeps: int) -> dict[str, float]:
    """Return the figures of one size."""
    numba.set_num_threads(1)
    start = plant(n_users)
    ratings = simulate(start)
    peaks = [peak_mb()]
    moves = Moves()
    scene = build_scene(ratings.arrays, Priors(), moves, start, (1, 0))
    peaks.append(peak_mb())
    plan = build_plan(moves, n_users)._replace(prior_singletons=False, collapsed_share=0.0, feature_moves=0)
    times = []
    for sweep in range(1, n_sweeps + 2):
        clock = time.process_time()
        state, _ = sweep_once(scene._replace(sweep=sweep), plan)
        scene = scene._replace(state=state)
        times.append(time.process_time() - clock)
    seconds = statistics.median(times[1:])
    return {
        "ratings": len(ratings),
        "features": int(scene.state.active.sum()),
        "seconds_per_sweep": round(seconds, 4),
        "nanoseconds_per_rating": round(1e9 * seconds / len(ratings), 1),
        "peak_mb": round(peak_mb()),
        "allowed_mb": round(BYTES_PER_RATING * len(ratings) / 1e6 + BASE_MB),
        "peak_mb_after_ratings_and_scene": [round(peak) for peak in peaks],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=USERS, help="users of each size")
    parser.add_argument("--sweeps", type=int, default=5, help="timed sweeps after one that is not")
    parser.add_argument("--one", action="store_true", help="measure the first size in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.users[0], options.sweeps)))
        return
    found = []
    for n_users in options.users:
        command = [sys.executable, __file__, "--one", "--users", str(n_users), "--sweeps", str(options.sweeps)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(line))
        print(line.strip(), flush=True)
    ratio = found[-1]["nanoseconds_per_rating"] / found[0]["nanoseconds_per_rating"]
    print(json.dumps({"time_per_rating_ratio": round(ratio, 2), "bar": RATIO_BAR}))


if __name__ == "__main__":
    main()
