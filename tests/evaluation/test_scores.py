"""Scores against plain loops, honest and dishonest probabilities, and standard errors against many data sets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from doublefeature.errors import SettingsError
from doublefeature.evaluation.bootstrap import Ratio, mean_score
from doublefeature.evaluation.scores import paired_difference, score_predictions, set_shares

VALUES = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def draw(proba, rng):
    return (proba.cumsum(axis=1) < rng.random((len(proba), 1))).sum(axis=1).clip(max=proba.shape[1] - 1)


@pytest.fixture
def example(rng):
    proba = rng.dirichlet(np.full(5, 0.8), size=300)
    return proba, draw(proba, rng), rng.integers(0, 40, 300)


def plain_scores(proba, truth, values):
    """Every score by a loop over ratings."""
    sums = dict.fromkeys(("log_score", "rps", "square", "mae", "exact", "within_one"), 0.0)
    levels = range(len(values))
    for p, r in zip(proba.tolist(), truth.tolist(), strict=True):
        sums["log_score"] += math.log(p[r])
        sums["rps"] += sum((sum(p[: k + 1]) - (r <= k)) ** 2 for k in levels[:-1])
        sums["square"] += (sum(v * q for v, q in zip(values, p, strict=True)) - values[r]) ** 2
        median = next(k for k in levels if sum(p[: k + 1]) >= 0.5)
        sums["mae"] += abs(values[median] - values[r])
        sums["exact"] += max(levels, key=lambda k: p[k]) == r
        best = max(levels, key=lambda k: sum(p[max(0, k - 1) : k + 2]))
        sums["within_one"] += abs(best - r) <= 1
    means = {name: total / len(truth) for name, total in sums.items()}
    means["rmse"] = math.sqrt(means.pop("square"))
    return means


class TestValues:
    @pytest.mark.parametrize("values", [VALUES, np.array([0.0, 1.0, 5.0, 6.0, 20.0])])
    def test_agree_with_plain_loops(self, example, values):
        proba, truth, users = example
        found = score_predictions(proba, truth, users, values, resamples=2)
        for name, value in plain_scores(proba, truth, values).items():
            assert found[name].value == pytest.approx(value), name

    def test_a_wrong_rps_is_seen(self, example):
        proba, truth, _ = example
        wrong = ((proba - (truth[:, None] == np.arange(5))) ** 2).sum(axis=1).mean()
        assert abs(wrong - plain_scores(proba, truth, VALUES)["rps"]) > 0.01

    def test_point_predictions_count_for_the_squared_error_only(self, example):
        proba, truth, users = example
        one, two = (
            score_predictions(proba, truth, users, VALUES, mean=mean, resamples=2) for mean in (None, np.full(300, 3.0))
        )
        assert two["rmse"].value == pytest.approx(np.sqrt(((VALUES[truth] - 3.0) ** 2).mean()))
        assert {k for k in one.estimates if one[k] != two[k]} == {"rmse"}

    def test_certain_and_right(self):
        found = score_predictions(np.eye(3), np.arange(3), np.arange(3), np.arange(3.0), resamples=2)
        assert [found[name].value for name in ("log_score", "rps", "rmse", "mae", "calibration_error")] == [0.0] * 5
        assert [found[name].value for name in ("exact", "within_one")] == [1.0, 1.0]

    def test_impossible_levels_cost_a_bounded_amount(self):
        found = score_predictions(np.array([[1.0, 0.0]]), np.array([1]), np.array([0]), np.arange(2.0), resamples=2)
        assert found["log_score"].value == pytest.approx(math.log(1e-10))
        assert math.isnan(found["log_score"].error)
        assert found.to_dict()["log_score"]["error"] is None

    @pytest.mark.parametrize(
        ("proba", "truth", "values"),
        [
            (np.full((3, 2), 0.5), np.zeros(2, int), np.arange(2.0)),
            (np.full((2, 2), 0.4), np.zeros(2, int), np.arange(2.0)),
            (np.full((2, 2), 0.5), np.zeros(2, int), np.arange(3.0)),
            (np.full((2, 2), np.nan), np.zeros(2, int), np.arange(2.0)),
            (np.zeros((0, 2)), np.zeros(0, int), np.arange(2.0)),
        ],
    )
    def test_what_does_not_fit_is_refused(self, proba, truth, values):
        with pytest.raises(SettingsError):
            score_predictions(proba, truth, np.zeros(truth.size, int), values)


class TestSets:
    def test_hold_exactly_the_mass(self, example):
        proba, _, _ = example
        for mass in (0.5, 0.8, 0.95):
            shares = set_shares(proba, mass)
            assert (proba * shares).sum(axis=1) == pytest.approx(np.full(300, mass))
            assert (np.count_nonzero((shares > 0) & (shares < 1), axis=1) <= 1).all()

    def test_a_hand_made_example(self):
        assert set_shares(np.array([[0.1, 0.6, 0.3]]), 0.8)[0] == pytest.approx([0.0, 1.0, 2 / 3])

    def test_honest_probabilities_cover_as_promised_and_sharpened_ones_do_not(self, rng):
        proba = rng.dirichlet(np.full(5, 0.7), size=6000)
        truth, users = draw(proba, rng), np.arange(6000)
        sharp = proba**2 / (proba**2).sum(axis=1, keepdims=True)
        honest, wrong = (score_predictions(table, truth, users, VALUES) for table in (proba, sharp))
        for mass in (50, 80, 95):
            value, error = honest[f"coverage_{mass}"]
            assert abs(value - mass / 100) < 4 * error
            value, error = wrong[f"coverage_{mass}"]
            assert value < mass / 100 - 4 * error
        assert honest["calibration_error"].value < 0.01 < 0.05 < wrong["calibration_error"].value
        assert honest["log_score"].value > wrong["log_score"].value
        whole = (set_shares(proba, 0.8) > 0)[np.arange(6000), truth].mean()
        assert whole > 0.8 + 4 * honest["coverage_80"].error


class TestErrors:
    def data(self, rng):
        """Draw ratings whose errors go together within a user."""
        users = np.repeat(np.arange(50), 8)
        return users, np.repeat(rng.standard_normal(50), 8) + 0.5 * rng.standard_normal(400)

    def test_are_those_of_new_users_and_not_of_new_ratings(self, rng):
        means, errors = [], []
        for seed in range(200):
            users, losses = self.data(rng)
            value, error = mean_score([Ratio.of(users, losses)], resamples=60, seed=seed)
            means.append(value)
            errors.append(error)
        true = np.std(means, ddof=1)
        assert abs(np.mean(errors) / true - 1.0) < 4 * 0.05 + 0.02
        naive = losses.std() / math.sqrt(losses.size)
        assert naive < 0.6 * true

    def test_of_a_mean_over_splits_that_share_users(self, rng):
        users, losses = self.data(rng)
        one = Ratio.of(users, losses)
        assert mean_score([one, one]) == pytest.approx(mean_score([one]))
        other = Ratio.of(users, -losses)
        assert mean_score([one, other]) == pytest.approx((0.0, 0.0), abs=1e-12)

    def test_a_paired_difference_is_sharper(self, example):
        proba, truth, users = example
        flat = 0.9 * proba + 0.02
        mine, theirs = (score_predictions(table, truth, users, VALUES) for table in (proba, flat))
        for name in mine.estimates:
            value, error = paired_difference(mine, theirs, name)
            assert value == pytest.approx(mine[name].value - theirs[name].value)
            assert error <= math.hypot(mine[name].error, theirs[name].error) + 1e-12
        assert paired_difference(mine, mine, "rps") == (0.0, 0.0)
        assert paired_difference(mine, theirs, "log_score").error < 0.6 * mine["log_score"].error
        both = paired_difference([mine, mine], [theirs, theirs], "rps")
        assert both == pytest.approx(paired_difference(mine, theirs, "rps"))

    def test_other_ratings_and_names_are_refused(self, example):
        proba, truth, users = example
        mine, other = (score_predictions(proba, truth, who, VALUES, resamples=2) for who in (users, users + 1))
        with pytest.raises(SettingsError, match="same ratings"):
            paired_difference(mine, other, "rps")
        with pytest.raises(SettingsError, match="no score 'speed'"):
            paired_difference(mine, mine, "speed")
