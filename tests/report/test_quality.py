import math

import numpy as np
import pytest
from scipy.stats import binomtest

import doublefeature as df
from doublefeature.report.quality import (
    Quality,
    Rule,
    calibration,
    calibration_gap,
    coverage,
    share_interval,
    simple_rules,
)
from doublefeature.report.verdict import is_honest
from doublefeature.studies.recovery import Design, simulate


class TestCalibration:
    def test_a_hand_made_example(self):
        proba = np.array([[0.15, 0.85], [0.15, 0.85], [0.62, 0.38], [0.05, 0.95]])
        bins = calibration(proba, np.array([1, 0, 0, 1]))
        assert [part.n for part in bins] == [1, 2, 1, 1, 2, 1]
        assert [part.predicted for part in bins] == pytest.approx([0.05, 0.15, 0.38, 0.62, 0.85, 0.95])
        assert [part.observed for part in bins] == [0.0, 0.5, 0.0, 1.0, 0.5, 1.0]
        gap = (0.05 + 2 * 0.35 + 0.38 + 0.38 + 2 * 0.35 + 0.05) / 8
        assert calibration_gap(bins) == pytest.approx(gap)

    def test_certain_predictions_fall_into_the_last_bin(self):
        bins = calibration(np.array([[1.0, 0.0]]), np.array([0]))
        assert [(part.n, part.predicted, part.observed) for part in bins] == [(1, 0.0, 0.0), (1, 1.0, 1.0)]

    def test_honest_probabilities_lie_on_the_line_and_sharpened_ones_do_not(self, rng):
        honest = rng.dirichlet(np.full(5, 0.7), size=4000)
        truth = (honest.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1).clip(max=4)
        fine = quality_of(honest, truth)
        assert fine.misses <= 2
        assert fine.gap < 0.01
        assert is_honest(fine)
        sharp = honest**2 / (honest**2).sum(axis=1, keepdims=True)
        wrong = quality_of(sharp, truth)
        assert wrong.misses >= 6
        assert not is_honest(wrong)
        assert wrong.bins[-1].observed < wrong.bins[-1].predicted

    def test_the_interval_is_wilson_s(self):
        for hits, n in [(0, 1), (0, 30), (1, 3), (17, 40), (40, 40), (1, 10_000)]:
            ends = binomtest(hits, n).proportion_ci(method="wilson")
            assert share_interval(hits, n) == pytest.approx((ends.low, ends.high), abs=1e-12)

    def test_coverage_of_a_hand_made_example(self):
        proba = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
        found = coverage(proba, np.array([2, 2]), 0.8)
        assert found.promised == pytest.approx((0.9 + 0.8) / 2)
        assert found.observed == 0.5
        assert coverage(proba, np.array([2, 2]), 0.5).observed == 0.0
        assert coverage(proba, np.array([1, 0]), 0.5).observed == 1.0


def quality_of(proba, truth):
    nothing = Rule("nothing", 0.0, 0.0, 1.0, math.nan, np.zeros(truth.size))
    return Quality(truth.size, truth.size, nothing, [nothing], calibration(proba, truth), [])


@pytest.fixture
def parts():
    ratings, _ = simulate(Design(users=15, items=8, tau=0.8), seed=2)
    train, test = ratings.split(0.4, seed=1)
    return train, *(column.astype(np.int64) for column in test.triples())


class TestSimpleRules:
    def test_agree_with_plain_loops(self, parts):
        train, users, items, truth = parts
        common, mean, habit = simple_rules(*parts)
        rows = list(zip(*(column.tolist() for column in train.triples()), strict=True))
        level = max(range(5), key=lambda r: sum(row[2] == r for row in rows))
        assert common.exact == pytest.approx(np.mean(truth == level))
        assert common.rmse == pytest.approx(math.sqrt(np.mean((truth - level) ** 2)))
        means = {item: np.mean([r + 1 for _, i, r in rows if i == item]) for item in range(8)}
        shifts = {}
        for user in range(15):
            gaps = [r + 1 - means[i] for u, i, r in rows if u == user]
            shifts[user] = sum(gaps) / (len(gaps) + 5)
        plain = np.array([means[item] for item in items])
        assert mean.rmse == pytest.approx(math.sqrt(np.mean((truth + 1 - plain) ** 2)))
        assert mean.within_one == pytest.approx(np.mean(np.abs(np.rint(plain) - 1 - truth) <= 1))
        moved = np.array([min(max(means[i] + shifts[u], 1), 5) for u, i in zip(users, items, strict=True)])
        assert habit.rmse == pytest.approx(math.sqrt(np.mean((truth + 1 - moved) ** 2)))
        assert math.isnan(habit.log_score)

    def test_log_scores_are_those_of_shares(self, parts):
        train, _, items, truth = parts
        common, mean, _ = simple_rules(*parts)
        shares = (train.level_counts + 1) / (train.n_ratings + 5)
        assert common.log_score == pytest.approx(np.log(shares[truth]).mean())
        _, rated, levels = train.triples()
        total = 0.0
        for item, r in zip(items, truth, strict=True):
            own = levels[rated == item]
            total += math.log(((own == r).sum() + 5 * shares[r]) / (own.size + 5))
        assert mean.log_score == pytest.approx(total / truth.size)

    def test_an_item_without_ratings_gets_the_overall_mean(self):
        train = df.Ratings.from_codes(
            np.array([0, 1]), np.array([0, 0]), np.array([0, 2]), users=["a", "b"], items=["x", "y"], levels="1..3"
        )
        _, mean, _ = simple_rules(train, np.array([0]), np.array([1]), np.array([1]))
        assert mean.rmse == 0.0


class TestAdvantage:
    def rule(self, squared):
        squared = np.asarray(squared, dtype=float)
        return Rule("x", 0.0, 0.0, math.sqrt(squared.mean()), 0.0, squared)

    def against(self, mine, theirs):
        return Quality(len(mine), len(mine), self.rule(mine), [self.rule(theirs)], [], []).advantage

    def test_counts_standard_errors(self):
        gain = np.array([1.0, 2.0, 3.0, 2.0])
        assert self.against(np.zeros(4), gain) == pytest.approx(2.0 / (gain.std(ddof=1) / 2))

    def test_ties_and_constants(self):
        assert self.against([1, 1], [1, 1]) == 0.0
        assert self.against([1, 1], [2, 2]) == math.inf
        assert self.against([2, 2], [1, 1]) == -math.inf
        assert self.against([2], [1]) == 0.0
