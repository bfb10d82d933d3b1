from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from doublefeature import _rows
from doublefeature.errors import RatingsError, SettingsError
from doublefeature.ratings import RatingArrays, Ratings
from tests.examples import message


def random_triples(rng, n_users=30, n_items=20, n_ratings=200):
    pairs = rng.choice(n_users * n_items, n_ratings, replace=False)
    return pairs // n_items, pairs % n_items, rng.integers(1, 6, n_ratings)


@pytest.fixture
def ratings(rng):
    return Ratings.from_triples(*random_triples(rng))


@pytest.fixture
def tiny():
    return Ratings.from_triples(["ann", "ann", "bob"], ["Alien", "Heat", "Alien"], [5, 2, 3])


class TestArrays:
    def test_both_views_agree_with_a_dict(self, rng):
        users, items, values = random_triples(rng)
        truth = {(int(u), int(i)): int(v) for u, i, v in zip(users, items, values, strict=True)}
        r = Ratings.from_triples(users, items, values)
        a = r.arrays
        by_user = {
            (r.users[u], r.items[a.item_codes[p]]): r.levels[a.levels[p]]
            for u in range(r.n_users)
            for p in range(a.user_ptr[u], a.user_ptr[u + 1])
        }
        by_item = {
            (r.users[a.user_codes[p]], r.items[i]): r.levels[a.levels[a.positions[p]]]
            for i in range(r.n_items)
            for p in range(a.item_ptr[i], a.item_ptr[i + 1])
        }
        assert by_user == by_item == truth
        assert all(a.item_codes[a.positions[p]] == i for i in range(r.n_items) for p in range(*a.item_ptr[i : i + 2]))

    def test_codes_ascend_within_a_user_and_within_an_item(self, ratings):
        a = ratings.arrays
        for ptr, codes in ((a.user_ptr, a.item_codes), (a.item_ptr, a.user_codes)):
            for start, stop in pairwise(ptr):
                assert (np.diff(codes[start:stop].astype(np.int64)) > 0).all()

    def test_fields_and_types_are_fixed(self, ratings, tiny):
        dtypes = ["int64", "uint32", "uint8", "int64", "uint32", "uint32"]
        train, test = ratings.split()
        for part in (ratings, tiny, train, test, ratings.top_items(3)):
            assert [x.dtype.name for x in part.arrays] == dtypes
            assert all(x.flags.c_contiguous and x.ndim == 1 for x in part.arrays)
        assert RatingArrays._fields == (
            "user_ptr", "item_codes", "levels", "item_ptr", "user_codes", "positions",
        )  # fmt: skip

    def test_memory(self, rng):
        n = 200_000
        pairs = rng.permutation(1000 * 400)[:n]
        codes = (
            (pairs // 400).astype(np.uint32),
            (pairs % 400).astype(np.uint32),
            rng.integers(0, 5, n, np.uint8),
        )
        tables = {"users": range(1000), "items": range(400), "levels": "1..5"}
        Ratings.from_codes(*codes, **tables)
        tracemalloc.start()
        r = Ratings.from_codes(*codes, **tables)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(x.nbytes for x in r.arrays) == 13 * n + 8 * (1001 + 401)
        assert peak < 25 * n
        assert r.users == range(1000)

    def test_sizes(self, ratings):
        assert len(ratings) == ratings.n_ratings == 200
        assert ratings.density == 200 / (ratings.n_users * ratings.n_items)
        assert ratings.level_counts.sum() == 200
        assert (ratings.level_counts == np.bincount(ratings.values().astype(int), minlength=6)[1:]).all()

    def test_repr(self, tiny):
        assert repr(tiny) == "Ratings(2 users × 2 items, 3 ratings, levels 1..5)"


class TestIds:
    def test_sorted_whatever_the_row_order(self, rng):
        users, items, values = random_triples(rng)
        order = rng.permutation(len(users))
        a = Ratings.from_triples(users, items, values)
        b = Ratings.from_triples(users[order], items[order], values[order])
        assert list(a.users) == sorted(set(users.tolist()))
        assert a.users == b.users
        assert a.items == b.items
        assert all((x == y).all() for x, y in zip(a.arrays, b.arrays, strict=True))
        assert a.fingerprint == b.fingerprint

    def test_ids_of_mixed_kinds_do_not_depend_on_row_order(self):
        mixed = [3, "b", (1, 2), "a", 1]
        a = Ratings.from_triples(mixed, ["m"] * 5, [1, 2, 3, 4, 5])
        b = Ratings.from_triples(mixed[::-1], ["m"] * 5, [5, 4, 3, 2, 1])
        assert a.users == b.users
        assert a.fingerprint == b.fingerprint

    def test_numpy_ids_become_plain(self):
        r = Ratings.from_triples([np.int64(2), np.int64(1)], np.array(["x", "y"]), [1, 2])
        assert [type(x) for x in (*r.users, *r.items)] == [int, int, str, str]

    def test_lookups(self, tiny):
        assert tiny.user_code("bob") == 1
        assert tiny.item_code("Heat") == 1
        assert tiny.rated_items("ann") == {"Alien": 5, "Heat": 2}
        users, items, levels = tiny.triples()
        assert (users.tolist(), items.tolist(), levels.tolist()) == ([0, 0, 1], [0, 1, 0], [4, 1, 2])
        assert tiny.values().tolist() == [5, 2, 3]

    @pytest.mark.parametrize("wanted", ["carol", 7, None, ["ann"], "x" * 10_000, "a\nb"])
    def test_unknown_id(self, tiny, wanted):
        with pytest.raises(RatingsError, match=r"is not known\. Known ids look like 'ann', 'bob'") as problem:
            tiny.user_code(wanted)
        assert len(message(problem)) < 200

    def test_unknown_id_of_the_other_kind(self):
        r = Ratings.from_triples([17], ["4"], [3])
        with pytest.raises(RatingsError, match=r"user '17' is not known. Did you mean 17\?"):
            r.user_code("17")
        with pytest.raises(RatingsError, match=r"item 4 is not known. Did you mean '4'\?"):
            r.item_code(4)

    @pytest.mark.parametrize("bad", ["", None, float("nan"), "a\0b", "x" * 1001])
    def test_bad_ids(self, bad):
        with pytest.raises(RatingsError, match="ratings, row 1: the user id"):
            Ratings.from_triples(["ann", bad], ["Alien", "Alien"], [1, 2])
        with pytest.raises(RatingsError, match="the item id") as problem:
            Ratings.from_triples(["ann", "bob"], ["Alien", bad], [1, 2])
        message(problem)

    def test_unhashable_id(self):
        with pytest.raises(RatingsError, match="numbers or text"):
            Ratings.from_triples([["ann"]], ["Alien"], [1])


class TestDuplicates:
    rows = (["b", "a", "b", "b"], ["x", "x", "y", "x"], [1, 2, 3, 4])

    @pytest.mark.parametrize("second", [1, 4])
    def test_refused_with_both_places(self, second):
        users, items, values = self.rows
        values = [*values[:3], second]
        with pytest.raises(RatingsError, match="user 'b' rated item 'x' twice") as problem:
            Ratings.from_triples(users, items, values, lines=[2, 3, 4, 9], source="f.csv")
        assert f"(line 2: 1, line 9: {second})" in message(problem)
        with pytest.raises(RatingsError, match=r"row 0: 1, row 3"):
            Ratings.from_triples(users, items, values)
        with pytest.raises(RatingsError, match=r"line 7: 1, line 10"):
            Ratings.from_triples(users, items, values, lines=lambda row: row + 7)

    @pytest.mark.parametrize(("keep", "value"), [("first", 1), ("last", 4)])
    def test_kept(self, keep, value):
        r = Ratings.from_triples(*self.rows, duplicates=keep)
        assert r.rated_items("b") == {"x": value, "y": 3}
        assert r.rated_items("a") == {"x": 2}
        assert len(r) == 3

    @pytest.mark.parametrize("keep", ["first", "last"])
    def test_kept_agrees_with_a_dict(self, rng, keep):
        users, items, values = rng.integers(0, 8, 300), rng.integers(0, 8, 300), rng.integers(1, 6, 300)
        rows = list(zip(users.tolist(), items.tolist(), values.tolist(), strict=True))
        truth = {(u, i): v for u, i, v in (rows if keep == "last" else rows[::-1])}
        r = Ratings.from_triples(users, items, values, duplicates=keep)
        assert {(u, i): v for u in r.users for i, v in r.rated_items(u).items()} == truth

    def test_equal_items_of_neighbouring_users_are_no_repeat(self):
        assert len(Ratings.from_triples([1, 2, 3], ["x"] * 3, [1, 2, 3])) == 3

    def test_unknown_option(self):
        with pytest.raises(SettingsError, match="'error', 'first' or 'last', got 'mean'"):
            Ratings.from_triples([1], [1], [1], duplicates="mean")


class TestSizes:
    @pytest.mark.parametrize(
        "rows",
        [
            ([1, 1], ["x", "y"], [1, 2]),
            ([1, 2], ["x", "x"], [1, 2]),
            ([1, 2], ["x", "y"], [4, 4]),
            ([1], ["x"], [3]),
        ],
        ids=["one user", "one item", "all equal", "one rating"],
    )
    def test_small_is_fine(self, rows):
        r = Ratings.from_triples(*rows)
        assert len(r) == len(rows[0])
        assert r.n_levels == 5

    def test_nothing_and_uneven(self):
        with pytest.raises(RatingsError, match="no ratings"):
            Ratings.from_triples([], [], [])
        with pytest.raises(RatingsError, match="2 users, 1 items, 1 ratings"):
            Ratings.from_triples([1, 2], [1], [1])

    def test_too_many(self, monkeypatch):
        monkeypatch.setattr(_rows, "MAX_RATINGS", 1)
        with pytest.raises(RatingsError, match="1 are possible"):
            Ratings.from_triples([1, 2], [1, 1], [1, 2])


class TestFromCodes:
    def test_equals_from_triples(self, ratings):
        codes = [x[::-1] for x in ratings.triples()]
        again = Ratings.from_codes(*codes, users=ratings.users, items=ratings.items, levels=ratings.levels)
        assert again.fingerprint == ratings.fingerprint

    def test_range_and_tuple_have_one_fingerprint(self):
        codes = [np.array([0, 2]), np.array([0, 1]), np.array([1, 0])]
        a = Ratings.from_codes(*codes, users=range(3), items=range(2), levels="0..1")
        b = Ratings.from_codes(*codes, users=np.arange(3), items=[0, 1], levels=(0, 1))
        assert a.users == range(3)
        assert a.fingerprint == b.fingerprint
        assert a.rated_items(1) == {}

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"user_codes": np.array([0, 3])}, "user codes must lie in 0..2"),
            ({"item_codes": np.array([-1, 0])}, "item codes"),
            ({"level_codes": np.array([0, 2])}, "level codes"),
            ({"level_codes": np.array([0.0, 1.0])}, "whole numbers"),
            ({"level_codes": np.array([[0, 1]])}, "one row"),
            ({"level_codes": np.array([0])}, "do not match"),
            ({"users": "aab"}, "user ids must differ"),
            ({"users": range(2**31)}, "2147483648 user ids given"),
            ({"item_codes": np.array([0, 0]), "user_codes": np.array([1, 1])}, "user 1 rated item 0 twice"),
            ({"levels": [1]}, "level"),
        ],
    )
    def test_refuses(self, change, reason):
        good = {
            "user_codes": np.array([0, 2]),
            "item_codes": np.array([0, 1]),
            "level_codes": np.array([1, 0]),
            "users": range(3),
            "items": range(2),
            "levels": "0..1",
        }
        with pytest.raises(RatingsError, match=reason) as problem:
            Ratings.from_codes(**(good | change))
        message(problem)

    def test_no_ratings_at_all(self):
        none = np.zeros(0, np.uint32)
        r = Ratings.from_codes(none, none, none, users=range(3), items=range(2), levels="1..5")
        assert len(r) == 0
        assert r.arrays.user_ptr.tolist() == [0, 0, 0, 0]


