from __future__ import annotations

import gzip
import os
import random
import sys
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from doublefeature import _delimited
from doublefeature.errors import EnvironmentProblem, RatingsError, SettingsError
from doublefeature.ratings import Ratings
from doublefeature.readers import read_ratings

ROWS = [("u1", "Alien", 5), ("u1", "Heat", 2), ("u2", "Alien", 4)]
CSV = "user,item,rating\nu1,Alien,5\nu1,Heat,2\nu2,Alien,4\n"
EXPECTED = Ratings.from_triples(*zip(*ROWS, strict=True)).fingerprint


@pytest.fixture
def write(tmp_path):
    def write_file(content: str | bytes, name: str = "ratings.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def refusal(path, **options) -> str:
    """Read what must be refused; the message is one line and names the source."""
    with pytest.raises(RatingsError) as problem:
        read_ratings(path, **options)
    text = str(problem.value)
    assert text.isprintable(), text
    assert len(text) < 500
    assert Path(path).name in text
    return text


class TestLayouts:
    @pytest.mark.parametrize("separator", ["::", "\t", ",", ";", "|"])
    @pytest.mark.parametrize("header", [True, False])
    @pytest.mark.parametrize("timestamp", [True, False])
    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    def test_found_out(self, write, separator, header, timestamp, newline):
        rows = [("userId", "movieId", "rating", "timestamp")] * header + [(*row, "978300760") for row in ROWS]
        lines = [separator.join(map(str, row if timestamp else row[:3])) for row in rows]
        for end in ("", newline, newline * 3):
            assert read_ratings(write(newline.join(lines) + end)).fingerprint == EXPECTED

    @pytest.mark.parametrize("name", ["r.csv", "r.tsv", "r.txt", "r.data", "r.dat", "ratings"])
    @pytest.mark.parametrize("packed", [True, False])
    def test_suffixes(self, write, name, packed):
        content = gzip.compress(CSV.encode()) if packed else CSV
        assert read_ratings(write(content, name + ".gz" * packed)).fingerprint == EXPECTED

    def test_path_as_text(self, write):
        assert read_ratings(str(write(CSV))).fingerprint == EXPECTED

    def test_byte_order_mark(self, write):
        assert read_ratings(write(CSV.encode("utf-8-sig"))).fingerprint == EXPECTED

    @pytest.mark.parametrize(
        "header",
        ["user,item,rating", "USER_ID,Item Id,Stars", "uid,movieId,score", '"user_id","item-id","value"'],
    )
    def test_known_names(self, write, header):
        assert read_ratings(write(CSV.replace("user,item,rating", header))).fingerprint == EXPECTED

    def test_names_and_positions(self, write):
        path = write("when,stars,who,what\n1,5,u1,Alien\n2,2,u1,Heat\n3,4,u2,Alien\n")
        named = read_ratings(path, user="who", item="what", rating="stars")
        placed = read_ratings(path, user=2, item=3, rating=1)
        mixed = read_ratings(path, user="who", item=3)
        assert named.fingerprint == placed.fingerprint == mixed.fingerprint == EXPECTED

    def test_header_can_be_declared(self, write):
        path = write("1,2,3\n7,8,4\n")
        assert len(read_ratings(path)) == 2
        assert read_ratings(path, header=True, user="1", item="2", rating="3").users == (7,)
        assert read_ratings(path, header=True, user=0, item=1, rating=2).users == (7,)

    def test_text_levels_without_header(self, write):
        path = write("ann,Alien,high\nbob,Alien,low\n")
        assert len(read_ratings(path, levels="low<mid<high")) == 2

    def test_quotes(self, write):
        path = write('user,item,rating\nu1,"The ""Thing"", The",5\nu1,"two\nlines",4\nu2,plain,3\n')
        r = read_ratings(path)
        assert set(r.items) == {'The "Thing", The', "two\nlines", "plain"}

    def test_quotes_in_the_first_row(self, write):
        assert read_ratings(write('"u\n1","a; b; c",4\n"u\n2","m",5\n')).users == ("u\n1", "u\n2")
        assert len(read_ratings(write('"the\nuser",item,rating\n1,2,3\n'), user="the\nuser")) == 1

    def test_quotes_after_many_plain_lines(self, write, monkeypatch):
        monkeypatch.setattr(_delimited, "_BLOCK_BYTES", 64)
        monkeypatch.setattr(_delimited, "_BLOCK_ROWS", 3)
        plain = "".join(f"u{k},m,3\n" for k in range(50))
        quoted = "".join(f'v{k},"m\n{k}",4\n\n' for k in range(50))
        assert len(read_ratings(write("user,item,rating\n" + plain + quoted))) == 100
        text = refusal(write("user,item,rating\n" + plain + quoted + 'w,"m",six\n'))
        assert f"line {1 + 50 + 150 + 1}, user 'w', item 'm', value 'six'" in text

    def test_blocks_do_not_show(self, write, monkeypatch):
        rng = random.Random(5)
        lines = [
            f"{k},{rng.randrange(99)},{rng.randrange(1, 6)}" + "\n" * rng.choice([1, 1, 3])
            for k in range(300)
        ]
        whole = read_ratings(write("".join(lines))).fingerprint
        for size in (1, 7, 100):
            monkeypatch.setattr(_delimited, "_BLOCK_BYTES", size)
            assert read_ratings(write("".join(lines))).fingerprint == whole
        at = 1 + "".join(lines).count("\n")
        assert f"line {at}, user 7, item 7, value '9'" in refusal(
            write("".join(lines) + "7,7,9\n"), levels="1..5"
        )

    def test_blanks_around_fields(self, write):
        assert (
            read_ratings(write("user, item, rating\nu1, Alien, 5\n u1 ,Heat,2\nu2,Alien,4 ")).fingerprint
            == EXPECTED
        )

    @pytest.mark.parametrize(
        ("ids", "expected"),
        [
            (["10", "9", "-2"], (-2, 9, 10)),
            (["10", "09"], ("09", "10")),
            (["1", "+2"], ("+2", "1")),
            (["1", "-0"], ("-0", "1")),
            (["1", "2.0"], ("1", "2.0")),
            (["1", "٣"], ("1", "٣")),
            (["9" * 30, "1"], (1, int("9" * 30))),
        ],
    )
    def test_whole_number_ids(self, write, ids, expected):
        path = write("user,item,rating\n" + "".join(f"{name},m,3\n" for name in ids))
        assert read_ratings(path).users == expected

    def test_duplicates_option(self, write):
        path = write(CSV + "u1,Alien,1\n")
        assert read_ratings(path, duplicates="last").rated_items("u1")["Alien"] == 1
        assert read_ratings(path, duplicates="first").fingerprint == EXPECTED
        with pytest.raises(SettingsError, match="duplicates"):
            read_ratings(path, duplicates="mean")

    @pytest.mark.parametrize("content", ["u,m,4\n", "u,m,4\nu,n,4", "u,m,4\nv,m,4"])
    def test_small_is_fine(self, write, content):
        r = read_ratings(write(content))
        assert len(r) == content.count("4")
        assert r.levels == (1, 2, 3, 4, 5)

    def test_line_numbers(self):
        numbers = _delimited._LineNumbers()
        numbers.append(range(2, 5))
        numbers.append(range(0))
        numbers.append([7, 9])
        assert [numbers(row) for row in range(5)] == [2, 3, 4, 7, 9]


BAD_RATINGS = ["0", "6", "3.5", "-1", "", "NaN", "1e400", "-inf", "text", "1_0", "4;5", "0x4", '"4\n"x']


class TestBadContent:
    @pytest.mark.parametrize("value", BAD_RATINGS[:-1])
    def test_rating_outside_declared_levels(self, write, value):
        text = refusal(write(CSV + f"u3,Heat,{value}\n"), levels="1..5")
        assert "1 rating(s) lie outside levels 1..5 (first: line 5, user 'u3', item 'Heat', value " in text
        assert "Pass levels=... or clean the data." in text

    @pytest.mark.parametrize("value", ["", "NaN", "1e400", "-inf", "text", "1_0"])
    def test_rating_without_declared_levels(self, write, value):
        text = refusal(write(CSV + f"u3,Heat,{value}\n"))
        assert f"a rating is not a finite number (line 5, user 'u3', item 'Heat', value {value!r})" in text
        assert "low<mid<high" in text

    def test_first_line_of_a_file_without_header(self, write):
        assert "line 1, user 1, item 2, value 'x'" in refusal(write("1,2,x\n1,3,4\n"))

    @pytest.mark.parametrize("second", [5, 1])
    def test_duplicates(self, write, second):
        text = refusal(write(CSV + f"\nu1,Alien,{second}\n"))
        assert f"user 'u1' rated item 'Alien' twice (line 2: 5, line 6: {second})" in text
        assert "duplicates='first'" in text

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("", "empty"),
            ("\n\n\r\n", "empty"),
            ("\ufeff", "empty"),
            ("user,item,rating\n", "line 1: a header and no ratings"),
            ("user,item,rating", "line 1: a header and no ratings"),
            ("user,item\nu1,Alien\n", "line 1: no three columns between any of"),
            ("user item rating\nu1 Alien 5\n", "Pass separator="),
            ("user,item,stamp\nu1,Alien,now\n", "line 1: no rating column among 'user', 'item', 'stamp'"),
            ("a,b,c\nu1,Alien,4\n", "no user column among 'a', 'b', 'c'. Pass user="),
            (CSV + "u3,Heat\n", "line 5: 2 field(s) where line 1 has 3"),
            (CSV + "u3,Heat,4,7\n", "line 5: 4 field(s) where line 1 has 3"),
            (CSV + "u3;Heat;4\n", "line 5: 1 field(s)"),
            (CSV + ",Heat,4\n", "line 5: the user id is missing"),
            (CSV + "u3,  ,4\n", "line 5: the item id is missing"),
            (CSV + "u3,He\0at,4\n", "line 5: a NUL byte"),
            (CSV + "u3,He\0at,4", "line 5: a NUL byte"),
            (CSV + "x" * 1001 + ",Heat,4\n", "line 5: the user id has 1001 characters, 1000 are possible"),
            (CSV + "9" * 1001 + ",Heat,4\n", "line 5: the user id has 1001 characters"),
            (CSV + "x" * 10**6 + ",Heat,4\n", "line 5: the line is longer than 1000000 bytes"),
            (CSV + "x" * 10**6 + ",Heat,4", "line 5: the line is longer than"),
            ("x" * 3_000_000, "line 1: the line is longer than"),
            (CSV + 'u3,"Heat,4\n', "line 5: unexpected end of data. Close the quotes"),
            (CSV + 'u3,"He"at,4\n', "line 5: ',' expected after '\"'"),
            (CSV + 'u3,"' + "x\n" * 100_000 + '",4\n', "line 5: field larger than field limit"),
            (
                CSV.encode() + b"u3,Caf\xe9,4\n",
                "line 5: byte 0xe9 is not UTF-8. Convert it, for example: iconv",
            ),
            (CSV.encode() + b"u3,Caf\xc3", "line 5: byte 0xc3 is not UTF-8"),
            (CSV.encode("utf-16"), "line 1: a NUL byte. Save the file as UTF-8"),
            (CSV.encode("utf-16-le"), "line 1: a NUL byte"),
            ('"user\n,item,rating\n', "line 1: no three columns"),
        ],
        ids=lambda value: repr(value[:20]) if len(value) > 20 else repr(value),
    )
    def test_refused(self, write, content, reason):
        assert reason in refusal(write(content))

    def test_ids_with_newlines_stay_on_one_line(self, write):
        text = refusal(write(CSV + 'u3,"He\n\u2028at",9\n'), levels="1..5")
        assert r"line 5, user 'u3', item 'He\n\u2028at', value '9'" in text

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"separator": ";"}, "line 1: 1 column(s) with separator ';', three are needed"),
            ({"separator": ""}, "separator '' cannot part fields"),
            ({"separator": '"'}, "cannot part fields"),
            ({"separator": "\n"}, "cannot part fields"),
            ({"user": "who"}, "no user column 'who' among 'user', 'item', 'rating'"),
            ({"user": 7}, "no user column 7 among"),
            ({"user": -1}, "no user column -1 among"),
            ({"user": "item"}, "need three columns"),
            ({"header": False, "user": "user"}, "cannot be found without a header"),
        ],
    )
    def test_wrong_options(self, write, options, reason):
        with pytest.raises(RatingsError) as problem:
            read_ratings(write(CSV), **options)
        assert reason in str(problem.value)
        assert "\n" not in str(problem.value)

    def test_wrong_levels_are_seen_before_the_file(self):
        with pytest.raises(RatingsError, match="cannot be read"):
            read_ratings("nowhere.csv", levels="1..x")

    def test_long_lines_are_not_loaded(self, tmp_path):
        path = tmp_path / "long.csv"
        with path.open("wb") as file:
            file.write(b"user,item,rating\n1,1,5\nx")
            file.seek(10**10)
            file.write(b"\n")
        assert "line 3" in refusal(path)


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_never_gets_past_the_reader(write, seed):
    rng, messages = random.Random(seed), []
    nasty = [
        b"\0",
        b'"',
        b"\n",
        b"\r",
        b",",
        b";",
        b"::",
        b"\xff",
        b"\xef\xbb\xbf",
        b"nan",
        b"-",
        b"9" * 400,
        b"\t",
    ]
    start = rng.choice(
        [CSV.encode(), b"1::2::3\n4::5::6\n", b'"a","b","4"\n' * 3, gzip.compress(CSV.encode())]
    )
    for _ in range(60):
        content = bytearray(start)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(content) + 1)
            content[at : at + rng.randint(0, 3)] = rng.choice(nasty)
        path = write(bytes(content))
        try:
            assert len(read_ratings(path)) > 0
        except RatingsError as problem:
            messages.append(str(problem))
    assert all(text.isprintable() and "ratings.csv" in text for text in messages)


