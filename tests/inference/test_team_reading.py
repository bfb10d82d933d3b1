"""Files that workers read: the model folder is, byte by byte, that of who reads them all."""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature.config import Moves, Schedule, preset
from doublefeature.covariates import with_covariates
from doublefeature.errors import EnvironmentProblem, RatingsError
from doublefeature.inference import desks
from doublefeature.inference.placing import SLICE, even_cut, place_folder
from doublefeature.inference.slices import cut_slice
from doublefeature.inference.team_models import create_in_parts
from doublefeature.inference.team_reading import read_parts
from doublefeature.inference.teams import Desk, LostWorker
from doublefeature.posterior.store import ModelFolder
from doublefeature.readers import Reading, ratings_folder, read_ratings
from tests.inference.thread_team import ThreadTeam
from tests.test_folders import parts

TABLES = ("users", "items", "ratings", "heldout")
SETTINGS = {
    "priors": preset("paper"),
    "schedule": Schedule(sweeps=2, warmup=0, chains=1),
    "moves": Moves(),
    "seed": 4,
    "preset": "paper",
    "items": None,
}


def rows(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    cells = rng.permutation(50 * 30)[:n]
    return [f"u{cell // 30},{cell % 30},{rng.integers(1, 6)}" for cell in cells.tolist()]


def tables(path) -> list[bytes]:
    return [(path / f"{name}.safetensors").read_bytes() for name in TABLES]


@pytest.mark.parametrize(("size", "files"), [(1, 3), (2, 5), (4, 2), (3, 7)])
def test_same_model_folder(tmp_path, size, files):
    lines = rows(400)
    source = ratings_folder(parts(tmp_path / "parts", *(lines[k::files] for k in range(files))))
    team = ThreadTeam(size)
    made, placed = create_in_parts(team, source, tmp_path / "parted", SETTINGS, 0.1)
    train, heldout = source.read().split(0.1, seed=4)
    ModelFolder.create(tmp_path / "whole", ratings=train, heldout=heldout, **SETTINGS)
    assert tables(tmp_path / "parted") == tables(tmp_path / "whole")
    assert placed
    assert made.fingerprint == train.fingerprint
    assert not made.holds_ratings
    assert made.ratings.fingerprint == train.fingerprint
    for rank, desk in enumerate(team.desks):
        for mine, theirs in zip(desk.kept[SLICE], cut_slice(train.arrays, rank, size), strict=True):
            assert np.array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype


def test_covariates(tmp_path):
    folder = parts(tmp_path / "parts", rows(60), [])
    (folder / "part-1.csv").unlink()
    users = {f"u{k}": {"age": str(20 + k)} for k in range(50)}
    source = with_covariates(ratings_folder(folder), users=users, user_covariates=["age"])
    settings = {**SETTINGS, "priors": preset("full"), "preset": "full"}
    whole = with_covariates(read_ratings(folder), users=users, user_covariates=["age"])
    for holdout in (0.0, 0.25):
        team = ThreadTeam(2)
        made, _ = create_in_parts(team, source, tmp_path / f"parted-{holdout}", settings, holdout)
        train = whole.split(holdout, seed=SETTINGS["seed"])[0] if holdout else whole
        assert made.outline.covariates.user_names == ("age",)
        assert made.outline.users == whole.users
        assert whole.outline.user_ptr[-2] == whole.n_ratings  # the last user has none
        assert made.fingerprint == train.fingerprint
        for rank, desk in enumerate(team.desks):
            for mine, theirs in zip(desk.kept[SLICE], cut_slice(train.arrays, rank, 2), strict=True):
                assert np.array_equal(mine, theirs)
    assert source.read().fingerprint == whole.fingerprint


@pytest.mark.parametrize("which", ["first", "last"])
def test_which_of_two_rows_counts(tmp_path, which):
    lines = rows(90)
    folder = parts(tmp_path / "parts", lines, ["u0,3,1", *lines[:20]], ["u0,3,4"])
    found = read_parts(ThreadTeam(3), folder, Reading(), duplicates=which)
    assert found.train.n_ratings == len(read_ratings(folder, duplicates=which))


@pytest.mark.parametrize("bad", [",1,4", "u9,4", "u1,7,", "u1,8,x", "u1,x,x", "u1,2\0,3", "u1, ,2", "u1,1,1e999"])
@pytest.mark.parametrize("levels", [None, "1..5"])
def test_bad_rows_are_told_in_the_same_words(tmp_path, bad, levels):
    lines = rows(100)
    folder = parts(tmp_path / "parts", lines[:50], [*lines[50:], bad])
    source = ratings_folder(folder, levels=levels)
    with pytest.raises(RatingsError) as whole:
        source.read()
    with pytest.raises(RatingsError) as parted:
        read_parts(ThreadTeam(2), source.path, source.reading)
    assert str(parted.value) == str(whole.value)
    assert "part-1.csv, line 52" in str(parted.value)


def test_a_pair_that_comes_twice_is_told_in_the_same_words(tmp_path):
    lines = rows(100)
    source = ratings_folder(parts(tmp_path / "parts", lines[:50], [*lines[50:], lines[3]]))
    with pytest.raises(RatingsError) as whole:
        source.read()
    with pytest.raises(RatingsError) as parted:
        read_parts(ThreadTeam(2), source.path, source.reading)
    assert str(parted.value) == str(whole.value)


def test_even_cut_covers_all_rows():
    ptr = np.array([0, 0, 5, 5, 100, 101])
    for size in range(1, 9):
        cut = even_cut(ptr, size)
        assert cut[0] == 0
        assert cut[-1] == 5
        assert (np.diff(cut) >= 0).all()


class Unlucky(ThreadTeam):
    """Loses a worker at every so many calls of all, a number of times."""

    def __init__(self, size: int, losses: int) -> None:
        super().__init__(size)
        self.losses, self.calls = losses, 0

    def ask(self, rank, function, *arguments):
        self.calls += 1
        if self.losses and self.calls % 3 == 0:
            self.losses -= 1
            raise LostWorker("worker 1 is gone")
        return super().ask(rank, function, *arguments)


def test_reading_begins_again_when_a_worker_is_lost(tmp_path):
    source = ratings_folder(parts(tmp_path / "parts", rows(200)))
    made, _ = create_in_parts(Unlucky(2, 2), source, tmp_path / "model", SETTINGS, 0.1)
    assert made.fingerprint == source.read().split(0.1, seed=4)[0].fingerprint
    with pytest.raises(EnvironmentProblem, match="lost 3 times while they read"):
        create_in_parts(Unlucky(2, 3), source, tmp_path / "other", SETTINGS, 0.1)


def test_a_worker_lost_after_the_folder_was_made(tmp_path, monkeypatch):
    def lose(*arguments):
        raise LostWorker("worker 1 is gone")

    monkeypatch.setattr("doublefeature.inference.team_models.cut_slices", lose)
    source = ratings_folder(parts(tmp_path / "parts", rows(100)))
    team = ThreadTeam(2)
    made, placed = create_in_parts(team, source, tmp_path / "model", SETTINGS, 0.0)
    assert not placed
    place_folder(team, made)
    assert SLICE in team.desks[1].kept


def test_a_desk_nobody_calls_is_forgotten(monkeypatch):
    team = ThreadTeam(1)
    monkeypatch.setattr(desks, "DESKS", {"idle": team.desks[0], "busy": Desk(team.desks[0].link)})
    desks.DESKS["busy"].idle_since = float("inf")
    desks.forget_idle()
    assert set(desks.DESKS) == {"idle", "busy"}
    desks.DESKS["idle"].idle_since -= 3600
    desks.forget_idle()
    assert set(desks.DESKS) == {"busy"}