def pairs_of(r):
    return set(zip(*(x.tolist() for x in r.triples()), strict=True))


class TestSplits:
    def test_parts_make_the_whole(self, ratings):
        for train, test in (ratings.split(0.25, seed=3), ratings.split_one_per_user(seed=3)):
            assert pairs_of(train) | pairs_of(test) == pairs_of(ratings)
            assert not pairs_of(train) & pairs_of(test)
            assert train.users is test.users is ratings.users
        assert len(ratings.split(0.25)[1]) == 50

    def test_seed_decides(self, ratings):
        assert ratings.split(seed=1)[1].fingerprint == ratings.split(seed=np.int64(1))[1].fingerprint
        assert ratings.split(seed=1)[1].fingerprint != ratings.split(seed=2)[1].fingerprint

    def test_one_per_user(self):
        r = Ratings.from_triples([1, 1, 1, 2, 3, 3], [1, 2, 3, 1, 1, 2], [1, 2, 3, 4, 5, 1])
        train, test = r.split_one_per_user(seed=0)
        assert np.diff(test.arrays.user_ptr).tolist() == [1, 0, 1]
        assert np.diff(train.arrays.user_ptr).tolist() == [2, 1, 1]

    def test_one_per_user_reaches_every_rating(self):
        r = Ratings.from_triples([1, 1, 1], [1, 2, 3], [1, 2, 3])
        held = {tuple(r.split_one_per_user(seed)[1].arrays.item_codes.tolist()) for seed in range(40)}
        assert held == {(0,), (1,), (2,)}

    @pytest.mark.parametrize("seed", [True, 1.0, "1", None, -1, np.float64(2)])
    def test_seed_must_be_whole(self, ratings, seed):
        with pytest.raises(SettingsError, match="seed must be a whole number"):
            ratings.split(seed=seed)
        with pytest.raises(SettingsError, match="seed"):
            ratings.split_one_per_user(seed=seed)

    @pytest.mark.parametrize("share", [0, 1, -0.1, float("nan"), "half", None])
    def test_share_must_be_a_share(self, ratings, share):
        with pytest.raises(SettingsError, match="test_share"):
            ratings.split(share)

    @pytest.mark.parametrize("mask", [np.ones(3, bool), np.ones(200), np.ones((200, 1), bool)])
    def test_bad_mask(self, ratings, mask):
        with pytest.raises(RatingsError, match="mask"):
            ratings.subset(mask)

    def test_subset_views(self, ratings, rng):
        mask = rng.random(200) < 0.5
        part = ratings.subset(mask)
        users, items, levels = ratings.triples()
        rebuilt = Ratings.from_codes(
            users[mask], items[mask], levels[mask], users=part.users, items=part.items, levels=part.levels
        )
        assert all((x == y).all() for x, y in zip(part.arrays, rebuilt.arrays, strict=True))
        assert len(ratings.subset(np.zeros(200, bool))) == 0