class TestBadFiles:
    def test_missing(self, tmp_path):
        assert "there is no such file" in refusal(tmp_path / "nowhere.csv")
        assert "there is no such file" in refusal(tmp_path / "nowhere.parquet")
        with pytest.raises(RatingsError, match="no such file"):
            read_ratings("nul\0name.csv")

    def test_name_with_newline(self, tmp_path):
        with pytest.raises(RatingsError) as problem:
            read_ratings(tmp_path / "two\nlines.csv")
        assert "\n" not in str(problem.value)

    def test_name_too_long(self):
        with pytest.raises(RatingsError, match="cannot be read"):
            read_ratings("x" * 5000)

    def test_folder(self, tmp_path):
        assert "this is a folder" in refusal(tmp_path)
        (tmp_path / "f.parquet").mkdir()
        assert "this is a folder" in refusal(tmp_path / "f.parquet")

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
    def test_permission(self, write):
        path = write(CSV)
        path.chmod(0)
        assert "no permission" in refusal(path)

    def test_permission_refused_by_the_system(self, write, monkeypatch):
        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        path = write(CSV)
        monkeypatch.setattr(Path, "open", refuse)
        assert "no permission to read this file. Try: chmod +r" in refusal(path)

    def test_failing_disk(self, write, monkeypatch):
        def fail(*_):
            raise OSError(5, "Input/output error")

        path = write(CSV)
        monkeypatch.setattr(_delimited, "_chunks", fail)
        assert "cannot be read (Input/output error)" in refusal(path)


