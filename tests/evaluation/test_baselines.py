"""Rules that need no model."""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature.datasets import load_dataset
from doublefeature.evaluation.baselines import BASELINES, fit_baselines, fit_offsets
from doublefeature.evaluation.evaluate import judge
from doublefeature.evaluation.splits import make_splits
from doublefeature.ratings import Ratings

VALUES = np.arange(1.0, 6.0)


def planted(rng, n_users=120, n_items=60, share=0.3):
    """Draw ratings that are a sum of offsets and noise, rounded to levels."""
    user, item = rng.normal(0, 0.5, n_users), rng.normal(0, 0.7, n_items)
    users, items = np.divmod(np.flatnonzero(rng.random(n_users * n_items) < share), n_items)
    score = 3.0 + user[users] + item[items] + rng.normal(0, 0.6, users.size)
    levels = np.rint(score).clip(1, 5).astype(int) - 1
    ratings = Ratings.from_codes(users, items, levels, users=range(n_users), items=range(n_items), levels="1..5")
    return ratings, user, item


def slow_offsets(ratings, penalty_user, penalty_item, centre):
    """Minimise Σ (r − μ − b_u − b_i)² + λ_u Σ b_u² + λ_i Σ b_i² by one linear system."""
    users, items, levels = (column.astype(int) for column in ratings.triples())
    m, n = ratings.n_users, ratings.n_items
    design = np.zeros((users.size, m + n))
    design[np.arange(users.size), users] = 1.0
    design[np.arange(users.size), m + items] = 1.0
    penalty = np.diag([penalty_user] * m + [penalty_item] * n)
    return np.linalg.solve(design.T @ design + penalty, design.T @ (VALUES[levels] - centre))


class TestOffsets:
    def test_find_what_was_planted(self, rng):
        ratings, user, item = planted(rng)
        found = fit_offsets(ratings, VALUES, with_users=True)
        assert np.corrcoef(found.user, user)[0, 1] > 0.85
        assert np.corrcoef(found.item, item)[0, 1] > 0.95
        assert abs(found.user.std() / user.std() - 1) < 0.3

    def test_solve_the_penalised_least_squares_problem(self, rng):
        ratings, _, _ = planted(rng, 40, 20)
        found = fit_offsets(ratings, VALUES, with_users=True)
        users, items, levels = (column.astype(int) for column in ratings.triples())
        left = VALUES[levels] - found.points(users, items)
        sums = np.bincount(users, left, minlength=40)
        penalty = float(sums @ found.user / (found.user @ found.user))
        item_sums = np.bincount(items, left, minlength=20)
        item_penalty = float(item_sums @ found.item / (found.item @ found.item))
        assert penalty > 0.3
        assert item_penalty > 0.1
        slow = slow_offsets(ratings, penalty, item_penalty, found.centre)
        assert np.concatenate([found.user, found.item]) == pytest.approx(slow, abs=0.01)
        unpenalised = slow_offsets(ratings, 1e-9, 1e-9, found.centre)
        assert np.abs(unpenalised - slow).max() > 0.05

    def test_without_ratings_there_is_no_offset(self):
        ratings = Ratings.from_codes(
            np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([4, 3, 0]), users="abc", items="xyz", levels="1..5"
        )
        found = fit_offsets(ratings, VALUES, with_users=True)
        assert (found.user[2], found.item[2]) == (0.0, 0.0)


class TestBaselines:
    def test_are_ordered_and_calibrated_on_planted_ratings(self, rng):
        ratings, _, _ = planted(rng, 300, 60)
        (split,) = make_splits(ratings, "holdout", share=0.3)
        found = {predictor.name: judge(split, predictor) for predictor in fit_baselines(split.train)}
        assert tuple(found) == BASELINES
        for name in ("log_score", "exact", "pairs_strict"):
            assert found["bias"][name].value > found["item mean"][name].value > found["constant"][name].value
        for mass in (50, 80, 95):
            value, error = found["bias"][f"coverage_{mass}"]
            assert abs(value - mass / 100) < 4 * error
        assert found["bias"]["calibration_error"].value < 0.015

    def test_calibration_on_seen_ratings_is_seen(self, rng):
        from doublefeature.evaluation.baselines import Additive
        from doublefeature.evaluation.calibrate import fit_calibration

        ratings, _, _ = planted(rng, 400, 60, share=0.08)
        (split,) = make_splits(ratings, "holdout", share=0.3)
        users, items, levels = (column.astype(np.int64) for column in split.train.triples())
        honest = fit_baselines(split.train)[2]
        seen = fit_calibration(honest.offsets.points(users, items), levels, 5)
        wrong = Additive("seen", honest.offsets, seen, VALUES)
        one, two = judge(split, honest, top_n=None), judge(split, wrong, top_n=None)
        assert two["coverage_80"].value < one["coverage_80"].value - 0.02
        assert one["log_score"].value > two["log_score"].value

    def test_constant(self, rng):
        ratings, _, _ = planted(rng)
        constant = fit_baselines(ratings)[0]
        proba, mean = constant.predict(np.array([0, 1]), np.array([3, 4]))
        assert proba[0] == pytest.approx((ratings.level_counts + 1) / (len(ratings) + 5))
        assert mean[1] == pytest.approx(proba[1] @ VALUES)

    @pytest.mark.parametrize("n", [1, 2, 4])
    def test_a_handful_of_ratings(self, n):
        ratings = Ratings.from_codes(
            np.arange(n), np.zeros(n, int), np.arange(n) % 3, users=range(n), items="x", levels="1..3"
        )
        for predictor in fit_baselines(ratings):
            proba, mean = predictor.predict(np.arange(n), np.zeros(n, np.int64))
            assert proba.sum(axis=1) == pytest.approx(np.ones(n))
            assert np.isfinite(mean).all()
            assert predictor.means(np.array([0])).shape == (1, 1)

    def test_ranking_numbers_are_the_points(self, rng):
        ratings, _, _ = planted(rng)
        bias = fit_baselines(ratings)[2]
        table = bias.means(np.array([5, 7]))
        assert table[1, 9] == pytest.approx(bias.offsets.points(np.array([7]), np.array([9]))[0])


@pytest.mark.data
def test_known_numbers_on_movielens(data_dir):
    ratings = load_dataset("ml-1m", folder=data_dir)
    (split,) = make_splits(ratings, "paper")
    found = {predictor.name: judge(split, predictor) for predictor in fit_baselines(split.train)}
    known = {
        ("constant", "log_score"): -1.309,
        ("constant", "within_one"): 0.909,
        ("bias", "log_score"): -1.202,
        ("bias", "rmse"): 0.902,
        ("bias", "pairs_authors"): 0.823,
        ("bias", "pairs_strict"): 0.896,
    }
    for (method, name), value in known.items():
        assert abs(found[method][name].value - value) < 4 * found[method][name].error, (method, name)
