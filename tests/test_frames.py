from __future__ import annotations

import sys

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from doublefeature.errors import EnvironmentProblem, RatingsError
from doublefeature.readers import read_ratings
from tests.examples import CSV, EXPECTED, ROWS, refusal

COLUMNS = {
    "user": [u for u, _, _ in ROWS],
    "item": [i for _, i, _ in ROWS],
    "rating": [v for _, _, v in ROWS],
}


def duckdb_relation(columns):
    table = pa.table(columns)
    return duckdb.connect().from_arrow(table)


FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "arrow": pa.table,
    "duckdb": duckdb_relation,
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
class TestFrames:
    def test_read(self, make):
        assert read_ratings(make(COLUMNS)).fingerprint == EXPECTED

    def test_named_columns_and_extras(self, make):
        frame = make({"when": [1, 2, 3], "stars": COLUMNS["rating"], "who": COLUMNS["user"], "what": COLUMNS["item"]})
        r = read_ratings(frame, user="who", item="what", rating="stars")
        assert r.fingerprint == EXPECTED
        assert read_ratings(frame, user=2, item=3, rating=1).fingerprint == EXPECTED

    def test_number_ids(self, make):
        r = read_ratings(make({"userId": [2, 1], "movieId": [7, 7], "score": [0.5, 4.0]}))
        assert r.users == (1, 2)
        assert r.items == (7,)
        assert r.levels[0] == 0.5

    @pytest.mark.parametrize("column", ["user", "item", "rating"])
    def test_missing_values(self, make, column):
        columns = {**COLUMNS, column: [*COLUMNS[column][:2], None]}
        with pytest.raises(RatingsError, match=f"frame, row 2: column '{column}' has 1 missing value"):
            read_ratings(make(columns))

    def test_not_a_number(self, make):
        with pytest.raises(RatingsError, match="row 2"):
            read_ratings(make({**COLUMNS, "rating": [5.0, 2.0, float("nan")]}))

    def test_missing_column(self, make):
        frame = make({name: COLUMNS[name] for name in ("user", "item")})
        with pytest.raises(RatingsError, match="frame: no rating column among 'user', 'item'"):
            read_ratings(frame)

    def test_outside_levels(self, make):
        with pytest.raises(RatingsError, match=r"frame: 1 rating\(s\) lie outside .* row 0, user 'u1'"):
            read_ratings(make(COLUMNS), levels="1..4")

    def test_no_rows(self, make):
        empty = pa.table(COLUMNS).slice(0, 0).to_pydict()
        with pytest.raises(RatingsError, match="no ratings"):
            read_ratings(make(empty))


class TestOddFrames:
    def test_categories(self):
        frame = pd.DataFrame(COLUMNS).astype({"user": "category", "item": "category"})
        assert read_ratings(frame).fingerprint == EXPECTED
        frame = pl.DataFrame(COLUMNS).with_columns(pl.col("user").cast(pl.Categorical))
        assert read_ratings(frame).fingerprint == EXPECTED

    def test_nullable_and_small_integers(self):
        for kind in ("Int64", "int8", "float32"):
            assert read_ratings(pd.DataFrame(COLUMNS).astype({"rating": kind})).fingerprint == EXPECTED

    def test_decimals_and_booleans(self):
        frame = pl.DataFrame(COLUMNS).with_columns(pl.col("rating").cast(pl.Decimal(10, 2)))
        assert read_ratings(frame).fingerprint == EXPECTED
        frame = pl.DataFrame(COLUMNS).with_columns(pl.col("rating") > 4)
        assert read_ratings(frame).levels == (0, 1)

    def test_numbered_columns(self):
        frame = pd.DataFrame(ROWS)
        assert read_ratings(frame, user=0, item=1, rating=2).fingerprint == EXPECTED
        with pytest.raises(RatingsError, match="no user column among 0, 1, 2"):
            read_ratings(frame)

    def test_lists_and_repeated_names(self):
        with pytest.raises(RatingsError, match="numbers or text"):
            read_ratings(pl.DataFrame({**COLUMNS, "user": [[1], [2], [3]]}))
        frame = pd.DataFrame(ROWS, columns=["user", "user", "rating"])
        with pytest.raises(RatingsError) as problem:
            read_ratings(frame, item=0)
        assert "\n" not in str(problem.value)

    @pytest.mark.parametrize("source", [None, 7, [("u", "i", 3)], {"user": [1]}, b"ratings.csv"])
    def test_no_frame_at_all(self, source):
        with pytest.raises(RatingsError, match="ratings cannot be read from"):
            read_ratings(source)

    def test_failing_lazy_frame(self):
        frame = pl.LazyFrame(COLUMNS).with_columns(pl.col("rating").map_elements(lambda _: 1 / 0, pl.Int64))
        with pytest.raises(RatingsError, match="the frame cannot be read") as problem:
            read_ratings(frame)
        assert "\n" not in str(problem.value)


class TestParquet:
    def test_read(self, tmp_path):
        path = tmp_path / "ratings[1]*.parquet"
        pl.DataFrame({**COLUMNS, "timestamp": [1, 2, 3]}).write_parquet(path)
        assert read_ratings(path).fingerprint == EXPECTED

    def test_bad(self, write, tmp_path):
        assert "not a Parquet file" in refusal(write(CSV, "r.parquet"))
        assert "not a Parquet file" in refusal(write("", "r.parquet"))
        assert "cannot be read" in refusal(write("PAR1 and then nothing", "r.parquet"))
        path = tmp_path / "r.parquet"
        pl.DataFrame({**COLUMNS, "rating": [1, None, 2]}).write_parquet(path)
        assert "row 1: column 'rating' has 1 missing" in refusal(path)

    def test_without_polars(self, write, monkeypatch):
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(EnvironmentProblem, match=r"pip install 'doublefeature\[io\]'"):
            read_ratings(write(CSV, "r.parquet"))
