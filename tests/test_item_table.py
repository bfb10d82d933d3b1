from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

from doublefeature.errors import RatingsError
from doublefeature.item_table import read_items, read_users


def write(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "items.txt"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("movieId,title,genres\n1,Alien,Horror\n2,Heat,Crime\n", {1: "Alien", 2: "Heat"}),
        ("1::Alien::Horror\n2::Heat::Crime\n", {1: "Alien", 2: "Heat"}),
        ("1|Alien|01-Jan-1979\n2|Heat|\n", {1: "Alien", 2: "Heat"}),
        ("a\tAlien\nb\tHeat, 1995\n", {"a": "Alien", "b": "Heat, 1995"}),
        ('title,item\n"Heat, again",b\nAlien,a\n', {"b": "Heat, again", "a": "Alien"}),
        ("\ufeffid;name\n01;Alien\n2;Heat\n", {"01": "Alien", "2": "Heat"}),
        ("1,Alien,Horror|War\n2,Heat,Crime|Drama\n", {1: "Alien", 2: "Heat"}),
        ('1,"Alien; a|b",Horror\n2,Heat,Crime|Drama\n', {1: "Alien; a|b", 2: "Heat"}),
        ("1|Alien, The|x\n2|Heat, The|y\n", {1: "Alien, The", 2: "Heat, The"}),
    ],
)
def test_titles_by_id(tmp_path, text, table):
    assert {label: row["title"] for label, row in read_items(write(tmp_path, text)).items()} == table


def test_other_columns_are_kept(tmp_path):
    table = read_items(write(tmp_path, "movieId,title,genres\n1,Alien,Horror\n"))
    assert table == {1: {"title": "Alien", "genres": "Horror"}}


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("1::Alien (1979)::Horror|Sci-Fi\n", {"title": "Alien (1979)", "genres": "Horror|Sci-Fi"}),
        ("1,Alien (1979),Horror\n", {"title": "Alien (1979)", "genres": "Horror"}),
        (
            "1|Alien (1979)|01-Jan-1979||address|0|1|0|0|0|0|0|0|0|0|0|1|0|0|0|1|1|0|0\n",
            {"title": "Alien (1979)", "released": "01-Jan-1979", "genres": "Action|Horror|Sci-Fi|Thriller"},
        ),
        ("1|Alien (1979)|a|b\n", {"title": "Alien (1979)", "column 3": "a", "column 4": "b"}),
        ("1|Alien|x\n", {"title": "Alien", "column 3": "x"}),
    ],
)
def test_films_of_movielens_have_names(tmp_path, text, row):
    assert read_items(write(tmp_path, text)) == {1: row}


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("1::F::25::10::48067\n", {"gender": "F", "age": "25", "occupation": "10", "zip": "48067"}),
        ("1|25|F|writer|48067\n", {"age": "25", "gender": "F", "occupation": "writer", "zip": "48067"}),
        ("1|25|x|writer|48067\n", {"column 2": "25", "column 3": "x", "column 4": "writer", "column 5": "48067"}),
    ],
)
def test_users_of_movielens_have_names(tmp_path, text, row):
    assert read_users(write(tmp_path, text)) == {1: row}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(frame):
    table = read_items(frame({"movieId": ["01", "2"], "Title": ["Alien", None], "year": [1979, 1995]}))
    assert table == {"01": {"title": "Alien", "year": "1979"}, "2": {"title": "", "year": "1995"}}
    assert list(read_users(frame({"id": [3, 1], "age": [20, 30]}))) == [3, 1]
    with pytest.raises(RatingsError, match="a table of items cannot be read from None"):
        read_items(None)


def test_latin_1_is_read(tmp_path):
    table = read_items(write(tmp_path, "1::Amélie::Comedy\n", "latin-1"))
    assert table[1]["title"] == "Amélie"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the table of items is empty"),
        ("1 Alien\n", "no two columns"),
        ("1,Alien\n1,Heat\n", "line 2: item 1 comes twice"),
        ('1,"Alien\n2,Heat\n', "Close the quotes"),
    ],
)
def test_bad_tables_say_what_is_wrong(tmp_path, text, message):
    with pytest.raises(RatingsError, match=message) as problem:
        read_items(write(tmp_path, text))
    assert "\n" not in str(problem.value)


def test_missing_table(tmp_path):
    with pytest.raises(RatingsError, match="no such file"):
        read_items(tmp_path / "absent.csv")
