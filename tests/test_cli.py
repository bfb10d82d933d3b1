"""Every verb as a person would use it, with good and bad input."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from doublefeature.posterior.store import ModelFolder
from doublefeature.recommender import DoubleFeature
from doublefeature.studies.recovery import Design, simulate
from tests.command import Done, call

FIT = ("--sweeps", "24", "--warmup", "8", "--thin", "4", "--chains", "2", "--threads", "1", "--seed", "3")


@pytest.fixture
def run(monkeypatch, capsys):
    return partial(call, monkeypatch, capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cli")
    ratings, _ = simulate(Design(users=25, items=18, tau=0.5), seed=2)
    train, _ = ratings.split(0.3, seed=1)
    users, items, levels = train.triples()
    rows = [f"u{u},{i},{level + 1}" for u, i, level in zip(users, items, levels, strict=True)]
    (place / "ratings.csv").write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    (place / "items.csv").write_text("item,title\n" + "".join(f"{i},Film number {i}\n" for i in range(18)))
    (place / "pairs.csv").write_text("user,item\nu0,1\nu1,2\nnobody,1\nu2,999\n")
    return place


@pytest.fixture(scope="module")
def model(folder):
    out = folder / "model"
    words = ["fit", folder / "ratings.csv", "--out", out, "--items", folder / "items.csv", *FIT]
    done = subprocess.run(
        [sys.executable, "-m", "doublefeature", *map(str, words)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out)
    return out


def refused(done: Done, code: int, text: str) -> None:
    assert done.code == code, done.err
    lines = done.err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("doublefeature: ")
    assert text in lines[0]
    assert done.out == ""


class TestFit:
    def test_folder_is_whole(self, model):
        opened = ModelFolder.open(model)
        assert opened.finished
        assert len(opened.posterior()) == 8
        assert "u0" in opened.ratings.users
        assert opened.heldout is not None
        assert (model / "card.md").read_text().startswith("#")

    def test_same_seed_same_draws(self, run, folder, model, tmp_path):
        again = tmp_path / "again"
        done = run("fit", folder / "ratings.csv", "--out", again, *FIT)
        assert done.code == 0, done.err
        one, two = ModelFolder.open(model).posterior(), ModelFolder.open(again).posterior()
        assert all(np.array_equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True))

    def test_settings_from_a_file(self, run, folder, tmp_path):
        config = tmp_path / "settings.toml"
        config.write_text(
            "seed = 5\nholdout = 0.0\n[priors]\nuser_offsets = true\n[schedule]\nsweeps = 6\nchains = 1\n"
        )
        out = tmp_path / "m"
        assert run("fit", folder / "ratings.csv", "--out", out, "--config", config, "--thin", 1).code == 0
        opened = ModelFolder.open(out)
        assert (opened.seed, opened.priors.user_offsets, opened.schedule.sweeps) == (5, True, 6)
        assert (opened.schedule.warmup, opened.schedule.thin, opened.heldout) == (3, 1, None)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("speed = 1\n", "unknown key 'speed'"),
            ("[priors]\nlambda = 3\n", "unknown key 'lambda'"),
            ("[priors]\nmass = 0\n", "mass must be above 0"),
            ("seed = 1.5\n", "seed must be an integer"),
            ("priors = 3\n", "priors must be a table"),
            ("seed = \n", "settings.toml"),
        ],
    )
    def test_bad_settings(self, run, folder, tmp_path, text, message):
        config = tmp_path / "settings.toml"
        config.write_text(text)
        refused(run("fit", folder / "ratings.csv", "--out", tmp_path / "m", "--config", config), 2, message)
        assert not (tmp_path / "m").exists()

    def test_covariates(self, run, folder, tmp_path):
        (tmp_path / "items.csv").write_text(
            "item,kind,year\n" + "".join(f"{i},{'ab'[i % 2]},{1980 + i}\n" for i in range(18))
        )
        (tmp_path / "users.csv").write_text("user,age\n" + "".join(f"u{u},{20 + u}\n" for u in range(25)))
        tables = ("--items", tmp_path / "items.csv", "--users", tmp_path / "users.csv")
        asked = ("--item-covariates", "kind, year", "--user-covariates", "age")
        assert run("fit", folder / "ratings.csv", "--out", tmp_path / "m", *tables, *asked, *FIT).code == 0
        found = ModelFolder.open(tmp_path / "m").ratings.covariates
        assert found.item_names == ("kind: a", "kind: b", "year")
        assert found.user_names == ("age",)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--item-covariates", "colour"), "no column 'colour'"),
            (("--user-covariates", "age"), "need a table of users"),
            (("--item-covariates", "title", "--preset", "paper"), "Use preset full"),
        ],
    )
    def test_wrong_covariates(self, run, folder, tmp_path, words, message):
        (tmp_path / "items.csv").write_text("item,title\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(18)))
        given = ("--items", tmp_path / "items.csv", *words, *FIT)
        refused(run("fit", folder / "ratings.csv", "--out", tmp_path / "m", *given), 2, message)
        assert not (tmp_path / "m").exists()

    def test_existing_folder_is_refused_before_sampling(self, run, folder, model):
        refused(run("fit", folder / "ratings.csv", "--out", model), 2, str(model))

    def test_missing_ratings(self, run, tmp_path):
        refused(run("fit", tmp_path / "absent.csv", "--out", tmp_path / "m"), 2, "no such file")
        assert not (tmp_path / "m").exists()

    def test_wrong_flags(self, run, folder, tmp_path):
        assert run("fit", folder / "ratings.csv", "--out", tmp_path / "m", "--sweeps", "zero").code == 2
        assert run("fit", folder / "ratings.csv").code == 2
        assert run("fit", folder / "ratings.csv", "--out", tmp_path / "m", "--speed", "9").code == 2
        refused(run("fit", folder / "ratings.csv", "--out", tmp_path / "m", "--preset", "x"), 2, "unknown preset")

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_interrupted_fit_is_resumed_to_the_same_draws(self, run, folder, tmp_path, number):
        whole, broken = tmp_path / "whole", tmp_path / "broken"
        words = ["--sweeps", "600", "--warmup", "100", "--thin", "10", "--chains", "2", "--threads", "2", "--seed", "9"]
        command = [sys.executable, "-m", "doublefeature", "fit", str(folder / "ratings.csv"), "--out", str(broken)]
        process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True)
        while not (broken / "manifest.json").exists():
            time.sleep(0.02)
            assert process.poll() is None
        time.sleep(0.3)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        if process.returncode != 0:
            assert process.returncode == 130, err
            assert "resume" in err.splitlines()[-1]
            assert run("resume", broken, "--threads", 1).code == 0
        assert run("fit", folder / "ratings.csv", "--out", whole, *words).code == 0
        one, two = ModelFolder.open(whole).posterior(), ModelFolder.open(broken).posterior()
        assert len(one) == len(two) == 100
        assert all(np.array_equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True))

    def test_resume_makes_a_run_longer(self, run, folder, tmp_path):
        short = tmp_path / "short"
        assert run("fit", folder / "ratings.csv", "--out", short, *FIT).code == 0
        assert run("resume", short, "--sweeps", 40).code == 0
        assert len(ModelFolder.open(short).posterior()) == 16
        refused(run("resume", short, "--sweeps", 10), 2, "sweeps")


class TestAnswers:
    def test_predict(self, run, folder, model):
        done = run("predict", model, folder / "pairs.csv")
        rows = list(csv.DictReader(io.StringIO(done.out)))
        assert [row["prior"] for row in rows] == ["", "", "user", "item"]
        for row in rows:
            assert abs(sum(float(row[f"p_{level}"]) for level in range(1, 6)) - 1.0) < 1e-9
            assert int(row["lower"]) <= int(row["median"]) <= int(row["upper"])
        assert "2 of 4 pairs" in done.err

    @pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
    def test_predict_into_a_file(self, run, folder, model, tmp_path, ending):
        out = tmp_path / f"predicted.{ending}"
        assert run("predict", model, folder / "pairs.csv", "--out", out).code == 0
        assert out.stat().st_size > 100
        assert [path.name for path in tmp_path.iterdir()] == [out.name]

    def test_predict_refuses_what_it_cannot_write(self, run, folder, model, tmp_path):
        refused(run("predict", model, folder / "pairs.csv", "--out", tmp_path / "no" / "x.csv"), 2, "no such folder")
        refused(run("predict", model, folder / "pairs.csv", "--out", tmp_path / "x.doc"), 2, "ending")

    def test_recommend(self, run, model):
        done = run("recommend", model, "--user", "u3", "-n", 2)
        lines = done.out.splitlines()
        assert len(lines) == 3
        assert "Film number" in lines[1]
        assert "P(at least 4)" in lines[0]

    @pytest.mark.parametrize("rank_by", ["mean", "lower", "at-least", "thompson"])
    def test_recommend_never_shows_what_was_rated(self, run, folder, model, rank_by):
        done = run("recommend", model, "--user", "u3", "-n", 18, "--rank-by", rank_by, "--json")
        rated = {int(line.split(",")[1]) for line in (folder / "ratings.csv").read_text().split() if line[:3] == "u3,"}
        items = [row["item"] for row in done.json["items"]]
        assert len(items) == 18 - len(rated)
        assert not rated & set(items)

    def test_recommend_filters(self, run, folder, model):
        rated = {int(line.split(",")[1]) for line in (folder / "ratings.csv").read_text().split() if line[:3] == "u3,"}
        free = [item for item in range(18) if item not in rated]
        done = run("recommend", model, "-u", "u3", "--json", "--allow", free[0], "--allow", free[1], "--deny", free[1])
        assert [row["item"] for row in done.json["items"]] == [free[0]]
        refused(run("recommend", model, "-u", "u3", "--allow", "nothing"), 2, "'nothing' is not known")
        refused(run("recommend", model, "-u", "u3", "--level", "9"), 2, "none of the levels")

    def test_recommend_for_a_stranger(self, run, model):
        done = run("recommend", model, "--user", "nobody", "-n", 3)
        assert done.code == 0
        assert "not in the training data" in done.err
        assert len(done.out.splitlines()) == 4

    def test_prefer(self, run, model):
        chances = run("prefer", model, "--user", "u1", 2, 5, "--json").json
        assert abs(chances["above"] + chances["level"] + chances["below"] - 1.0) < 1e-9
        assert "above" in run("prefer", model, "--user", "u1", 2, 5).out

    def test_explain_adds_up(self, run, model):
        answer = run("explain", model, "--user", "u1", "--item", 2, "--json").json
        total = answer["base"] + answer["item_offset"]["mean"] + answer["user_offset"]["mean"]
        total += sum(part["contribution"]["mean"] for part in answer["features"])
        assert abs(total - answer["score"]["mean"]) < 1e-9
        assert "score" in run("explain", model, "--user", "u1", "--item", 2).out
        assert run("explain", model, "--user", "nobody", "--item", 99).err.endswith("user nobody, item 99\n")

    def test_top_and_similar(self, run, model):
        rows = run("top", model, "-n", 3, "--json").json
        assert [row["mean"] for row in rows] == sorted((row["mean"] for row in rows), reverse=True)
        assert len(run("top", model, "--by", "offset").out.splitlines()) == 11
        assert len(run("similar", model, 4, "-n", 2, "--json").json) == 2
        refused(run("similar", model, "nothing"), 2, "not known")


class TestLook:
    def test_features(self, run, model):
        assert run("features", model).code == 0
        for method in ("distance", "paper"):
            rows = run("features", model, "--json", "--method", method).json
            assert all(row["n_users"] > 0 for row in rows)
            assert all(item["title"].startswith("Film") for row in rows for item in row["items"])

    def test_diagnose(self, run, model):
        assert run("diagnose", model).out
        assert run("diagnose", model, "--json").json

    def test_report(self, run, model, tmp_path):
        assert run("report", model).out.strip() == str(model / "report.html")
        assert run("report", model, "--out", tmp_path / "r.html").code == 0
        assert (tmp_path / "r.html").read_text() == (model / "report.html").read_text()
        ModelFolder.open(model)

    @pytest.mark.parametrize("form", ["arviz", "parquet", "csv"])
    def test_export(self, run, model, tmp_path, form):
        out = tmp_path / ("draws.nc" if form == "arviz" else "draws")
        assert run("export", model, "--format", form, "--out", out).code == 0
        assert out.exists()
        assert run("export", model, "--format", form, "--out", out).code in (2, 3)

    def test_doctor(self, run):
        done = run("doctor")
        assert done.code == 0
        assert "numba" in done.out


VERBS = (
    ("predict", "MODEL", "PAIRS"), ("recommend", "MODEL", "--user", "u1"), ("prefer", "MODEL", "-u", "u1", "1", "2"),
    ("explain", "MODEL", "-u", "u1", "-i", "1"), ("features", "MODEL"), ("top", "MODEL"), ("diagnose", "MODEL"),
    ("report", "MODEL", "--out", "OUT"), ("export", "MODEL", "--out", "OUT"), ("resume", "MODEL"),
    ("similar", "MODEL", "1"),
)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("what", ["absent", "file", "empty", "damaged"])
def test_verbs_refuse_what_is_no_model(run, folder, tmp_path, verb, what):
    place = tmp_path / "place"
    if what == "file":
        place.write_text("nothing")
    elif what != "absent":
        place.mkdir()
    if what == "damaged":
        (place / "manifest.json").write_text('{"format": ')
    names = {"MODEL": place, "PAIRS": folder / "pairs.csv", "OUT": tmp_path / "out"}
    refused(run(*(names.get(word, word) for word in verb)), 2, "place")
    assert not (tmp_path / "out").exists()


def test_help_and_version(run):
    for words in (["--help"], ["fit", "--help"], ["data", "--help"], ["study", "simulation", "--help"]):
        done = run(*words)
        assert done.code == 0
        assert done.out
    assert run("--version").out.startswith("doublefeature ")
    assert run("nonsense").code == 2


class TestData:
    def test_describe(self, run, folder):
        assert run("data", "describe", folder / "ratings.csv").code == 0
        assert run("data", "describe", folder / "ratings.csv", "--json").json["users"] == 25
        refused(run("data", "describe", folder), 2, "this is a folder")

    def test_simulate(self, run, tmp_path):
        out = tmp_path / "sim"
        done = run("simulate", out, "--users", 10, "--items", 8, "--seed", 4)
        assert done.code == 0
        assert Path(done.out.strip()) == out / "ratings.csv"
        assert run("data", "describe", out / "ratings.csv", "--json").json["ratings"] == 80
        with np.load(out / "truth.npz", allow_pickle=False) as truth:
            assert truth["user_members"].shape[0] == 10
        refused(run("simulate", out), 2, str(out))

    def test_fetch_from_an_archive(self, run, tmp_path):
        refused(run("data", "fetch", "netflix", "--to", tmp_path), 2, "not known")
        refused(run("data", "fetch", "ml-100k", "--to", tmp_path, "--from", tmp_path / "no.zip"), 2, "no such file")


def test_demo(run, tmp_path):
    out = tmp_path / "demo"
    words = ("demo", "--out", out, "--users", 20, "--items", 15, "--sweeps", 20, "--chains", 2, "--threads", 1)
    done = run(*words)
    assert done.code == 0, done.err
    assert "oracle" in done.out
    assert str(out / "report.html") in done.out
    assert run(*words, "--json").json["oracle"] <= 1.0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("keep")
    done = run("demo", "--out", tmp_path / "other", "--users", 20)
    assert done.code == 2
    assert "not an earlier demo" in done.err.splitlines()[-1]
    assert (tmp_path / "other" / "mine.txt").exists()


@pytest.fixture(scope="module")
def mine(folder):
    path = folder / "mine.csv"
    path.write_text("item,rating\n3,5\n7,1\n\n11,4\n")
    return path


class TestSomeoneNew:
    def test_recommend(self, run, model, mine):
        done = run("recommend", model, "--ratings", mine, "-n", "4", "--json")
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert found["known"]
        assert found["user"] is None
        fitted = DoubleFeature.load(model)
        wanted = fitted.fold_in({3: 5, 7: 1, 11: 4}).recommend(4)
        assert [row["item"] for row in found["items"]] == [row.item for row in wanted]
        assert found["items"][0]["mean"] == pytest.approx(wanted[0].mean, abs=1e-9)
        again = run("recommend", model, "--ratings", mine, "--user", "u1", "-n", "4")
        assert again.code == 0
        assert "Film number" in again.out

    def test_ask(self, run, model, mine):
        for words in (["--ratings", mine], ["--user", "u1"], []):
            done = run("ask", model, *words, "-n", "2", "--json")
            assert done.code == 0, done.err
            found = json.loads(done.out)
            assert len(found["items"]) == 2
            assert found["items"][0]["gain"] >= found["items"][1]["gain"] >= 0.0
            assert not {row["item"] for row in found["items"]} & ({3, 7, 11} if words[:1] == ["--ratings"] else set())
        shown = run("ask", model)
        assert "tells (nats)" in shown.out
        assert "anybody" in shown.err

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("3,9\n", "bad.csv, line 1: '9' is none of the levels"),
            ("item,rating\n3,5\n\n999,3\n", "bad.csv, line 4: item '999' is not known"),
            ("3,5\n4,\n", "bad.csv, line 2: the rating is missing"),
            ("3\n", "no two columns"),
            ("3,5\n3,4\n", "line 2: item '3' comes twice"),
            ("", "empty"),
            ("item,rating\n3,5\n7\n", "line 3"),
        ],
    )
    def test_one_line_errors(self, run, model, tmp_path, text, problem):
        (tmp_path / "bad.csv").write_text(text)
        for verb in ("recommend", "ask"):
            refused(run(verb, model, "--ratings", tmp_path / "bad.csv"), 2, problem)

    def test_to_whom(self, run, model, tmp_path):
        refused(run("recommend", model), 2, "--user")
        refused(run("ask", model, "--ratings", tmp_path / "none.csv"), 2, "none.csv")
