"""Top-n lists against loops over users."""

from __future__ import annotations

import math

import numpy as np
import pytest

from doublefeature.errors import SettingsError
from doublefeature.evaluation import ranking
from doublefeature.evaluation.ranking import relevant_level, score_ranking
from doublefeature.evaluation.splits import Split, make_splits
from doublefeature.ratings import Ratings


@pytest.fixture
def example(rng):
    users, items = np.divmod(rng.permutation(25 * 40)[:500], 40)
    ratings = Ratings.from_codes(users, items, rng.integers(0, 5, 500), users=range(25), items=range(40), levels="1..5")
    (split,) = make_splits(ratings, "holdout", share=0.3)
    return split, rng.random((25, 40))


def loops(split, table, n, border=3):
    totals = {"ndcg": [], "precision": [], "recall": []}
    for user in range(split.train.n_users):
        seen = set(split.train.rated_items(user))
        liked = {item for item, level in split.test.rated_items(user).items() if level >= border + 1}
        if not liked:
            continue
        candidates = sorted(set(range(split.train.n_items)) - seen, key=lambda item: -table[user, item])[:n]
        hits = [item in liked for item in candidates]
        gain = sum(hit / math.log2(place + 2) for place, hit in enumerate(hits))
        ideal = sum(1 / math.log2(place + 2) for place in range(min(n, len(liked))))
        totals["ndcg"].append(gain / ideal)
        totals["precision"].append(sum(hits) / n)
        totals["recall"].append(sum(hits) / len(liked))
    return {f"{name}_{n}": np.mean(values) for name, values in totals.items()}


@pytest.mark.parametrize("n", [1, 5, 10])
def test_agrees_with_loops(example, n, monkeypatch):
    split, table = example
    monkeypatch.setattr(ranking, "_CELLS", 100)
    found = score_ranking(split, lambda users: table[users], n=n)
    for name, value in loops(split, table, n).items():
        assert found[name].value == pytest.approx(value), name
        assert found[name].error > 0


def test_offering_what_was_rated_is_seen(example):
    split, table = example
    nothing = Split("holdout", 0, split.train.subset(np.zeros(split.train.n_ratings, bool)), split.test)
    wrong = score_ranking(nothing, lambda users: table[users])
    assert abs(wrong["recall_10"].value - loops(split, table, 10)["recall_10"]) > 0.02


def test_who_knows_the_truth_is_perfect(example):
    split, _ = example
    truth = np.zeros((25, 40))
    users, items, levels = split.test.triples()
    truth[users, items] = levels + 1
    found = score_ranking(split, lambda batch: truth[batch])
    assert found["ndcg_10"].value == pytest.approx(1.0)
    assert found["recall_10"].value == 1.0


def test_equal_numbers_are_in_random_order(example):
    split, _ = example
    values = [
        score_ranking(split, lambda batch: np.zeros((batch.size, 40)), resamples=2, seed=seed)["recall_10"].value
        for seed in range(200)
    ]
    left = 40 - np.diff(split.train.arrays.user_ptr)
    liked = split.test.subset(split.test.arrays.levels >= 3)
    expected = np.mean([10 / left[user] for user in range(25) if liked.rated_items(user)])
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / math.sqrt(200)


def test_a_sample_of_users_and_their_limits(example):
    split, table = example
    asked = []
    score_ranking(split, lambda users: asked.extend(users) or table[users], most_users=7)
    assert len(asked) == 7
    low = split.test.subset(split.test.arrays.levels < 3)
    assert score_ranking(Split("holdout", 0, split.train, low), lambda users: table[users]) is None
    with pytest.raises(SettingsError):
        score_ranking(split, lambda users: table[users], n=0)


@pytest.mark.parametrize(("n_levels", "code"), [(5, 3), (10, 7), (2, 1), (3, 2), (11, 8)])
def test_relevance(n_levels, code):
    assert relevant_level(n_levels) == code
