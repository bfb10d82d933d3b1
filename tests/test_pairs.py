"""Pairs to predict, as files, frames and tuples; and what the library refuses in one line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import doublefeature as df
from doublefeature.errors import InputError, NotFittedError, RatingsError, SettingsError
from doublefeature.pairs import as_pairs, read_item_ratings, read_pairs

PLAN = df.Schedule(sweeps=6, warmup=2, thin=2, chains=1, threads=1)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    users = [f"{u:03}" for u in range(8) for _ in range(6)]
    items = [f"i{i:02}" for _ in range(8) for i in range(6)]
    return df.DoubleFeature(schedule=PLAN).fit(df.Ratings.from_triples(users, items, rng.integers(1, 6, size=48)))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"user": ["001"], "item": ["i01"]}),
        pl.DataFrame({"item": ["i01"], "user": ["001"]}),
        pl.LazyFrame({"a": ["001"], "b": ["i01"]}),
        pl.DataFrame({"user": ["001"], "item": ["i01"]}).to_arrow(),
    ],
)
def test_frames_are_pairs(model, frame):
    assert model.predict(frame).pairs == [("001", "i01")]
    assert as_pairs(pd.DataFrame({"user": [1], "item": [2]})) == [(1, 2)]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (("001", "i01"), "a pair to predict must be"),
        ([("a", "b", "c")], "a pair to predict must be"),
        (["ab"], "got 'ab'"),
        ("001", "must be several"),
        (None, "got None"),
        (3, "got 3"),
        ([(["a"], "b")], "a user id is a number or text"),
        (pl.DataFrame({"user": ["a"]}), "1 column"),
        (pl.DataFrame({"user": ["a", None], "item": ["b", "c"]}), "missing"),
    ],
)
def test_what_is_no_pair(model, pairs, message):
    with pytest.raises(RatingsError, match=message) as problem:
        model.predict(pairs)
    assert "\n" not in str(problem.value)


def test_other_refusals(model):
    with pytest.raises(InputError, match="a user id is a number or text"):
        model.recommend([])
    with pytest.raises(SettingsError, match="path of a model folder"):
        df.load(None)
    for ask in (lambda new: new.features_, lambda new: new.predict([]), lambda new: new.top()):
        with pytest.raises(NotFittedError):
            ask(df.DoubleFeature())
    with pytest.raises(SettingsError, match="holdout is a share"):
        df.DoubleFeature(schedule=PLAN).fit(model.ratings_, holdout=1)
    with pytest.raises(SettingsError, match="thin \\(8\\) keeps no draw of the 5 sweeps"):
        df.DoubleFeature(schedule=df.Schedule(sweeps=10, warmup=5)).fit(model.ratings_)


def test_what_a_model_is_shown_as(model):
    assert repr(df.DoubleFeature(seed=3)) == "DoubleFeature(preset='full', seed=3, not fitted)"
    assert repr(model) == "DoubleFeature(preset='full', seed=0, fitted on 8 users × 6 items)"


class TestFiles:
    def test_header_by_names_or_by_what_a_model_knows(self, write):
        def known(user, item):
            return user.startswith("u"), item.startswith("i")

        assert [row[1:] for row in read_pairs(write("uid;iid\nu1;i1\n"))[0]] == [("u1", "i1")]
        path = write("who;what\nu1;i1\n")
        rows, taken = read_pairs(path, known=known)
        assert ([row[1:] for row in rows], taken) == ([("u1", "i1")], "who;what")
        assert len(read_pairs(path)[0]) == 2
        assert len(read_pairs(path, known=known, header=False)[0]) == 2
        assert len(read_pairs(write("who;what\nx;y\n"), known=known)[0]) == 2

    def test_a_separator_that_all_lines_have(self, write):
        rows, _ = read_pairs(write("u1,Alien; a film\nu2,Heat\n"))
        assert [row[1:] for row in rows] == [("u1", "Alien; a film"), ("u2", "Heat")]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the file is empty. Each line needs a user and an item."),
            ("u1\n", "line 1: no two columns"),
            ("u1,i1\nu2\n", "line 2: 1 field"),
            ("u1,i1\n,i2\n", "line 2: the user is missing"),
            ("user,item\n", "a header and no pairs"),
            ("item,who\ni1,u1\n", "no user column"),
        ],
    )
    def test_refused(self, write, text, message):
        with pytest.raises(RatingsError, match=message):
            read_pairs(write(text), header=True if text.startswith("item") else None)

    def test_parquet_that_has_no_pairs(self, tmp_path):
        path = tmp_path / "p.parquet"
        pl.DataFrame({"user": [], "item": []}).write_parquet(path)
        with pytest.raises(RatingsError, match="there are no rows"):
            read_pairs(path)
        path.write_bytes(b"PAR1" + b"nonsense" * 9)
        with pytest.raises(RatingsError, match="cannot be read"):
            read_pairs(path)

    def test_ratings_of_one_person(self, write):
        rows, _ = read_item_ratings(write('"a; b",5\nc,4\n'))
        assert [row[1:] for row in rows] == [("a; b", "5"), ("c", "4")]
        with pytest.raises(RatingsError, match="line 2: item 'a' comes twice"):
            read_item_ratings(write("a,5\na,4\n"))
