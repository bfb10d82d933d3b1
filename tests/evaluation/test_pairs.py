"""Pairwise scores against loops over every pair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from doublefeature.evaluation.pairs import score_pairs
from doublefeature.evaluation.splits import make_splits
from doublefeature.studies.recovery import Design, simulate


@pytest.fixture
def example(rng):
    ratings, _ = simulate(Design(users=12, items=9, tau=0.8), seed=4)
    (split,) = make_splits(ratings, "holdout", share=0.4)
    users, _, truth = (column.astype(np.int64) for column in split.test.triples())
    return rng.dirichlet(np.full(5, 0.8), size=truth.size).round(2) / 1.0, truth, users, split.train


def loops(proba, truth, users, train):
    """Both accuracies by loops over pairs, each held-out rating counted once."""
    raters, _, levels = train.triples()
    authors, strict = [], []
    for p, r, u in zip(proba, truth, users, strict=True):
        said, led = [], []
        for other in levels[raters == u].astype(int):
            above, below = p[other + 1 :].sum(), p[:other].sum()
            said.append((above > 0.5) == (r > other))
            if other != r:
                lead = above - below
                led.append(0.5 if abs(lead) < 1e-12 else (lead > 0) == (r > other))
        authors += [np.mean(said)] if said else []
        strict += [np.mean(led)] if led else []
    return np.mean(authors), np.mean(strict)


def normalised(proba):
    return proba / proba.sum(axis=1, keepdims=True)


class TestAgainstLoops:
    def test_accuracies(self, example):
        proba, truth, users, train = example
        proba = normalised(proba)
        found = score_pairs(proba, truth, users, train, resamples=2)
        authors, strict = loops(proba, truth, users, train)
        assert found["pairs_authors"].value == pytest.approx(authors)
        assert found["pairs_strict"].value == pytest.approx(strict)

    def test_counting_ties_as_wins_is_seen(self, example):
        proba, truth, users, train = example
        proba = normalised(proba)
        found = score_pairs(proba, np.minimum(truth + 1, 4), users, train, resamples=2)
        assert abs(found["pairs_authors"].value - loops(proba, truth, users, train)[0]) > 0.01

    def test_area(self, example):
        proba, truth, users, train = example
        proba = normalised(
            np.repeat([[5, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 2, 2, 3]], 50, axis=0)[: truth.size] * 1.0
        )
        found = score_pairs(proba, truth, users, train, resamples=2)["pairs_auc"].value
        raters, _, levels = train.triples()
        wins, losses, weights = [], [], []
        for p, r, u in zip(proba, truth, users, strict=True):
            others = [int(o) for o in levels[raters == u] if o != r]
            for o in others:
                lead = round(p[o + 1 :].sum() - p[:o].sum(), 12)
                (wins if r > o else losses).append((lead, 1 / len(others)))
        right = sum(a * b * ((x > y) + 0.5 * (x == y)) for x, a in wins for y, b in losses)
        weights = sum(a for _, a in wins) * sum(b for _, b in losses)
        assert found == pytest.approx(right / weights)

    def test_area_with_equal_weights_is_mann_whitney(self, rng):
        from doublefeature.evaluation.pairs import Area

        scores, win = rng.integers(0, 20, 200).astype(float), rng.random(200) < 0.4
        area = Area.of(np.arange(200), scores, win.astype(float), (~win).astype(float))
        u = mannwhitneyu(scores[win], scores[~win]).statistic
        assert area.value(np.ones(200)) == pytest.approx(u / (win.sum() * (~win).sum()))
        weights = rng.integers(0, 3, 200)
        again = np.repeat(np.arange(200), weights)
        u = mannwhitneyu(scores[again][win[again]], scores[again][~win[again]]).statistic
        assert area.value(weights.astype(float)) == pytest.approx(u / (win[again].sum() * (~win[again]).sum()))


class TestLimits:
    def test_who_knows_is_always_right_and_who_is_wrong_never(self, example):
        _, truth, users, train = example
        found = score_pairs(np.eye(5)[truth], truth, users, train)
        assert [found[name].value for name in found.estimates] == [1.0, 1.0, 1.0]
        assert found["pairs_strict"].error == 0.0

    def test_never_preferred(self, example):
        _, truth, users, train = example
        lowest = np.tile(np.eye(5)[0], (truth.size, 1))
        raters, _, levels = train.triples()
        never = [
            np.mean(levels[raters == u].astype(int) >= r)
            for r, u in zip(truth, users, strict=True)
            if (raters == u).any()
        ]
        assert score_pairs(lowest, truth, users, train)["pairs_authors"].value == pytest.approx(np.mean(never))

    def test_users_without_training_ratings_have_no_pairs(self):
        ratings, _ = simulate(Design(users=12, items=9, tau=0.8), seed=4)
        (split,) = make_splits(ratings, "cold-users", share=0.2)
        users, _, truth = split.test.triples()
        found = score_pairs(np.full((truth.size, 5), 0.2), truth, users, split.train, resamples=5)
        assert all(math.isnan(estimate.value) for estimate in found.estimates.values())
