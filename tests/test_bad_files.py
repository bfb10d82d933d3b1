from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest

from doublefeature import _delimited
from doublefeature.errors import EnvironmentProblem, RatingsError
from doublefeature.readers import read_ratings
from tests.examples import CSV, refusal

BAD_RATINGS = ["0", "6", "3.5", "-1", "", "NaN", "1e400", "-inf", "text", "1_0", "4;5", "0x4", '"4\n"x']


class TestBadContent:
    @pytest.mark.parametrize("value", BAD_RATINGS[:-1])
    def test_rating_outside_declared_levels(self, write, value):
        text = refusal(write(CSV + f"u3,Heat,{value}\n"), levels="1..5")
        assert "1 rating(s) lie outside levels 1..5 (first: line 5, user 'u3', item 'Heat', value " in text
        assert "Pass levels=..., on the command line --levels, or clean the data." in text

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
    start = rng.choice([CSV.encode(), b"1::2::3\n4::5::6\n", b'"a","b","4"\n' * 3, gzip.compress(CSV.encode())])
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
        with pytest.raises(EnvironmentProblem, match="no permission"):
            read_ratings(path)

    def test_permission_refused_by_the_system(self, write, monkeypatch):
        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        path = write(CSV)
        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(EnvironmentProblem, match=r"no permission to read this file. Try: chmod \+r") as problem:
            read_ratings(path)
        assert problem.value.exit_code == 3

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
