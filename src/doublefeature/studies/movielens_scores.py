"""Scores of the MovieLens study: every method on every split, and every shard before and after the merge."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.baselines import fit_baselines
from doublefeature.evaluation.bootstrap import Estimate, Ratio, Scores, judge_tallies, mean_score
from doublefeature.evaluation.pairs import score_pairs
from doublefeature.evaluation.scores import answers, score_predictions
from doublefeature.evaluation.splits import Split
from doublefeature.posterior.prediction import level_values
from doublefeature.studies.movielens import Study

FloatArray = NDArray[np.float64]

SHOWN = ("log_score", "rps", "rmse", "exact", "within_one", "pairs_authors", "pairs_strict", "pairs_auc")
"""Scores of the tables."""
BEFORE = "consensus, before the merge"
NAMES = {
    "consensus": "consensus, after the merge",
    "authors": "consensus as the authors ran it",
    "exact paper": "exact, preset paper",
    "exact full": "exact, preset full",
}
"""How tables call the runs."""


class ShardScore(NamedTuple):
    """One shard's accuracies with the paper's normal interval, and its features."""

    seed: int
    shard: int
    users: int
    pairs_before: float
    pairs_after: float
    within_one: float
    lower: float
    upper: float
    features: float  # mean, least and most over draws, after the merge
    features_least: float
    features_most: float


def judge(proba: FloatArray, split: Split, mean: FloatArray | None = None) -> Scores:
    """Return all scores of predicted level probabilities of a split's held-out ratings."""
    users, _, levels = split.test.triples()
    values = level_values(split.test.levels)
    return score_predictions(proba, levels, users, values, mean=mean) | score_pairs(proba, levels, users, split.train)


def judge_constant(code: int, split: Split) -> Scores:
    """Return the scores of always saying one level, which is also its best window."""
    users, _, levels = (column.astype(np.int64) for column in split.test.triples())
    certain = judge(np.tile(np.eye(split.test.n_levels)[code], (levels.size, 1)), split)
    near = (np.abs(levels - code) <= 1).astype(np.float64)
    return certain | judge_tallies(levels.size, {"within_one": Ratio.of(users, near)})


def all_scores(study: Study) -> dict[str, list[Scores]]:
    """Return the scores of every method, one per seed: runs, rules that need no model, and every constant."""
    found: dict[str, list[Scores]] = {}
    for place, split in enumerate(study.splits):
        rows = {BEFORE: judge(study.runs["consensus"][place]["before"], split)}
        rows |= {name: judge(study.runs[key][place]["proba"], split) for key, name in NAMES.items()}
        users, items, _ = (column.astype(np.int64) for column in split.test.triples())
        for rule in fit_baselines(split.train, seed=split.seed):
            told = rule.predict(users, items)
            rows[rule.name] = judge(told.proba, split, told.mean)
        for code, level in enumerate(split.train.levels):
            rows[f"always {level}"] = judge_constant(code, split)
        for name, scores in rows.items():
            found.setdefault(name, []).append(scores)
    return found


def summary_of(scores: list[Scores]) -> dict[str, Estimate]:
    """Return the mean over seeds of every score shown, with its standard error."""
    return {name: mean_score([part.tallies[name] for part in scores]) for name in SHOWN}


def shard_scores(study: Study) -> list[ShardScore]:
    """Return the accuracies of every shard of every seed."""
    found = []
    for split, run in zip(study.splits, study.runs["consensus"], strict=True):
        users, _, levels = split.test.triples()
        near = np.abs(answers(run["proba"])[2] - levels.astype(np.int64)) <= 1
        for shard in range(study.shards):
            rows = run["shard"] == shard
            pairs = [
                score_pairs(run[name][rows], levels[rows], users[rows], split.train, resamples=2)["pairs_authors"].value
                for name in ("before", "proba")
            ]
            share, n = float(near[rows].mean()), int(rows.sum())
            half = 1.96 * math.sqrt(share * (1.0 - share) / n)
            interval = share, share - half, share + half
            found.append(
                ShardScore(split.seed, shard, n, pairs[0], pairs[1], *interval, *_three(run["features"][shard]))
            )
    return found


def _three(values: FloatArray) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])
