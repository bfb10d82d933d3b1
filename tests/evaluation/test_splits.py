"""Every protocol holds out what it says, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature.datasets import load_dataset
from doublefeature.errors import RatingsError, SettingsError
from doublefeature.evaluation.splits import PROTOCOLS, make_splits
from doublefeature.ratings import Ratings


@pytest.fixture
def ratings(rng):
    cells = rng.permutation(30 * 20)[:260]
    users, items = np.divmod(cells, 20)
    return Ratings.from_codes(
        users,
        items,
        rng.integers(0, 5, 260),
        users=[f"u{k}" for k in range(30)],
        items=range(20),
        levels="1..5",
        times=rng.integers(0, 100, 260),
    )


def triples(part):
    users, items, levels = part.triples()
    ids = [(part.users[u], part.items[i]) for u, i in zip(users.tolist(), items.tolist(), strict=True)]
    return set(zip(ids, levels.tolist(), strict=True))


class TestAll:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_parts_are_disjoint_share_tables_and_repeat(self, ratings, protocol):
        splits, again = (make_splits(ratings, protocol, seed=4) for _ in range(2))
        for split, twin in zip(splits, again, strict=True):
            train, test = triples(split.train), triples(split.test)
            assert train
            assert test
            assert not train & test
            assert train | test <= triples(ratings)
            assert (split.train.users, split.train.items, split.train.levels) == (
                split.test.users,
                split.test.items,
                split.test.levels,
            )
            assert split.fingerprint == twin.fingerprint
        if protocol != "paper":
            assert len(triples(splits[0].train) | triples(splits[0].test)) == 260

    def test_fingerprints_tell_seeds_and_protocols_apart(self, ratings):
        prints = [
            split.fingerprint
            for protocol in PROTOCOLS
            for seed in (0, 1)
            for split in make_splits(ratings, protocol, seed=seed)
        ]
        assert len(set(prints)) == len(prints)

    def test_protocols_draw_different_numbers_for_the_same_seed(self, ratings):
        (holdout,), folds = make_splits(ratings, "holdout", share=0.2), make_splits(ratings, "kfold")
        assert triples(holdout.test) != triples(folds[0].test)


class TestEach:
    def test_holdout(self, ratings):
        (split,) = make_splits(ratings, "holdout")
        assert split.test.n_ratings == 26
        (split,) = make_splits(ratings, "holdout", share=0.5)
        assert split.test.n_ratings == 130

    def test_kfold_holds_every_rating_out_once(self, ratings):
        splits = make_splits(ratings, "kfold", folds=4)
        parts = [triples(split.test) for split in splits]
        assert [len(part) for part in parts] == [65] * 4
        assert set.union(*parts) == triples(ratings)

    def test_paper_holds_out_one_rating_of_every_user(self, ratings):
        (split,) = make_splits(ratings, "paper", top_items=10)
        counts = np.diff(ratings.arrays.item_ptr)
        assert {counts[item] for item in split.train.items} == set(np.sort(counts)[-10:].tolist())
        left, held = np.diff(split.train.arrays.user_ptr), np.diff(split.test.arrays.user_ptr)
        assert (held == 1).all()
        assert (left + held >= 3).all()
        few = [u for u in ratings.users if len(set(ratings.rated_items(u)) & set(split.train.items)) < 3]
        assert few
        assert set(split.train.users) == set(ratings.users) - set(few)

    def test_paper_chooses_evenly_among_a_users_ratings(self):
        ratings = Ratings.from_codes(
            np.zeros(4, int), np.arange(4), np.zeros(4, int), users=["a"], items=range(4), levels="0..1"
        )
        drawn = [int(make_splits(ratings, "paper", seed=seed)[0].test.arrays.item_codes[0]) for seed in range(400)]
        counts = np.bincount(drawn, minlength=4)
        assert np.abs(counts - 100).max() < 4 * np.sqrt(400 * 0.25 * 0.75)

    def test_cold_users_and_items(self, ratings):
        (split,) = make_splits(ratings, "cold-users", share=0.2)
        assert ((np.diff(split.train.arrays.user_ptr) == 0) == (np.diff(split.test.arrays.user_ptr) > 0)).all()
        assert np.count_nonzero(np.diff(split.test.arrays.user_ptr)) == 6
        (split,) = make_splits(ratings, "cold-items")
        assert ((np.diff(split.train.arrays.item_ptr) == 0) == (np.diff(split.test.arrays.item_ptr) > 0)).all()
        assert np.count_nonzero(np.diff(split.test.arrays.item_ptr)) == 2

    def test_cold_users_with_some_ratings_given(self, ratings):
        (whole,) = make_splits(ratings, "cold-users", share=0.3)
        (split,) = make_splits(ratings, "cold-users", share=0.3, given=3)
        assert split.train.fingerprint == whole.train.fingerprint
        assert split.fingerprint != whole.fingerprint
        given, judged, cold = (np.diff(part.arrays.user_ptr) for part in (split.given, split.test, whole.test))
        assert given.tolist() == np.where(cold > 3, 3, 0).tolist()
        assert judged.tolist() == np.where(cold > 3, cold - 3, 0).tolist()
        pairs = [
            set(zip(*(part.triples()[side].tolist() for side in (0, 1)), strict=True))
            for part in (split.given, split.test)
        ]
        assert not pairs[0] & pairs[1]
        assert pairs[0] | pairs[1] <= set(zip(*(whole.test.triples()[side].tolist() for side in (0, 1)), strict=True))
        assert split.known.n_ratings == split.train.n_ratings + split.given.n_ratings
        assert make_splits(ratings, "cold-users", share=0.3, given=3)[0].fingerprint == split.fingerprint
        assert make_splits(ratings, "cold-users", share=0.3, given=3, seed=1)[0].fingerprint != split.fingerprint

    def test_given_ratings_are_drawn_evenly(self, ratings):
        """Every rating of a cold user is given as often as any other; the first ones would not be."""
        counts, cold_times = np.zeros(ratings.n_ratings), np.zeros(ratings.n_users)
        users, items, _ = (column.astype(np.int64) for column in ratings.triples())
        place = {pair: k for k, pair in enumerate(zip(users.tolist(), items.tolist(), strict=True))}
        for seed in range(300):
            (split,) = make_splits(ratings, "cold-users", share=0.5, given=2, seed=seed)
            for user, item in zip(*(column.tolist() for column in split.given.triples()[:2]), strict=True):
                counts[place[user, item]] += 1
            cold_times[np.unique(split.given.triples()[0])] += 1
        size = np.diff(ratings.arrays.user_ptr)[users]
        chance = np.minimum(2.0 / size, 1.0)
        expected, able = cold_times[users] * chance, size > 2
        error = np.sqrt(np.maximum(cold_times[users] * chance * (1.0 - chance), 1e-9))
        assert np.abs((counts - expected) / error)[able].max() < 4.5
        first = np.arange(users.size) - ratings.arrays.user_ptr[users] < 2
        assert np.abs((cold_times[users] * first - expected) / error)[able].max() > 4.5

    def test_given_belongs_to_cold_users_only(self, ratings):
        for protocol in ("holdout", "cold-items", "kfold"):
            assert all(split.given is None for split in make_splits(ratings, protocol, given=5))
        with pytest.raises(SettingsError, match="given"):
            make_splits(ratings, "cold-users", given=-1)
        with pytest.raises(RatingsError, match="leaves"):
            make_splits(ratings, "cold-users", given=500)

    def test_a_border_of_their_own_for_every_user_would_be_seen(self, ratings):
        starts, counts = ratings.arrays.user_ptr[:-1], np.diff(ratings.arrays.user_ptr)
        mask = np.zeros(ratings.n_ratings, bool)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            latest = np.argsort(ratings.times[start : start + count])[count - count // 3 :]
            mask[start + latest] = True
        train, test = ratings.subset(~mask), ratings.subset(mask)
        assert train.times.max() > test.times.min()

    def test_temporal_is_one_border_for_all(self, ratings):
        (split,) = make_splits(ratings, "temporal", share=0.3)
        assert split.train.times.max() < split.test.times.min()
        assert split.test.n_ratings <= 78
        assert split.test.n_ratings > 78 - np.count_nonzero(ratings.times == split.train.times.max())
        assert make_splits(ratings, "temporal", share=0.3, seed=7)[0].test.fingerprint == split.test.fingerprint


class TestRefusals:
    def test_one_line_each(self, ratings):
        no_times = Ratings.from_triples("aabb", "xyxy", [1, 2, 3, 4])
        same = Ratings.from_triples("aabb", "xyxy", [1, 2, 3, 4], times=[5, 5, 5, 5])
        for problem, text, call in [
            (SettingsError, "unknown protocol 'loo'", lambda: make_splits(ratings, "loo")),
            (SettingsError, "share must lie", lambda: make_splits(ratings, "holdout", share=1.0)),
            (SettingsError, "has no share", lambda: make_splits(ratings, "paper", share=0.2)),
            (SettingsError, "folds must be at least 2", lambda: make_splits(ratings, "kfold", folds=1)),
            (SettingsError, "seed must be", lambda: make_splits(ratings, "holdout", seed=-1)),
            (RatingsError, "needs timestamps", lambda: make_splits(no_times, "temporal")),
            (RatingsError, "0 to be judged by", lambda: make_splits(same, "temporal")),
            (RatingsError, "0 ratings to learn from", lambda: make_splits(no_times, "paper")),
        ]:
            with pytest.raises(problem, match=text) as caught:
                call()
            assert "\n" not in str(caught.value)


@pytest.mark.data
def test_the_paper_protocol_on_movielens(data_dir):
    ratings = load_dataset("ml-1m", folder=data_dir)
    (split,) = make_splits(ratings, "paper")
    assert (split.train.n_users, split.train.n_items, split.test.n_ratings) == (6019, 200, 6019)
    always_four = np.abs(split.test.arrays.levels.astype(int) - 3) <= 1
    assert abs(always_four.mean() - 0.912) < 0.012


@pytest.mark.data
@pytest.mark.parametrize("name", ["ml-100k", "ml-latest-small"])
def test_real_timestamps(data_dir, name):
    ratings = load_dataset(name, folder=data_dir)
    (split,) = make_splits(ratings, "temporal")
    assert split.train.times.max() < split.test.times.min()
    assert abs(split.test.n_ratings - 0.1 * ratings.n_ratings) < 100
