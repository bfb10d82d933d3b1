"""Why the defaults are what they are: each setting of preset `full` against the others, on training parts only.

    python benchmarks/defaults.py ml-100k holdout           every variant on the training part of split 0
    python benchmarks/defaults.py ml-1m paper --only mass   those whose name holds a word

The training part of a split is split again by the same protocol; the outer test part is never looked at. One row per
variant: features, log score with the standard error of its paired difference from the default, RPS, RMSE, seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from doublefeature import DoubleFeature, Schedule, load_dataset, preset
from doublefeature.config import Priors
from doublefeature.evaluation.splits import Split, make_splits

FULL = preset("full")
BY_FEATURE = {"item_choices": False, "item_rate_by_feature": True}
VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "no grades of users": {"user_grades": False},
    "no choices at all": {"choices": 0, "item_choices": False},
    "no choices of items": {"item_choices": False},
    "4 components of choices": {"choices": 4},
    "16 components of choices": {"choices": 16},
    "no user scales": {"user_scales": False},
    "fixed cutpoints": {"free_cutpoints": False},
    "not graded": {"graded": False, "user_grades": False, "choices": 0, "item_choices": False},
    "a rate per feature": BY_FEATURE,
    "item rate 0.1": {"item_rate": 0.1},
    "item rate 0.4": {"item_rate": 0.4},
    "mass 3": {"mass": 3.0},
    "mass 30": {"mass": 30.0},
}


def variant(changes: dict[str, object]) -> Priors:
    """Return the default with changes; what then has no meaning is not learnt."""
    needed = {"grade_sd": "graded", "user_grade_sd": "user_grades", "user_scale_sd": "user_scales"}
    gone = {name for name, switch in needed.items() if changes.get(switch) is False}
    return replace(FULL, **changes, learn=tuple(name for name in FULL.learn if name not in gone))


def inner_split(data: str, protocol: str, seed: int) -> Split:
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    os.environ.setdefault("DOUBLEFEATURE_DATA", str(shared))
    outer = make_splits(load_dataset(data), protocol, seed=0)[0]
    return make_splits(outer.train, protocol, seed=seed)[0]


def judge(split: Split, priors: Priors, schedule: Schedule) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Return log score, RPS and squared error of every held-out rating, the mean number of features, and seconds."""
    clock = time.perf_counter()
    model = DoubleFeature(priors=priors, schedule=schedule, seed=1).fit(split.train)
    users, items, levels = split.test.triples()
    pairs = [(split.test.users[u], split.test.items[i]) for u, i in zip(users, items, strict=True)]
    proba = model.predict(pairs).proba
    rows = np.arange(levels.size)
    beyond = proba.cumsum(axis=1) - (np.arange(proba.shape[1]) >= levels[:, None])
    values = np.array(split.test.levels, float)
    features = float(np.mean([draw.n_features for draw in model.posterior_]))
    seconds = time.perf_counter() - clock
    log_score = np.log(np.maximum(proba[rows, levels], 1e-12))
    return log_score, (beyond**2).sum(axis=1), (proba @ values - values[levels]) ** 2, features, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("ml-100k", "ml-1m", "ml-latest-small"))
    parser.add_argument("protocol", choices=("paper", "holdout"))
    parser.add_argument("--only", default="", help="variants whose name holds this word, and the default")
    parser.add_argument("--sweeps", type=int, default=160)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the inner split")
    told = parser.parse_args()
    split = inner_split(told.data, told.protocol, told.seed)
    schedule = Schedule(sweeps=told.sweeps, warmup=told.sweeps // 3, thin=4, chains=told.chains)
    print(f"{told.data}, {told.protocol}: {len(split.train)} ratings, {len(split.test)} judged, {schedule}", flush=True)
    print(f"{'variant':28}{'K':>6}{'log score':>11}{'less default':>20}{'RPS':>9}{'RMSE':>9}{'s':>7}", flush=True)
    base = None
    for name, changes in VARIANTS.items():
        if name != "default" and told.only not in name:
            continue
        log_score, rps, squares, features, seconds = judge(split, variant(changes), schedule)
        base = log_score if base is None else base
        gap = log_score - base
        difference = f"{gap.mean():+.4f} ± {gap.std() / gap.size**0.5:.4f}"
        scores = f"{log_score.mean():11.4f}{difference:>20}{rps.mean():9.4f}{squares.mean() ** 0.5:9.4f}"
        print(f"{name:28}{features:6.0f}{scores}{seconds:7.0f}", flush=True)


if __name__ == "__main__":
    main()
