"""Judge a model on ratings it has not seen, beside rules that need no model."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from doublefeature.evaluation.baselines import Predicted, Predictor, fit_baselines
from doublefeature.evaluation.bootstrap import RESAMPLES, Estimate, Judgements, Scores, plain
from doublefeature.evaluation.pairs import score_pairs
from doublefeature.evaluation.predictors import MODEL, predictor_of
from doublefeature.evaluation.ranking import relevant_level, score_ranking
from doublefeature.evaluation.scores import score_predictions
from doublefeature.evaluation.splits import PROTOCOLS, Split, splits_of
from doublefeature.inference.progress import ProgressCallback
from doublefeature.item_table import ItemTable
from doublefeature.levels import Level
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings
from doublefeature.recommender import DoubleFeature

TOP_N = 10
GIVEN = 10
"""Ratings of a cold user that are folded in before the others are judged."""


@dataclass(frozen=True)
class SplitFacts:
    """What a split is made of."""

    seed: int
    fingerprint: str
    train_ratings: int
    test_ratings: int
    test_users: int
    users: int
    items: int
    unseen_users: int  # users judged without a known rating: the prior answers
    unseen_items: int
    given_ratings: int = 0  # of users who are folded in

    @classmethod
    def of(cls, split: Split) -> SplitFacts:
        """Count what is in a split."""
        users, items, _ = split.test.triples()
        rated_by = np.diff(split.known.arrays.user_ptr), np.diff(split.train.arrays.item_ptr)
        unseen = [
            int((counts[np.unique(codes)] == 0).sum()) for counts, codes in zip(rated_by, (users, items), strict=True)
        ]
        return cls(
            seed=split.seed,
            fingerprint=split.fingerprint,
            train_ratings=split.train.n_ratings,
            test_ratings=split.test.n_ratings,
            test_users=int(np.unique(users).size),
            users=split.train.n_users,
            items=split.train.n_items,
            unseen_users=unseen[0],
            unseen_items=unseen[1],
            given_ratings=0 if split.given is None else split.given.n_ratings,
        )


@dataclass(frozen=True, eq=False)
class Evaluation(Judgements):
    """Scores of a model and of simple rules on the same splits.

    Attributes
    ----------
    scores
        By name of the method, the model first; one judgement per split.
    relevant
        The lowest level that counts as relevant in top-n lists.
    seconds
        What fitting the model took on each split.
    """

    protocol: str
    splits: list[SplitFacts]
    scores: Mapping[str, list[Scores]]
    levels: tuple[Level, ...]
    relevant: Level
    seconds: list[float]
    reference: str = MODEL

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "protocol": self.protocol,
            "holds_out": PROTOCOLS[self.protocol],
            "levels": list(self.levels),
            "relevant_level": self.relevant,
            "splits": [vars(facts) for facts in self.splits],
            "fit_seconds": self.seconds,
            "scores": {method: _plain(found) for method, found in self.summaries.items()},
            "model_minus": {method: _plain(found) for method, found in self.leads.items()},
            "by_split": {method: [part.to_dict() for part in parts] for method, parts in self.scores.items()},
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one plain row per split, method and score, ready for CSV."""
        return [
            {"split": number, "seed": facts.seed, "method": method, "score": name, **plain(estimate)}
            for number, facts in enumerate(self.splits)
            for method, parts in self.scores.items()
            for name, estimate in parts[number].estimates.items()
        ]


def evaluate(
    ratings: Ratings,
    protocol: str = "holdout",
    *,
    model: DoubleFeature | None = None,
    seeds: Sequence[int] = (0,),
    share: float | None = None,
    folds: int = 5,
    given: int = GIVEN,
    items: ItemTable | None = None,
    top_n: int | None = TOP_N,
    resamples: int = RESAMPLES,
    progress: ProgressCallback | None = None,
    announce: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Evaluation:
    """Fit a model and simple rules to the training part of every split, and judge them on the rest.

    Parameters
    ----------
    protocol, share, folds, given
        What is held out (`doublefeature.evaluation.splits.make_splits`).
    model
        Settings to fit with; the model itself stays as it is. None takes the default model.
    seeds
        One split each, or one set of folds.
    items
        Columns of items by raw id.
    top_n
        Length of the lists that are judged over the whole catalogue; None leaves that out.
    announce
        Is told in words what goes on.
    stop
        When set, the fit ends and `KeyboardInterrupt` is raised.
    """
    parts = splits_of(ratings, protocol, seeds, share, folds, given)
    say = announce or (lambda text: None)
    scores: dict[str, list[Scores]] = {}
    seconds = []
    for number, split in enumerate(parts, 1):
        say(f"split {number} of {len(parts)}: {split.train.n_ratings} ratings to learn from")
        start = time.perf_counter()
        fitted = copy.copy(model or DoubleFeature()).fit(split.train, items=items, progress=progress, stop=stop)
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
        seconds.append(time.perf_counter() - start)
        say(f"split {number} of {len(parts)}: judging {split.test.n_ratings} held-out ratings")
        judged: list[Predictor] = [predictor_of(fitted, split), *fit_baselines(split.known)]
        for predictor in judged:
            scores.setdefault(predictor.name, []).append(judge(split, predictor, top_n=top_n, resamples=resamples))
    return Evaluation(
        protocol=protocol,
        splits=[SplitFacts.of(split) for split in parts],
        scores=scores,
        levels=tuple(ratings.levels),
        relevant=ratings.levels[relevant_level(ratings.n_levels)],
        seconds=seconds,
    )


def judge(split: Split, predictor: Predictor, *, top_n: int | None = TOP_N, resamples: int = RESAMPLES) -> Scores:
    """Return all scores of a fitted predictor on the held-out part: of ratings, of pairs and of top-n lists."""
    users, items, _ = (column.astype(np.int64) for column in split.test.triples())
    found = judge_predicted(split, predictor.predict(users, items), resamples=resamples)
    lists = None if top_n is None else score_ranking(split, predictor.means, n=top_n, resamples=resamples)
    return found if lists is None else found | lists


def judge_predicted(split: Split, predicted: Predicted, *, resamples: int = RESAMPLES) -> Scores:
    """Return the scores of ratings and of pairs of what was predicted for the held-out part, in stored order."""
    users, _, truth = (column.astype(np.int64) for column in split.test.triples())
    proba, mean = predicted
    values = level_values(split.test.levels)
    found = score_predictions(proba, truth, users, values, mean=mean, resamples=resamples)
    return found | score_pairs(proba, truth, users, split.known, resamples=resamples)


def _plain(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: plain(estimate) for name, estimate in estimates.items()}