class TestGzip:
    def test_truncated(self, write):
        packed = gzip.compress(CSV.encode())
        for size in (3, 12, len(packed) - 9, len(packed) - 1):
            assert "end too early" in refusal(write(packed[:size], "r.csv.gz"))

    def test_damaged(self, write):
        packed = bytearray(gzip.compress(CSV.encode() * 50))
        packed[-6] ^= 255
        assert "damaged" in refusal(write(bytes(packed), "r.csv.gz"))
        assert "damaged" in refusal(write(packed[:10] + b"\xff" * 50, "r.csv.gz"))
        assert "damaged" in refusal(write(b"\x1f\x8b\x07" + b"x" * 50, "r.csv.gz"))

    def test_bomb(self, write, monkeypatch):
        monkeypatch.setattr(_delimited, "GZIP_ALLOWANCE", 2**18)
        packed = gzip.compress(b"1,1,5\n" * 500_000)
        assert 300 * len(packed) < 3_000_000
        text = refusal(write(packed, "r.csv.gz"))
        assert "unpacks to more than" in text

    def test_empty(self, write):
        assert "empty" in refusal(write(b"", "r.csv.gz"))
        assert "empty" in refusal(write(gzip.compress(b""), "r.csv.gz"))


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
        frame = make(
            {"when": [1, 2, 3], "stars": COLUMNS["rating"], "who": COLUMNS["user"], "what": COLUMNS["item"]}
        )
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


@pytest.mark.data
def test_million_lines(data_dir):
    ratings = read_ratings(data_dir / "ml-1m" / "ratings.dat")
    assert repr(ratings) == "Ratings(6040 users × 3706 items, 1000209 ratings, levels 1..5)"
    assert len(ratings.top_items(200)) == 298_333


@pytest.mark.data
def test_other_layouts(data_dir):
    tabs = read_ratings(data_dir / "ml-100k" / "u.data")
    assert repr(tabs) == "Ratings(943 users × 1682 items, 100000 ratings, levels 1..5)"
    commas = read_ratings(data_dir / "ml-latest-small" / "ratings.csv")
    assert repr(commas) == "Ratings(610 users × 9724 items, 100836 ratings, levels 0.5..5:0.5)"
