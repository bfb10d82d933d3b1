from __future__ import annotations

import pytest

from doublefeature.datasets import DATASET_NAMES, data_folder, load_dataset
from doublefeature.errors import InputError, RatingsError

SHAPES = {
    "ml-100k": "Ratings(943 users × 1682 items, 100000 ratings, levels 1..5)",
    "ml-1m": "Ratings(6040 users × 3706 items, 1000209 ratings, levels 1..5)",
    "ml-latest-small": "Ratings(610 users × 9724 items, 100836 ratings, levels 0.5..5:0.5)",
}


def test_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DOUBLEFEATURE_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("DOUBLEFEATURE_DATA", "")
    assert data_folder() is None
    monkeypatch.delenv("DOUBLEFEATURE_DATA")
    assert data_folder() is None


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_absent_data_say_what_to_set(name, monkeypatch, tmp_path):
    monkeypatch.delenv("DOUBLEFEATURE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=f"Set DOUBLEFEATURE_DATA to the folder that holds {name}/"):
        load_dataset(name)
    monkeypatch.setenv("DOUBLEFEATURE_DATA", str(tmp_path / "two\nlines"))
    with pytest.raises(InputError, match="no such file") as problem:
        load_dataset(name)
    assert "\n" not in str(problem.value)


def test_unknown_name():
    with pytest.raises(InputError, match="data set 'netflix' is not known") as problem:
        load_dataset("netflix")
    assert problem.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("ml-100k", "u.data", "196\t242\t3\t881250949\n"),
        ("ml-1m", "ratings.dat", "1::1193::5\n"),
        ("ml-1m", "ratings.dat", "1::1193::5::978300760\n"),
        ("ml-latest-small", "ratings.csv", "userId,movieId,rating,timestamp\n1,1,4.0,964982703\n"),
    ],
)
def test_layouts(name, file, content, monkeypatch, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / name / file).write_text(content)
    monkeypatch.setenv("DOUBLEFEATURE_DATA", str(tmp_path))
    assert len(load_dataset(name)) == 1
    (tmp_path / name / file).write_text(content.replace("\t", " ").replace("::", ":").replace(",", ";"))
    with pytest.raises(RatingsError, match=r"line 1: 1 column\(s\) with separator"):
        load_dataset(name)


@pytest.mark.data
@pytest.mark.parametrize("name", DATASET_NAMES)
def test_real_data(name, data_dir, monkeypatch):
    monkeypatch.setenv("DOUBLEFEATURE_DATA", str(data_dir))
    assert repr(load_dataset(name)) == SHAPES[name]