class TestTopItems:
    @pytest.fixture
    def r(self):
        return Ratings.from_triples(
            ["a", "b", "c", "a", "b", "a", "d"],
            ["x", "x", "x", "y", "y", "w", "w"],
            [1, 2, 3, 4, 5, 1, 2],
        )

    def test_ties_go_to_the_lower_code(self, r):
        assert r.top_items(2).items == ("w", "x")
        assert r.top_items(1).items == ("x",)
        assert r.top_items(99).fingerprint == r.fingerprint

    def test_users_left_without_ratings_go(self, r):
        top = r.top_items(1)
        assert top.users == ("a", "b", "c")
        assert top.rated_items("c") == {"x": 3}
        assert r.top_items(2, min_ratings_per_user=2).users == ("a",)

    @pytest.mark.parametrize("n", [0, 1.5, True, "3"])
    def test_n_must_be_whole(self, r, n):
        with pytest.raises(SettingsError, match="n must be"):
            r.top_items(n)


class TestFingerprint:
    @pytest.mark.parametrize(
        "other",
        [
            (["ann", "bob"], ["Alien", "Alien"], [5, 4], None),
            (["ann", "bill"], ["Alien", "Alien"], [5, 3], None),
            (["ann", "bob"], ["Alien", "Heat"], [5, 3], None),
            (["ann", "bob"], ["Alien", "Alien"], [5, 3], "1..6"),
        ],
    )
    def test_sees_every_change(self, other):
        base = Ratings.from_triples(["ann", "bob"], ["Alien", "Alien"], [5, 3])
        *rows, levels = other
        assert Ratings.from_triples(*rows, levels=levels).fingerprint != base.fingerprint

    def test_text_and_number_ids_differ(self):
        assert Ratings.from_triples([1], [1], [1]).fingerprint != Ratings.from_triples(["1"], [1], [1]).fingerprint
