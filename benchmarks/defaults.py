"""Why the defaults are what they are: each setting of preset `full` against the others, on training parts only.

    python benchmarks/defaults.py ml-100k holdout           every variant on the training part of split 0
    python benchmarks/defaults.py ml-1m paper --only mass   those whose name holds a word

The training part of a split is split again by the same protocol; the outer test part is never looked at. One row per
variant: features, the share of items that the middle one of those with a hundredth of the users has, log score with the
standard error of its paired difference from the default, RPS, RMSE, seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from doublefeature import DoubleFeature, Schedule, load_dataset, preset
from doublefeature.config import Priors
from doublefeature.evaluation.scores import log_scores, ranked_scores
from doublefeature.evaluation.splits import Split, make_splits
from doublefeature.model.state import members
from doublefeature.posterior.draws import Draw

FULL = preset("full")
BY_FEATURE = {"item_choices": False, "item_rate_by_feature": True}
VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "no grades of users": {"user_grades": False},
    "no choices at all": {"choices": 0, "item_choices": False},
    "no choices of items": {"item_choices": False},
    "8 components of choices": {"choices": 8},
    "components below chance too": {"choice_least": 0.0},
    "no user scales": {"user_scales": False},
    "fixed cutpoints": {"free_cutpoints": False},
    "not graded": {"graded": False, "user_grades": False, "choices": 0, "item_choices": False},
    "a rate per feature": BY_FEATURE,
    "item rate 0.1": {"item_rate": 0.1},
    "item rate 0.4": {"item_rate": 0.4},
    "mass 3": {"mass": 3.0},
    "mass 30": {"mass": 30.0},
    "offsets held to traits 0.1": {"trait_offset_sd": 0.1},
    "remainder of rank 4": {"remainder": 4},
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


class Judged(NamedTuple):
    """Scores of every held-out rating, and what the features are like."""

    log_score: np.ndarray
    rps: np.ndarray
    squares: np.ndarray
    features: float  # mean number
    share: float  # of items in the middle feature
    seconds: float


def middle_share(draws: Sequence[Draw]) -> float:
    """Return the median share of items in a feature, over draws and features with a hundredth of the users."""
    shares = []
    for draw in draws:
        slots = np.arange(draw.n_features)
        large = members(draw.user_words, slots).mean(axis=0) >= 0.01
        shares.append(members(draw.item_words, slots).mean(axis=0)[large])
    return float(np.median(np.concatenate(shares)))


def judge(split: Split, priors: Priors, schedule: Schedule) -> Judged:
    """Fit the training part of a split and judge the rest."""
    clock = time.perf_counter()
    model = DoubleFeature(priors=priors, schedule=schedule, seed=1).fit(split.train)
    users, items, levels = split.test.triples()
    pairs = [(split.test.users[u], split.test.items[i]) for u, i in zip(users, items, strict=True)]
    proba = model.predict(pairs).proba
    truth = levels.astype(np.int64)
    values = np.array(split.test.levels, float)
    features = float(np.mean([draw.n_features for draw in model.posterior_]))
    seconds = time.perf_counter() - clock
    squares = (proba @ values - values[truth]) ** 2
    share = middle_share(list(model.posterior_))
    return Judged(log_scores(proba, truth), ranked_scores(proba, truth), squares, features, share, seconds)


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
    print(
        f"{'variant':28}{'K':>6}{'items':>7}{'log score':>11}{'less default':>20}{'RPS':>9}{'RMSE':>9}{'s':>7}",
        flush=True,
    )
    base = None
    for name, changes in VARIANTS.items():
        if name != "default" and told.only not in name:
            continue
        found = judge(split, variant(changes), schedule)
        base = found.log_score if base is None else base
        gap = found.log_score - base
        difference = f"{gap.mean():+.4f} ± {gap.std() / gap.size**0.5:.4f}"
        scores = (
            f"{found.log_score.mean():11.4f}{difference:>20}{found.rps.mean():9.4f}{found.squares.mean() ** 0.5:9.4f}"
        )
        print(f"{name:28}{found.features:6.0f}{found.share:7.0%}{scores}{found.seconds:7.0f}", flush=True)


if __name__ == "__main__":
    main()
