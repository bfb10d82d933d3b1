"""One model on one split: tuned and calibrated within the training part, fitted to all of it, asked about the rest.

What is given of cold users is learnt from as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from doublefeature.errors import DoubleFeatureError, EnvironmentProblem
from doublefeature.evaluation.baselines import Predicted
from doublefeature.evaluation.calibrate import OrdinalCalibration, fit_calibration
from doublefeature.evaluation.peers.base import Answer, Codes, FloatArray, Peer, Settings
from doublefeature.evaluation.peers.child import Usage
from doublefeature.evaluation.peers.fitting import DEFAULT_LIMIT, Fit, Pairs, fit_apart
from doublefeature.evaluation.peers.tuning import Search
from doublefeature.evaluation.scores import LEAST_PROBABILITY, log_scores
from doublefeature.evaluation.splits import Split, make_splits
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

Say = Callable[[str], None]
VALIDATION_SEED = 7919
"""Added to a split's seed for the part of the training ratings that tuning is judged by."""


@dataclass(frozen=True)
class Plan:
    """How models are run.

    Attributes
    ----------
    tune
        Whether settings are chosen on a part of the training ratings; if not, the defaults are used.
    threads
        How many threads a fit may use; None: every core.
    limit
        Seconds that one fit may take.
    """

    tune: bool = True
    threads: int | None = None
    limit: float = DEFAULT_LIMIT


@dataclass(frozen=True)
class Trial:
    """What one choice of settings earned on the validation part; no score when it did not finish."""

    settings: Settings
    log_score: float | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a model says about the held-out ratings, how it was set, and what it took."""

    predicted: Predicted
    means: FloatArray | None  # (listed users, items)
    settings: Settings
    trials: list[Trial]
    usage: Usage
    answer_seconds: float

    @property
    def tuning_seconds(self) -> float:
        """Wall-clock time of all fits before the last."""
        return sum(trial.seconds for trial in self.trials)


def validation_split(split: Split) -> Split:
    """Hold out a part of the training ratings in the way the split does, for tuning and calibration."""
    seed = split.seed + VALIDATION_SEED
    if split.protocol == "paper":
        return Split("paper", seed, *split.train.split_one_per_user(seed))
    protocol = "holdout" if split.protocol == "kfold" else split.protocol
    given = 0 if split.given is None else int(np.diff(split.given.arrays.user_ptr).max())
    return make_splits(split.train, protocol, seed=seed, given=given)[0]


def run_peer(
    peer: Peer,
    split: Split,
    search: Search,
    plan: Plan,
    *,
    listed: Codes | None = None,
    say: Say | None = None,
) -> Outcome:
    """Tune, calibrate, refit and predict.

    Parameters
    ----------
    search
        What settings are tried; the best log score on the validation part wins.
    listed
        Users whose ratings of every item are asked for too.
    say
        Is told in words what goes on.
    """
    peer.check_installed()
    chosen = search.starts[0]
    trials: list[Trial] = []
    calibration: OrdinalCalibration | None = None
    if search.chooses or not peer.gives_levels:
        chosen, trials, calibration = _tune(peer, split, search, plan, say)
    if say:
        say(f"{peer.name}: fitting with {show_settings(chosen)}")
    asked = Pairs.of(split.test)
    n_test, n_items = asked.users.size, split.train.n_items
    if listed is not None:
        every = (np.repeat(listed, n_items), np.tile(np.arange(n_items), listed.size))
        asked = Pairs(*(np.concatenate(both) for both in zip(asked, every, strict=True)))
    fit = _fit(peer, split.known, asked, chosen, plan, split.seed, n_test)
    points, proba = fit.answer
    test = Answer(points[:n_test], proba)
    return Outcome(
        predicted=_judged(test, calibration, level_values(split.train.levels)),
        means=None if listed is None else points[n_test:].reshape(listed.size, n_items),
        settings=chosen,
        trials=trials,
        usage=fit.usage,
        answer_seconds=fit.answer_seconds,
    )


def _tune(
    peer: Peer, split: Split, search: Search, plan: Plan, say: Say | None
) -> tuple[Settings, list[Trial], OrdinalCalibration | None]:
    """Return the settings with the best log score on the validation part, and their calibration on it."""
    part = validation_split(split)
    truth = part.test.triples()[2].astype(np.int64)
    trials: list[Trial] = []
    finished: list[tuple[float, Settings, OrdinalCalibration | None]] = []
    problems: list[DoubleFeatureError] = []

    def score(settings: Settings) -> float | None:
        if say:
            doing = f"trial {len(trials) + 1}," if search.chooses else "calibrating with"
            say(f"{peer.name}: {doing} {show_settings(settings)}")
        try:
            fit = _fit(peer, part.known, Pairs.of(part.test), settings, plan, split.seed)
        except EnvironmentProblem as error:
            problems.append(error)
            trials.append(Trial(settings, None, plan.limit))
            return None
        calibration = None if peer.gives_levels else fit_calibration(fit.answer.points, truth, part.test.n_levels)
        predicted = _judged(fit.answer, calibration, level_values(part.test.levels))
        found = float(log_scores(predicted.proba, truth).mean())
        trials.append(Trial(settings, found, fit.usage.wall_seconds))
        finished.append((found, settings, calibration))
        return found

    search.run(score)
    if not finished:
        raise problems[-1]
    _, chosen, calibration = max(finished, key=lambda one: one[0])
    return chosen, trials, calibration


def _fit(
    peer: Peer,
    train: Ratings,
    pairs: Pairs,
    settings: Settings,
    plan: Plan,
    seed: int,
    levels_for: int | None = None,
) -> Fit:
    """Fit apart; a pair that a model has no number for gets the mean rating."""
    fit = fit_apart(
        peer, train, pairs, settings, seed=seed, threads=plan.threads, limit=plan.limit, levels_for=levels_for
    )
    mean = float(level_values(train.levels) @ train.level_counts / max(1, train.n_ratings))
    points = np.where(np.isfinite(fit.answer.points), fit.answer.points, mean)
    return fit._replace(answer=fit.answer._replace(points=points))


def _judged(answer: Answer, calibration: OrdinalCalibration | None, values: FloatArray) -> Predicted:
    """Return probabilities, the model's own or calibrated ones, and its numbers kept within the levels."""
    table = answer.proba if calibration is None else calibration.proba(answer.points)
    if table is None:
        raise EnvironmentProblem("a model without level probabilities has not been calibrated.")
    proba = np.maximum(table, LEAST_PROBABILITY)
    return Predicted(proba / proba.sum(axis=1, keepdims=True), answer.points.clip(values.min(), values.max()))


def show_settings(settings: Settings) -> str:
    """Return settings on one line."""
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "no settings"
