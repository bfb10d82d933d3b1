"""A folder of ratings files reads as one file with all their rows."""

from __future__ import annotations

import gzip

import pytest

from doublefeature.errors import RatingsError
from doublefeature.readers import ratings_folder, read_ratings
from tests.examples import CSV, refusal

HEADER, *ROWS = CSV.splitlines()


def parts(folder, *groups: list[str], name: str = "part-{}.csv"):
    folder.mkdir(exist_ok=True)
    for k, rows in enumerate(groups):
        (folder / name.format(k)).write_text("\n".join([HEADER, *rows]) + "\n")
    return folder


def test_files_read_as_one(tmp_path, write):
    folder = parts(tmp_path / "parts", ROWS[:1], ROWS[1:])
    assert read_ratings(folder).fingerprint == read_ratings(write(CSV)).fingerprint
    assert ratings_folder(folder).read().fingerprint == read_ratings(folder).fingerprint


def test_ids_are_numbers_only_if_all_are(tmp_path):
    folder = parts(tmp_path / "parts", ["1,2,3"], ["1,x,4"])
    ratings = read_ratings(folder)
    assert ratings.users == (1,)
    assert ratings.items == ("2", "x")


def test_levels_are_those_of_all_files(tmp_path):
    folder = parts(tmp_path / "parts", ["1,2,3"], ["1,3,9"])
    assert read_ratings(folder).levels == tuple(range(1, 11))


def test_other_kinds_of_files(tmp_path):
    folder = parts(tmp_path / "parts", ROWS[:2])
    (folder / "more.tsv.gz").write_bytes(gzip.compress("\n".join(ROWS[2:]).replace(",", "\t").encode()))
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").write_text("")
    assert len(read_ratings(folder)) == len(ROWS)


def test_parquet(tmp_path, write):
    pl = pytest.importorskip("polars")
    folder = tmp_path / "parts.parquet"
    folder.mkdir()
    table = pl.read_csv(write(CSV))
    table[:1].write_parquet(folder / "0.parquet")
    table[1:].write_parquet(folder / "1.parquet")
    assert read_ratings(folder).fingerprint == read_ratings(write(CSV)).fingerprint
    (folder / "2.csv").write_text(CSV)
    assert "Keep one kind" in refusal(folder)


def test_times_are_kept_when_all_files_have_them(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.csv").write_text("1,2,3,10\n")
    (folder / "b.csv").write_text("1,3,4,20\n")
    assert read_ratings(folder).times.tolist() == [10, 20]
    (folder / "c.csv").write_text("1,4,5\n")
    assert read_ratings(folder).times is None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("u1,Alien,9", "(first: part-1.csv, line 3, user 'u1', item 'Alien', value '9')"),
        (",Heat,4", "part-1.csv, line 3: the user id is missing"),
        ("u9,Heat", "part-1.csv, line 3: 2 field(s) where line 1 has 3"),
        (ROWS[0], "twice (part-0.csv, line 2: 5, part-1.csv, line 3: 5)"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, row, reason):
    folder = parts(tmp_path / "parts", ROWS[:1], [ROWS[1], row])
    assert reason in refusal(folder, levels="1..5")


def test_which_of_two_rows_counts(tmp_path):
    folder = parts(tmp_path / "parts", ["u1,Alien,5"], ["u1,Alien,2"])
    assert read_ratings(folder, duplicates="first").values().tolist() == [5]
    assert read_ratings(folder, duplicates="last").values().tolist() == [2]


def test_folders_that_are_none_of_ratings(tmp_path):
    folder = parts(tmp_path / "parts", ROWS)
    (folder / "truth.npz").write_text("")
    assert "truth.npz in it is no file of ratings" in refusal(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RatingsError, match="without ratings"):
        ratings_folder(tmp_path / "empty")
