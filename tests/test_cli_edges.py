"""The command line given what it cannot use, or what is easily read in two ways."""

from __future__ import annotations

import csv
import gzip
import io
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import polars as pl
import pytest

import doublefeature as df
from doublefeature.config import PRESETS, Moves
from doublefeature.inference.fit import fit_into
from doublefeature.inference.shard_diagnosis import ShardedDiagnosis
from doublefeature.posterior.store import ModelFolder
from tests.command import Done, call

SHORT = ("--chains", 1, "--threads", 1)
MODULE = (sys.executable, "-m", "doublefeature")


@pytest.fixture
def run(monkeypatch, capsys):
    return partial(call, monkeypatch, capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("edges")
    rows = [f"u{u},i{i},{1 + (3 * u + 2 * i * i) % 5}" for u in range(16) for i in range(10) if (u + i) % 3]
    rows += [f"all,i{i},{1 + i % 5}" for i in range(10)]
    (place / "ratings.csv").write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    table = [f"i{i},Film {i},{'Comedy|Drama' if i % 2 else 'War'},{1980 + i}\n" for i in range(14)]
    (place / "items.csv").write_text("item,title,genres,year\n" + "".join(table))
    return place


@pytest.fixture(scope="module")
def model(folder):
    words = ["fit", folder / "ratings.csv", "--out", folder / "m", "--items", folder / "items.csv", *SHORT]
    words += ["--item-covariates", "genres,year", "--sweeps", 40, "--holdout", 0.3]
    done = subprocess.run([*MODULE, *map(str, words)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "m"


def refused(done: Done, text: str, code: int = 2) -> None:
    assert done.code == code, done.err
    assert text in done.err
    assert len(done.err.splitlines()) == 1
    assert done.out == ""


def pairs_of(done: Done) -> list[tuple[str, str]]:
    assert done.code == 0, done.err
    return [(row["user"], row["item"]) for row in csv.DictReader(io.StringIO(done.out))]


class TestPredict:
    @pytest.mark.parametrize(
        ("text", "pair"),
        [
            ('a,"Alien; the movie"\n', ("a", "Alien; the movie")),
            ('a,"x::y"\n', ("a", "x::y")),
            ('a,"one\ttwo"\n', ("a", "one\ttwo")),
            ('user,item\nu1,"two\nlines"\n', ("u1", "two\nlines")),
        ],
    )
    def test_separators_in_quotes_part_nothing(self, run, model, tmp_path, text, pair):
        (tmp_path / "p.csv").write_text(text)
        assert pairs_of(run("predict", model, tmp_path / "p.csv")) == [pair]

    def test_a_header_of_unknown_names(self, run, model, tmp_path):
        path = tmp_path / "p.csv"
        path.write_text("who,what,stars\nu1,i1,4\nu2,i3,2\n")
        done = run("predict", model, path)
        assert pairs_of(done) == [("u1", "i1"), ("u2", "i3")]
        assert "taken for a header" in done.err
        assert len(pairs_of(run("predict", model, path, "--no-header"))) == 3
        named = run("predict", model, path, "--user-column", "who", "--item-column", "what")
        assert pairs_of(named) == [("u1", "i1"), ("u2", "i3")]
        assert named.err == ""
        refused(run("predict", model, path, "--user-column", "whom", "--item-column", "what"), "no user column 'whom'")

    def test_columns_by_name(self, run, model, tmp_path):
        (tmp_path / "p.csv").write_text("rating,movieId,userId\n4,i1,u1\n")
        assert pairs_of(run("predict", model, tmp_path / "p.csv")) == [("u1", "i1")]
        (tmp_path / "p.csv").write_text("movieId,whom\ni1,u1\n")
        assert len(pairs_of(run("predict", model, tmp_path / "p.csv"))) == 2
        refused(run("predict", model, tmp_path / "p.csv", "--header"), "no user column")

    def test_gzip_parquet_and_json(self, run, model, tmp_path):
        (tmp_path / "p.csv.gz").write_bytes(gzip.compress(b"user,item\nu1,i1\n"))
        assert pairs_of(run("predict", model, tmp_path / "p.csv.gz")) == [("u1", "i1")]
        pl.DataFrame({"item": ["i1", "i2"], "user": ["u1", "u2"]}).write_parquet(tmp_path / "p.parquet")
        assert pairs_of(run("predict", model, tmp_path / "p.parquet")) == [("u1", "i1"), ("u2", "i2")]
        rows = run("predict", model, tmp_path / "p.parquet", "--json").json
        assert [row["item"] for row in rows] == ["i1", "i2"]

    @pytest.mark.parametrize("text", ["user,item\n", "user,item", ""])
    def test_nothing_to_predict(self, run, model, tmp_path, text):
        (tmp_path / "p.csv").write_text(text)
        refused(run("predict", model, tmp_path / "p.csv"), "a header and no pairs" if text else "empty")


class TestItemsNobodyRated:
    def test_are_answered_by_their_columns(self, run, model, tmp_path):
        (tmp_path / "p.csv").write_text("user,item\nu1,i12\nu1,i13\nu1,stranger\n")
        rows = run("predict", model, tmp_path / "p.csv", "--json").json
        assert [row["prior"] for row in rows] == ["", "", "item"]
        assert len({row["mean"] for row in rows}) == 3
        listed = {row["item"] for row in run("recommend", model, "-u", "u1", "-n", 20, "--json").json["items"]}
        assert {"i10", "i11", "i12", "i13"} <= listed
        assert len(run("top", model, "-n", 20, "--json").json) == 14
        assert run("similar", model, "i12").code == 0

    def test_come_back_from_the_folder_and_go_on(self, run, model, tmp_path):
        opened = ModelFolder.open(model)
        assert opened.ratings.items[10:] == ("i10", "i11", "i12", "i13")
        assert opened.ratings.covariates.items.shape[0] == 14


class TestSomeoneNew:
    def test_what_a_user_has_rated_does_not_come_back(self, run, model, tmp_path):
        (tmp_path / "mine.csv").write_text("thing,how good\ni2,5\ni10,1\n")
        fitted = df.load(model)
        rated = set(fitted.rated("u1")) | {"i2", "i10"}
        assert len(fitted.rated("u1")) > len(fitted.ratings_.rated_items("u1"))
        for verb in ("recommend", "ask"):
            for words in ((), ("--ratings", tmp_path / "mine.csv")):
                done = run(verb, model, "-u", "u1", "-n", 20, "--json", *words)
                shown = {row["item"] for row in done.json["items"]}
                assert len(shown) == 14 - len(rated if words else fitted.rated("u1"))
                assert not shown & (rated if words else set(fitted.rated("u1")))
                assert ("taken for a header" in done.err) == bool(words)

    def test_nothing_left_is_said(self, run, folder, tmp_path):
        words = ("fit", folder / "ratings.csv", "--out", tmp_path / "m", *SHORT, "--sweeps", 4)
        assert run(*words).code == 0
        for verb in ("recommend", "ask"):
            done = run(verb, tmp_path / "m", "--user", "all")
            assert (done.code, done.out) == (0, "")
            assert "user all has rated every item" in done.err


class TestPlan:
    def test_draws_are_kept_unless_told_otherwise(self, run, folder, tmp_path):
        words = ("fit", folder / "ratings.csv", *SHORT, "--out")
        assert run(*words, tmp_path / "m", "--sweeps", 10).code == 0
        assert len(ModelFolder.open(tmp_path / "m").posterior()) == 5
        refused(run(*words, tmp_path / "n", "--sweeps", 20, "--thin", 100), "thin (100) keeps no draw")
        assert not (tmp_path / "n").exists()

    def test_a_run_that_kept_none_can_be_made_longer(self, run, folder, tmp_path):
        plan = {"sweeps": 6, "warmup": 4, "thin": 5, "chains": 1, "threads": 1}
        made = ModelFolder.create(
            tmp_path / "m",
            ratings=df.read_ratings(folder / "ratings.csv"),
            priors=PRESETS["full"],
            schedule=df.Schedule(**plan),
            moves=Moves(),
            seed=1,
            preset="full",
        )
        fit_into(made)
        refused(run("resume", tmp_path / "m"), "thin (5) keeps no draw")
        assert run("resume", tmp_path / "m", "--sweeps", 14).code == 0
        assert len(ModelFolder.open(tmp_path / "m").posterior()) == 2

    def test_fewer_sweeps_than_planned_but_not_than_done(self, run, folder, tmp_path):
        made = df.DoubleFeature(schedule=df.Schedule(sweeps=60, warmup=4, thin=2, chains=1, threads=1))
        stop = _StopsLater(10)
        made.fit(folder / "ratings.csv", out=tmp_path / "m", stop=stop)
        done = ModelFolder.open(tmp_path / "m").sweeps_done[0]
        assert 8 < done < 40
        refused(run("resume", tmp_path / "m", "--sweeps", 3), f"has made {done} of 60 sweeps")
        assert run("resume", tmp_path / "m", "--sweeps", 40).code == 0
        assert ModelFolder.open(tmp_path / "m").sweeps_done == [40]


class _StopsLater:
    """An event that sets itself after it was asked about so often."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


class TestTables:
    def test_rows_that_match(self, run, folder, tmp_path):
        words = ("fit", folder / "ratings.csv", "--out", tmp_path / "m", *SHORT, "--sweeps", 4, "--items")
        (tmp_path / "none.csv").write_text("item,title\nx1,Foo\n")
        refused(run(*words, tmp_path / "none.csv"), "no item of the ratings is in the table")
        assert not (tmp_path / "m").exists()
        (tmp_path / "some.csv").write_text("item,title\ni1,Foo\n")
        assert "1 of 10 items have a row in" in run(*words, tmp_path / "some.csv").err

    def test_a_database_that_is_not_there(self, run, folder, tmp_path):
        typo = tmp_path / "typo.db"
        done = run("fit", folder / "ratings.csv", "--out", tmp_path / "m", "--database", f"sqlite:///{typo}")
        refused(done, "there is no such database")
        assert not typo.exists()

    def test_duplicates_and_header(self, run, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("a,b,1\na,b,2\nc,b,3\n")
        refused(run("data", "describe", path), "--duplicates")
        for which, levels in (("first", {"1": 1, "2": 0}), ("last", {"1": 0, "2": 1})):
            found = run("data", "describe", path, "--duplicates", which, "--json").json["levels"]
            assert {level: found[level] for level in levels} == levels
        path.write_text("user,item,rating\n")
        refused(run("data", "describe", path), "--no-header")
        path.write_text("user,item,low\nu2,i2,high\n")
        assert run("data", "describe", path, "--no-header", "--levels", "low<high", "--json").json["ratings"] == 2


class TestUsage:
    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (("recommend", "m", "-u", "1", "-n", "0"), "recommend: -n must be at least 1, got 0."),
            (("recommend", "m", "-u", "1", "--mass", "2"), "--mass must be at most 0.999, got 2."),
            (("recommend", "m", "-u", ""), "--user must not be empty."),
            (("recommend", "m", "-u", "1", "--rank-by", "x"), "--rank-by must be one of mean, lower, at-least"),
            (("fit", "r.csv"), "doublefeature fit: --out is missing. See: doublefeature fit --help"),
            (("fit", "r.csv", "-o", "m", "--sweeps", "ten"), "--sweeps must be a whole number, got ten."),
            (("fit", "r.csv", "-o", "m", "--speed", "9"), "there is no option --speed."),
            (("data", "describe"), "doublefeature data describe: FILE is missing."),
            (("top", "m", "-n"), "-n needs a value."),
            (("top", "m", "--json=1"), "--json takes no value."),
            (("top", "m", "more"), "more is too much."),
            (("nonsense",), "doublefeature: there is no command 'nonsense'. See: doublefeature --help"),
        ],
    )
    def test_errors_are_one_line(self, run, words, text):
        refused(run(*words), text)

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (("recommend", "MODEL", "-u", "u1", "--quantile", 0.2), "--quantile is for --rank-by lower"),
            (("recommend", "MODEL", "-u", "u1", "--seed", 2), "--seed is for --rank-by thompson"),
            (("evaluate", "RATINGS", "--given", 3), "--given is for protocol cold-users"),
            (("evaluate", "RATINGS", "--folds", 3), "--folds is for protocol kfold"),
            (("compare", "RATINGS", "--folds", 3), "--folds is for protocol kfold"),
            (("fit", "RATINGS", "-o", "OUT", "--workers", 3), "--workers is for the engine dask"),
            (("fit", "RATINGS", "-o", "OUT", "--users", "ITEMS"), "Name some with --user-covariates"),
            (("fit", "RATINGS", "-o", "OUT", "--items", "ITEMS", "--item-covariates", ""), "name no column"),
            (("resume", "MODEL", "--engine", "processes"), "Use threads or dask, or fit with --shards"),
            (("export", "MODEL", "--out", "NOWHERE"), "there is no such folder"),
            (("new-key", "x", "--keys", "HERE"), "this is a folder"),
            (("new-key", "", "--keys", "OUT"), "is no name for a key"),
            (("demo", "--out", "HERE"), "not an earlier demo"),
        ],
        ids=lambda value: value if isinstance(value, str) else value[0],
    )
    def test_what_would_do_nothing_is_refused(self, run, folder, model, tmp_path, words, text):
        (tmp_path / "mine.txt").write_text("keep")
        places = {
            "RATINGS": folder / "ratings.csv",
            "ITEMS": folder / "items.csv",
            "MODEL": model,
            "OUT": tmp_path / "out",
            "NOWHERE": tmp_path / "no" / "x.nc",
            "HERE": tmp_path,
        }
        refused(run(*(places.get(word, word) for word in words)), text)
        assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]

    def test_an_unreadable_file(self, run, folder, monkeypatch, tmp_path):
        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        refused(run("data", "describe", folder / "ratings.csv"), "no permission", code=3)

    def test_brackets_stay_in_helps(self, run):
        assert "doublefeature[peers]" in run("compare", "--help").out


class TestLeaving:
    def test_a_full_disk(self, model):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*MODULE, "features", model], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 3
        assert len(done.stderr.splitlines()) == 1

    def test_debug_keeps_the_exit_code(self, tmp_path):
        done = subprocess.run([*MODULE, "--debug", "top", tmp_path / "no"], capture_output=True, text=True)
        assert done.returncode == 2
        assert "Traceback" in done.stderr

    def test_ctrl_c_while_modules_are_read(self, tmp_path):
        (tmp_path / "numpy.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
        code = (
            # where tests run in the background the signal is ignored, and so it would be here
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "sys.path.insert(0, sys.argv.pop(1)); from doublefeature.cli import main; main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), "doctor"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (130, "doublefeature: interrupted\n")


class TestShown:
    def test_features(self, run, model, monkeypatch):
        for row in run("features", model, "-n", 2, "--json").json:
            assert len(row["items"]) <= 2
        from doublefeature.cli.inspecting import _found_again

        assert [_found_again(share) for share in (0.0, 0.004, 0.25)] == [
            "not found again in draws",
            "in under 1% of draws",
            "in 25% of draws",
        ]

    def test_explain(self, run, model):
        lines = run("explain", model, "-u", "u1", "-i", "i1").out.splitlines()
        assert lines[0].startswith("user u1, item i1, Film 1 (80%")
        assert not any("-0.00" in line for line in lines)
        rest = [line for line in lines if line.strip().startswith(("other features", "features"))]
        assert len(rest) == 1
        assert "probability" not in rest[0]

    def test_intervals_say_how_likely_they_hold(self, run, model):
        assert "80% from" in run("top", model).out
        assert "95% from" in run("recommend", model, "-u", "u1", "--mass", 0.95).out

    def test_demo_says_what_to_try(self, run, tmp_path):
        done = run("demo", "--out", tmp_path / "d", "--users", 12, "--items", 8, "--sweeps", 4, *SHORT)
        assert done.code == 0, done.err
        assert f"doublefeature features {tmp_path / 'd'}" in done.out

    def test_doctor_for_programs(self, run):
        assert {"name", "finding", "fine"} == set(run("doctor", "--json").json[0])

    def test_shards_with_too_few_draws(self):
        class Part:
            level, error, chains = "run longer", float("nan"), [type("Chain", (), {"n_features": 3.0})]
            reasons = advice = staticmethod(lambda: [])

        lines = ShardedDiagnosis([Part(), Part()], {}).lines()  # type: ignore[list-item]
        assert lines[-1] == "shard 1: run longer, K 3.0, too few draws for a simulation error"
