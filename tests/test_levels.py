from __future__ import annotations

import copy
from decimal import Decimal

import numpy as np
import pytest

from doublefeature.errors import RatingsError
from doublefeature.levels import Levels, check_levels, format_levels, parse_levels
from doublefeature.ratings import Ratings
from doublefeature.readers import read_ratings
from tests.examples import message


class TestDeclared:
    @pytest.mark.parametrize(
        ("text", "levels"),
        [
            ("1..5", (1, 2, 3, 4, 5)),
            ("-1..1", (-1, 0, 1)),
            ("0.5..2:0.5", (0.5, 1.0, 1.5, 2.0)),
            ("0..0.3:0.1", (0.0, 0.1, 0.2, 0.3)),
            ("low<mid<high", ("low", "mid", "high")),
            ("no < yes", ("no", "yes")),
            ("1,2,4", (1, 2, 4)),
            ("0..100:50", (0, 50, 100)),
            ("6<5<4<3<2<1", (6, 5, 4, 3, 2, 1)),
            ("3 < 1 < 2.5", (3.0, 1.0, 2.5)),
            ("1<2<3", (1, 2, 3)),
        ],
    )
    def test_notation(self, text, levels):
        assert parse_levels(text) == levels
        assert parse_levels(format_levels(levels)) == levels
        assert [type(level) for level in parse_levels(text)] == [type(level) for level in levels]

    @pytest.mark.parametrize(
        "text",
        ["", "5", "5..1", "1..1", "1..", "a..b", "1..1000", "1..2:0", "1..2:-1", "1..2:0.3", "nan..5",
         "1..inf", "1e999999999..2e999999999", "low<low", "low<", "2,1", "1,1", "1,x,", "1..5\n6",
         "1<2<1.0", "2<"],
    )  # fmt: skip
    def test_bad_notation(self, text):
        with pytest.raises(RatingsError) as problem:
            parse_levels(text)
        message(problem)

    @pytest.mark.parametrize("levels", [[1], [], [1, "low"], [1, 1], [2, 1], [1, float("nan")], range(256), [None, 1]])
    def test_bad_sequences(self, levels):
        with pytest.raises(RatingsError):
            check_levels(levels)

    def test_text_numbers_count_as_numbers(self):
        assert check_levels(["1", "2"]) == (1, 2)
        assert check_levels(np.array([1.0, 2.0])) == (1, 2)
        assert len(check_levels(range(255))) == 255

    def test_falling_numbers_ask_for_the_order(self):
        for levels in ([3, 2, 1], (3, 2, 1), "3,2,1", ["3", "1", "2"]):
            with pytest.raises(RatingsError, match=r"must increase and not repeat\. Write '3<2<1' to"):
                check_levels(levels)


class TestStatedOrder:
    """Grades of which 1 is the best: numbers between `<` keep the order the user states."""

    rows = (["ann", "bob", "cem"], ["Alien"] * 3, [1, 6, 4])

    @pytest.fixture
    def graded(self):
        return Ratings.from_triples(*self.rows, levels="6<5<4<3<2<1")

    def test_best_grade_is_the_highest_level(self, graded):
        assert graded.levels == (6, 5, 4, 3, 2, 1)
        assert graded.arrays.levels.tolist() == [5, 0, 2]
        assert graded.values().tolist() == [1, 6, 4]
        assert graded.rated_items("cem") == {"Alien": 4}
        assert repr(graded).endswith("levels 6<5<4<3<2<1)")
        with pytest.raises(RatingsError, match="lie outside levels 6<5<4<3<2<1"):
            Ratings.from_triples([1], [1], [0], levels="6<5<4<3<2<1")

    @pytest.mark.parametrize("given", [(6, 5, 4, 3, 2, 1), [6, 5, 4, 3, 2, 1], "6..1", "6..1:-1", "6,5,4,3,2,1"])
    def test_only_between_angles(self, given):
        with pytest.raises(RatingsError):
            Ratings.from_triples(*self.rows, levels=given)

    def test_never_inferred(self):
        assert Ratings.from_triples(*self.rows).levels == parse_levels("1..10")

    def test_checked_levels_are_taken_back(self, graded):
        again = Ratings.from_codes(*graded.triples(), users=graded.users, items=graded.items, levels=graded.levels)
        assert again.fingerprint == graded.fingerprint == graded.top_items(1).fingerprint
        assert all(part.levels is graded.levels for part in graded.split(0.3))
        assert type(copy.deepcopy(graded.levels)) is Levels

    def test_from_a_file(self, graded, write):
        path = write("ann,Alien,1\nbob,Alien,6\ncem,Alien,4\n")
        assert read_ratings(path, levels="6<5<4<3<2<1").fingerprint == graded.fingerprint

    def test_positions_of_any_order(self, rng):
        for _ in range(20):
            numbers = rng.permutation(12)[:7] / 4
            r = Ratings.from_triples(range(7), range(7), numbers, levels="<".join(map(str, numbers)))
            assert r.arrays.levels.tolist() == list(range(7))
            assert r.values().tolist() == numbers.tolist()


