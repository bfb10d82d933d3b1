from __future__ import annotations

import gzip
import random

import pytest

from doublefeature import _delimited
from doublefeature.errors import SettingsError
from doublefeature.readers import read_ratings
from tests.examples import CSV, EXPECTED, ROWS, refusal


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

    @pytest.mark.parametrize(
        "names",
        ["User-ID,ISBN,Book-Rating", "reviewerID,asin,overall", "student,exam,mark", "Respondent,Question,Answer"],
    )
    def test_names_of_other_trades(self, write, names):
        rows = [names, *(",".join(map(str, row)) for row in ROWS)]
        assert read_ratings(write("\n".join(rows))).fingerprint == EXPECTED

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

    @pytest.mark.parametrize("name", ["a; b; c", "a::b::c", "a\tb\tc", "a|b|c"])
    def test_separators_in_quotes(self, write, name):
        assert read_ratings(write(f'u1,"{name}",4\n')).items == (name,)

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
        lines = [f"{k},{rng.randrange(99)},{rng.randrange(1, 6)}" + "\n" * rng.choice([1, 1, 3]) for k in range(300)]
        whole = read_ratings(write("".join(lines))).fingerprint
        for size in (1, 7, 100):
            monkeypatch.setattr(_delimited, "_BLOCK_BYTES", size)
            assert read_ratings(write("".join(lines))).fingerprint == whole
        at = 1 + "".join(lines).count("\n")
        assert f"line {at}, user 7, item 7, value '9'" in refusal(write("".join(lines) + "7,7,9\n"), levels="1..5")

    def test_blanks_around_fields(self, write):
        assert read_ratings(write("user, item, rating\nu1, Alien, 5\n u1 ,Heat,2\nu2,Alien,4 ")).fingerprint == EXPECTED

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
