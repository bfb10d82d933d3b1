r"""Scores of predicted level probabilities on ratings that were not seen.

With p a rating's predicted probabilities, r its level, v the level values:

    log_score           log p_r                                               higher is better
    rps                 Σ_k (P(level ≤ k) − 1{r ≤ k})²                        ranked probability score
    rmse                √ mean of (mean of p − v_r)²
    mae                 |v of the median of p − v_r|
    exact, within_one   the mode is right; the best window is at most one level off
    coverage_50, …      how often the set that holds 50 % contains the level
    width_50, …         how many levels that set holds
    calibration_error   mean |predicted − observed| over bins of all level probabilities

Each is judged by the answer that is best for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import SettingsError
from doublefeature.evaluation.bootstrap import RESAMPLES, Ratio, Scores, Tally, judge_tallies, paired_difference
from doublefeature.evaluation.reliability import CalibrationError
from doublefeature.posterior.prediction import Prediction

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

__all__ = ["LEAST_PROBABILITY", "MASSES", "Scores", "answers", "paired_difference", "score_predictions", "set_shares"]

MASSES = (0.5, 0.8, 0.95)
"""Probabilities that sets of levels are asked to hold."""
LEAST_PROBABILITY = 1e-10
"""Smaller probabilities count as this in a log score, so that one surprise cannot outweigh all else."""


def score_predictions(
    proba: FloatArray,
    truth: NDArray[np.integer],
    users: NDArray[np.integer],
    level_values: FloatArray,
    *,
    mean: FloatArray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Scores:
    """Return all scores of predicted ratings, each with its standard error over users.

    Parameters
    ----------
    proba
        Probability of every level for every rating, shape (ratings, levels).
    truth, users
        Level code and user code of every rating.
    level_values
        What each level counts as (`doublefeature.posterior.prediction.level_values`).
    mean
        Point predictions for the root mean squared error; None takes the means of `proba`.
    resamples, seed
        Draws of users behind the standard errors.
    """
    given, raters = np.asarray(truth, np.int64), np.asarray(users, np.int64)
    _check(proba, given, raters, level_values)
    point = proba @ level_values if mean is None else mean
    mode, median, window = answers(proba)
    tallies: dict[str, Tally] = {
        "log_score": Ratio.of(raters, log_scores(proba, given)),
        "rps": Ratio.of(raters, ranked_scores(proba, given)),
        "rmse": Ratio.of(raters, (point - level_values[given]) ** 2, root=True),
        "mae": Ratio.of(raters, np.abs(level_values[median] - level_values[given])),
        "exact": Ratio.of(raters, (mode == given).astype(np.float64)),
        "within_one": Ratio.of(raters, (np.abs(window - given) <= 1).astype(np.float64)),
    }
    rows = np.arange(given.size)
    for mass in MASSES:
        shares = set_shares(proba, mass)
        tallies[f"coverage_{round(100 * mass)}"] = Ratio.of(raters, shares[rows, given])
        tallies[f"width_{round(100 * mass)}"] = Ratio.of(raters, shares.sum(axis=1))
    tallies["calibration_error"] = CalibrationError.of(proba, given, raters)
    return judge_tallies(given.size, tallies, resamples=resamples, seed=seed)


def log_scores(proba: FloatArray, truth: Codes) -> FloatArray:
    """Return the log probability of each rating's level."""
    scores: FloatArray = np.log(np.maximum(proba[np.arange(truth.size), truth], LEAST_PROBABILITY))
    return scores


def ranked_scores(proba: FloatArray, truth: Codes) -> FloatArray:
    """Return Σ_k (P(level ≤ k) − 1{truth ≤ k})² of each rating, not divided by the number of borders."""
    below = proba.cumsum(axis=1)[:, :-1]
    reached = truth[:, None] <= np.arange(proba.shape[1] - 1)
    scores: FloatArray = ((below - reached) ** 2).sum(axis=1)
    return scores


def answers(proba: FloatArray) -> tuple[Codes, Codes, Codes]:
    """Return the mode, the median and the best window of every row, as level codes."""
    table = Prediction([], tuple(range(proba.shape[1])), proba, np.zeros((0, 2), bool))
    mode, median, window = (np.array(codes, np.int64) for codes in (table.mode, table.median, table.window))
    return mode, median, window


def set_shares(proba: FloatArray, mass: float) -> FloatArray:
    """Return with which probability each level belongs to the set that holds exactly this mass.

    The set takes levels from the most probable on. A set of whole levels mostly holds more than the mass, and so
    covers too often: here the last level belongs with the probability that brings the mass to what was asked. With S
    the mass of the levels before it and p its own, that is (mass − S) / p. Under calibrated probabilities the expected
    coverage then is the mass.
    """
    order = np.argsort(-proba, axis=1, kind="stable")
    ranked = np.take_along_axis(proba, order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    shares = np.empty_like(proba)
    np.put_along_axis(shares, order, np.clip((mass - before) / np.maximum(ranked, 1e-300), 0.0, 1.0), axis=1)
    return shares


def _check(proba: FloatArray, truth: Codes, users: Codes, level_values: FloatArray) -> None:
    if proba.ndim != 2 or not truth.shape == users.shape == proba.shape[:1] or not truth.size:
        sizes = f"{proba.shape} probabilities, {truth.shape} levels, {users.shape} users"
        raise SettingsError(f"scores need one row of probabilities, a level and a user per rating, got {sizes}.")
    if proba.shape[1] != level_values.size:
        raise SettingsError(f"{proba.shape[1]} probabilities a rating and {level_values.size} levels do not match.")
    if not np.isfinite(proba).all() or (np.abs(proba.sum(axis=1) - 1.0) > 1e-6).any():
        raise SettingsError("level probabilities must be numbers that add up to 1 for every rating.")
