"""How long chains should be: one run on training parts, judged after 240, 480, … sweeps.

    python benchmarks/length.py ml-100k paper [--seeds 4] [--sweeps 960]
    python benchmarks/length.py answers.csv holdout

Ratings that any of the first three splits of the protocol tests on are left out before a tenth of the rest is held out,
so no rating that is reported elsewhere is looked at. One row per length: log score, its paired difference from 480
sweeps with a standard error over ratings, RPS, RMSE, exact hits, and CPU seconds; the last rows are means over seeds.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doublefeature import DoubleFeature, Ratings, Schedule, load_dataset, read_ratings
from doublefeature.datasets import DATASET_NAMES
from doublefeature.evaluation.scores import answers, log_scores, ranked_scores
from doublefeature.evaluation.splits import PAPER_ITEMS, PAPER_RATINGS, Split, make_splits
from doublefeature.posterior.predict import levels_in_draw

REPORTED = range(3)
USUAL = 480
STEP = 240


def never_tested(name: str, protocol: str) -> Ratings:
    """Return the ratings of a protocol that none of the reported splits tests on."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    os.environ.setdefault("DOUBLEFEATURE_DATA", str(shared))
    ratings = load_dataset(name) if name in DATASET_NAMES else read_ratings(name)
    tests = [make_splits(ratings, protocol, seed=seed)[0].test for seed in REPORTED]
    if protocol == "paper":
        ratings = ratings.top_items(PAPER_ITEMS, min_ratings_per_user=PAPER_RATINGS)
    users, items, _ = ratings.triples()
    codes = users.astype(np.int64) * ratings.n_items + items
    tested = [part.triples()[0].astype(np.int64) * part.n_items + part.triples()[1] for part in tests]
    return ratings.subset(~np.isin(codes, np.concatenate(tested)))


def judge(split: Split, sweeps: int) -> dict[int, NDArray[np.float64]]:
    """Return, by number of sweeps, the scores of every held-out rating: (scores, ratings)."""
    clock = time.process_time()
    schedule = Schedule(sweeps=sweeps, warmup=120, thin=8, chains=4)
    posterior = DoubleFeature(schedule=schedule, seed=1).fit(split.train).posterior_
    seconds = time.process_time() - clock
    users, items, levels = (column.astype(np.int64) for column in split.test.triples())
    values = np.array(split.test.levels, float)
    found, total, done = {}, np.zeros((levels.size, values.size)), 0
    for length in range(STEP, sweeps + 1, STEP):
        for draw in posterior:
            if done < draw.sweep <= length:
                total += levels_in_draw(draw, posterior.base, users, items, posterior.scales)
        done = length
        proba = total / total.sum(axis=1, keepdims=True)
        squares = (proba @ values - values[levels]) ** 2
        exact = 100.0 * (answers(proba)[0] == levels)
        cost = np.full(levels.size, seconds * length / sweeps)
        found[length] = np.stack([log_scores(proba, levels), ranked_scores(proba, levels), squares, exact, cost])
    return found


def show(seed: str, found: dict[int, NDArray[np.float64]]) -> None:
    for length, rows in found.items():
        gain = rows[0] - found[USUAL][0]
        score, rps, square, exact, cost = rows.mean(axis=1)
        error = gain.std() / gain.size**0.5
        print(
            f"{seed:>6}{length:8}{score:11.4f}{gain.mean():+10.4f} ± {error:.4f}{rps:9.4f}{square**0.5:9.4f}"
            f"{exact:9.2f}{cost:8.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help=f"a file of ratings, or one of {', '.join(DATASET_NAMES)}")
    parser.add_argument("protocol", choices=("paper", "holdout"))
    parser.add_argument("--seeds", type=int, default=4, help="splits of what is left")
    parser.add_argument("--sweeps", type=int, default=960)
    told = parser.parse_args()
    ratings = never_tested(told.data, told.protocol)
    print(f"{'seed':>6}{'sweeps':>8}{'log score':>11}{'less 480':>19}{'RPS':>9}{'RMSE':>9}{'exact':>9}{'CPU s':>8}")
    runs = []
    for seed in range(told.seeds):
        split = make_splits(ratings, "holdout", seed=seed)[0]
        runs.append(judge(split, told.sweeps))
        show(str(seed), runs[-1])
    show("mean", {length: np.concatenate([run[length] for run in runs], axis=1) for length in runs[0]})


if __name__ == "__main__":
    main()
