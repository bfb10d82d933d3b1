"""Ratings keep when they were given, and are the same ratings without it."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pytest

from doublefeature.errors import RatingsError
from doublefeature.ratings import Ratings
from doublefeature.readers import read_ratings

ROWS = [("b", "y", 3, 50.0), ("a", "y", 1, 10.0), ("b", "x", 5, 40.0), ("a", "x", 2, 20.0)]
STORED = [20.0, 10.0, 40.0, 50.0]  # by user, then by item


def triples(rows=ROWS):
    users, items, values, times = zip(*rows, strict=True)
    return {"users": users, "items": items, "values": values, "times": times}


def text(rows=ROWS, head="user,item,rating,timestamp\n", mark=","):
    return head + "".join(mark.join(map(str, row)) + "\n" for row in rows)


class TestRatings:
    def test_stored_order_and_fingerprint(self):
        with_times = Ratings.from_triples(**triples())
        without = Ratings.from_triples(**{k: v for k, v in triples().items() if k != "times"})
        assert with_times.times.tolist() == STORED
        assert without.times is None
        assert with_times.fingerprint == without.fingerprint

    def test_any_row_order_gives_the_same_times(self, rng):
        users, items = np.divmod(rng.permutation(60 * 30)[:700], 30)
        times = rng.integers(0, 10**9, 700)
        ratings = Ratings.from_codes(
            users, items, np.zeros(700, np.uint8), users=range(60), items=range(30), levels="0..1", times=times
        )
        said = {(u, i): t for u, i, t in zip(users.tolist(), items.tolist(), times.tolist(), strict=True)}
        stored_users, stored_items, _ = ratings.triples()
        assert [said[u, i] for u, i in zip(stored_users.tolist(), stored_items.tolist(), strict=True)] == [
            *ratings.times.tolist()
        ]

    @pytest.mark.parametrize(("which", "time"), [("first", 20.0), ("last", 99.0)])
    def test_repeats(self, which, time):
        again = Ratings.from_triples(**triples([*ROWS, ("a", "x", 4, 99.0)]), duplicates=which)
        assert again.times.tolist() == [time, *STORED[1:]]

    def test_parts_keep_their_times(self):
        ratings = Ratings.from_triples(**triples())
        assert ratings.subset(np.array([True, False, False, True])).times.tolist() == [20.0, 50.0]
        assert ratings.top_items(1).times.tolist() == [20.0, 40.0]

    @pytest.mark.parametrize("times", [[1.0, 2.0], [1.0, 2.0, 3.0, np.nan], ["a", "b", "c", "d"]])
    def test_bad_times_are_refused(self, times):
        with pytest.raises(RatingsError, match="time"):
            Ratings.from_triples(**{**triples(), "times": times})


class TestFiles:
    @pytest.mark.parametrize(
        "content",
        [
            text(),
            text(head="", mark="::"),
            text(head="", mark="\t"),
            text(head="rating;Time Stamp;user;item\n", mark=";", rows=[(r, t, u, i) for u, i, r, t in ROWS]),
        ],
    )
    def test_are_found(self, write, content):
        assert read_ratings(write(content)).times.tolist() == STORED

    def test_gzip(self, write):
        assert read_ratings(write(gzip.compress(text().encode()), "r.csv.gz")).times.tolist() == STORED

    @pytest.mark.parametrize(
        ("column", "head"), [("given", "user,item,rating,given\n"), (3, "user,item,rating,given\n")]
    )
    def test_named_by_the_caller(self, write, column, head):
        path = write(text(head=head))
        assert read_ratings(path).times is None
        assert read_ratings(path, time=column).times.tolist() == STORED

    def test_dates(self, write):
        dates = ["2003-02-28", "2001-01-01T12:00:00", "1999-12-31 23:59:59", "2003-03-01T00:00:00Z"]
        rows = [(*row[:3], date) for row, date in zip(ROWS, dates, strict=True)]
        found = read_ratings(write(text(rows))).times
        assert found.tolist() == [1046476800.0, 978350400.0, 946684799.0, 1046390400.0]

    @pytest.mark.parametrize("bad", ["yesterday noon", "", "nan"])
    def test_what_is_no_time_is_left_alone_unless_asked_for(self, write, bad):
        path = write(text([*ROWS[:3], (*ROWS[3][:3], bad)]))
        assert read_ratings(path).times is None
        assert read_ratings(path).n_ratings == 4
        with pytest.raises(RatingsError, match=r"line 5: .* is not a time"):
            read_ratings(path, time="timestamp")

    def test_asked_for_and_not_there(self, write):
        path = write("user,item,rating\na,x,1\nb,x,2\n")
        with pytest.raises(RatingsError, match="no time column 'when'"):
            read_ratings(path, time="when")
        with pytest.raises(RatingsError, match="cannot hold times"):
            read_ratings(path, time="rating")

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, lambda d: pl.DataFrame(d).lazy()])
    def test_frames(self, make):
        columns = dict(zip(("user", "item", "rating", "timestamp"), zip(*ROWS, strict=True), strict=True))
        assert read_ratings(make(columns)).times.tolist() == STORED
        seconds = pd.to_datetime(list(columns["timestamp"]), unit="s")
        assert read_ratings(pd.DataFrame({**columns, "timestamp": seconds})).times.tolist() == STORED
        assert read_ratings(pl.DataFrame({**columns, "timestamp": list(seconds)})).times.tolist() == STORED
        assert read_ratings(make({**columns, "timestamp": ["?", "a", "b", "c"]})).times is None
        with pytest.raises(RatingsError, match="no times"):
            read_ratings(make({**columns, "timestamp": ["?", "a", "b", "c"]}), time="timestamp")