class TestInferred:
    @pytest.mark.parametrize(
        ("values", "text"),
        [
            ([4, 4], "1..5"),
            ([1, 5], "1..5"),
            ([1.0, 3.0], "1..5"),
            ([0.5, 3], "0.5..5:0.5"),
            ([3.5, 3], "0.5..5:0.5"),
            ([0, 1], "0..1"),
            ([True, False], "0..1"),
            ([0, 0], "0..1"),
            ([1, 7], "1..10"),
            ([0, 7], "0..10"),
            ([10, 20, 40], "10..40:10"),
            ([-1, 1], "-1..1:2"),
            ([Decimal("2.5"), 1], "0.5..5:0.5"),
            (["4", "2"], "1..5"),
            (np.array([1.5, 4.5], np.float32), "0.5..5:0.5"),
        ],
    )
    def test_read_off_the_data(self, values, text):
        n = len(values)
        assert Ratings.from_triples(range(n), range(n), values).levels == parse_levels(text)

    @pytest.mark.parametrize(
        ("values", "text"),
        [
            ([1, 2, 3, 4, 5, 6, 7], "1..7"),
            ([0, 1, 2, 3], "0..3"),
            ([1, 2, 3, 4], "1..4"),
            ([2, 3, 4, 5], "1..5"),
            ([3, 4, 5], "3..5"),
            ([1, 3, 5], "1..5:2"),
            ([4], "1..5"),
            ([0, 1], "0..1"),
            ([1, 2], "1..2"),
            ([1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5], "0.5..5:0.5"),
            ([0, *range(4, 21)], "0..20"),
            (range(101), "0..100"),
            ([-10, -5, 0, 10], "-10..10:5"),
            ([10, 20, 80], "10,20,80"),
            (np.arange(0, 11, dtype=np.float32) / 10, "0..1:0.1"),
        ],
    )
    def test_many_ratings_show_their_scale(self, values, text):
        values = np.resize(list(values), 300)
        assert Ratings.from_triples(range(300), range(300), values).levels == parse_levels(text)

    @pytest.mark.parametrize(
        ("values", "reason"),
        [
            ([0, *range(10**6, 10**6 + 21)], "22 distinct"),
            ([0.1 + k * k / 7 for k in range(30)], "30 distinct"),
            (list(range(300)), "300 distinct.*Round them.*255 at most"),
            ([37, 37], "1 distinct"),
            ([37] * 300, "1 distinct"),
            (["low", "high"], "low<mid<high"),
            ([1, float("nan")], "not a finite number"),
            ([1, None], "not a finite number"),
            ([1, float("inf")], "not a finite number"),
            ([1, 10**400], "not a finite number"),
        ],
    )
    def test_not_to_be_told(self, values, reason):
        n = len(values)
        with pytest.raises(RatingsError, match=reason) as problem:
            Ratings.from_triples(range(n), range(n), values)
        message(problem)


class TestValues:
    def test_rounded_values_find_their_level(self):
        values = np.array([0.1, 0.3], np.float32)
        r = Ratings.from_triples([1, 2], [1, 2], values, levels="0..0.3:0.1")
        assert r.values().tolist() == [0.1, 0.3]

    @pytest.mark.parametrize("value", [0, 6, 3.5, -1, float("nan"), float("inf"), None, "", "text", "1_0", "x\ny"])
    def test_outside_declared_levels(self, value):
        with pytest.raises(RatingsError, match=r"1 rating\(s\) lie outside levels 1\.\.5 \(first: row 1, user 'u2'"):
            Ratings.from_triples(["u1", "u2"], ["m", "m"], [5, value], levels="1..5")

    def test_message_in_full(self):
        with pytest.raises(RatingsError) as problem:
            Ratings.from_triples(["u1", "u17", "u2"], ["m", "m4", "m"], [5, 7, 9], levels=[1, 2, 3, 4, 5])
        assert message(problem) == (
            "ratings: 2 rating(s) lie outside levels 1..5 (first: row 1, user 'u17', item 'm4', value 7). "
            "Pass levels=..., on the command line --levels, or clean the data."
        )

    def test_text_levels(self):
        r = Ratings.from_triples([1, 2], [1, 1], ["high", "low"], levels="low<mid<high")
        assert r.arrays.levels.tolist() == [2, 0]
        assert r.rated_items(1) == {1: "high"}
        with pytest.raises(RatingsError, match="are text"):
            r.values()
        with pytest.raises(RatingsError, match="lie outside levels low<mid<high"):
            Ratings.from_triples([1, 2], [1, 1], ["high", "lo"], levels="low<mid<high")
