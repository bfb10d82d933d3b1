import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from doublefeature.errors import EnvironmentProblem, SettingsError, StoreError
from doublefeature.evaluation import compare as comparing
from doublefeature.evaluation.baselines import Predicted, fit_baselines
from doublefeature.evaluation.bootstrap import Ratio, paired_difference
from doublefeature.evaluation.compare import Comparison, compare
from doublefeature.evaluation.evaluate import judge
from doublefeature.evaluation.peers import registry, runner
from doublefeature.evaluation.peers.cells import Cell
from doublefeature.evaluation.peers.child import Usage
from doublefeature.evaluation.peers.runner import Plan, Trial
from doublefeature.evaluation.peers.table import BEGIN, END, grids, heading, markdown, put_into, ranked, rich_tables
from doublefeature.evaluation.ranking import listed_users, score_ranking
from doublefeature.evaluation.splits import make_splits
from doublefeature.studies.recovery import Design, simulate
from tests.command import call
from tests.evaluation.peers.fakes import LEVELS, POINTS, FitHere


@pytest.fixture(scope="module")
def ratings():
    return simulate(Design(users=50, items=25, tau=0.5), seed=5)[0].split(0.3, seed=0)[0]


@pytest.fixture
def here(monkeypatch):
    for peer in (POINTS, LEVELS):
        monkeypatch.setitem(registry.KNOWN, peer.name, peer)
    fit = FitHere()
    monkeypatch.setattr(runner, "fit_apart", fit)
    return fit


@pytest.fixture(scope="module")
def file(ratings, tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "ratings.csv"
    rows = zip(*ratings.triples(), strict=True)
    path.write_text("user,item,rating\n" + "".join(f"{u},{i},{level + 1}\n" for u, i, level in rows))
    return path


def compared(ratings, **options) -> Comparison:
    given = {"protocol": "holdout", "seeds": (0, 1), "resamples": 50}
    return compare(ratings, options.pop("models", ["levels", "points"]), **(given | options))


class TestScores:
    def test_are_those_of_the_judge_that_evaluate_uses(self, ratings, here):
        """Each rule goes the whole way and has to come out as judged directly."""
        result = compared(ratings, models=["constant", "bias"], seeds=(3,))
        split = make_splits(ratings, "holdout", seed=3)[0]
        for rule in fit_baselines(split.train, seed=3):
            if rule.name in result.scores:
                direct = judge(split, rule, resamples=50)
                for name, (value, error) in direct.estimates.items():
                    assert result.scores[rule.name][0][name].value == pytest.approx(value, abs=1e-9), name
                    assert result.scores[rule.name][0][name].error == pytest.approx(error, abs=1e-9), name

    def test_differences_are_paired_over_splits(self, ratings, here):
        result = compared(ratings)
        assert result.reference == "levels"
        found = result.differences("points")["log_score"]
        mean = np.mean(
            [a["log_score"].value - b["log_score"].value for a, b in zip(*result.scores.values(), strict=True)]
        )
        assert found.value == pytest.approx(mean)
        assert found == paired_difference(result.scores["levels"], result.scores["points"], "log_score")
        assert found.error > 0.0

    def test_the_packages_own_model_is_the_reference(self, ratings, here):
        result = compared(
            ratings,
            models=["constant", "doublefeature", "bias"],
            settings={"doublefeature": {"sweeps": 20, "warmup": 10, "chains": 1}},
        )
        assert result.reference == "doublefeature"
        assert result.cells["doublefeature"][0].settings["sweeps"] == 20

    def test_sweeps_go_by_the_ratings_unless_set(self, ratings):
        own = registry.KNOWN["doublefeature"]
        assert own.settle(ratings, own.defaults)["sweeps"] == 960
        assert own.settle(ratings, own.complete({"sweeps": 480}))["sweeps"] == 480

    def test_lists_of_the_users_that_are_judged(self, ratings, here):
        split = make_splits(ratings, "holdout", seed=0)[0]
        users = listed_users(split)
        asked = []

        def means(batch):
            asked.append(batch)
            return np.zeros((batch.size, split.train.n_items))

        score_ranking(split, means, n=10)
        np.testing.assert_array_equal(np.concatenate(asked), users)
        assert np.unique(users).size == users.size > 10

    def test_lists_are_left_out_where_there_are_too_many_pairs(self, ratings, here, monkeypatch):
        monkeypatch.setattr(comparing, "MOST_LIST_PAIRS", 100)
        result = compared(ratings, seeds=(0,))
        assert "ndcg_10" not in result.summary("points")
        assert "top-10 lists are left out" in result.notes[0]
        assert "ndcg_10" not in compared(ratings, seeds=(0,), top_n=None).summary("points")

    def test_what_counts_in_lists_is_said_if_there_are_any(self, ratings, here):
        told = "relevant is a held-out rating of 4 or more"
        assert told in " ".join(heading(compared(ratings, seeds=(0,))))
        assert told not in " ".join(heading(compared(ratings, seeds=(0,), top_n=None)))

    def test_what_is_given_of_cold_users_is_learnt_from(self, ratings, here):
        result = compared(ratings, models=["points"], protocol="cold-users", seeds=(0,), given=3)
        split = make_splits(ratings, "cold-users", seed=0, given=3)[0]
        assert here.calls[-1][1].fingerprint == split.known.fingerprint != split.train.fingerprint
        assert f"learnt from besides: {split.given.n_ratings} ratings" in " ".join(heading(result))

    def test_settings_at_the_end_of_what_was_tried_are_told(self, ratings, here, monkeypatch):
        short, long = (0.0, 0.5, 1.0), (0.0, 0.5, 1.0, 1.5)
        for ladder, told in ((short, ["chosen at the end of what was tried: points weight 1.0"]), (long, [])):
            peer = replace(POINTS, defaults={"weight": 0.5}, choices=(), ladders={"weight": ladder})
            monkeypatch.setitem(registry.KNOWN, "points", peer)
            result = compared(ratings, models=["points"], seeds=(0,), top_n=None)
            assert result.cells["points"][0].settings == {"weight": 1.0}
            assert result.notes == told


class TestFolder:
    def test_finished_runs_are_not_made_again_and_give_the_same(self, ratings, here, tmp_path):
        first = compared(ratings, out=tmp_path / "new" / "folder").to_dict()
        made = len(here.calls)
        again = compared(ratings, out=tmp_path / "new" / "folder").to_dict()
        assert len(here.calls) == made
        assert again == first

    def test_what_is_missing_is_made(self, ratings, here, tmp_path):
        compared(ratings, out=tmp_path, seeds=(0,))
        here.calls.clear()
        compared(ratings, out=tmp_path, seeds=(0, 1))
        assert {train.fingerprint for _, train, _, _ in here.calls}.isdisjoint(
            {make_splits(ratings, "holdout", seed=0)[0].train.fingerprint}
        )
        next(tmp_path.glob("levels-*.json")).unlink()
        here.calls.clear()
        compared(ratings, out=tmp_path, seeds=(0, 1))
        assert [name for name, *_ in here.calls] == ["levels"]

    @pytest.mark.parametrize(
        "change",
        [{"settings": {"points": {"weight": 0.5}}}, {"plan": Plan(tune=False)}, {"top_n": 5}, {"share": 0.2}],
        ids=lambda change: next(iter(change)),
    )
    def test_other_settings_are_another_run(self, ratings, here, tmp_path, change):
        compared(ratings, out=tmp_path, seeds=(0,))
        here.calls.clear()
        compared(ratings, out=tmp_path, seeds=(0,), **change)
        assert "points" in {name for name, *_ in here.calls}

    @pytest.mark.parametrize(
        "change", [{"meaning": "other priors"}, {"package": "scipy"}, {"ladders": {"weight": (0.0, 0.5, 1.0)}}], ids=str
    )
    def test_another_model_of_the_same_name_is_another_run(self, ratings, here, tmp_path, monkeypatch, change):
        compared(ratings, out=tmp_path, seeds=(0,))
        here.calls.clear()
        monkeypatch.setitem(registry.KNOWN, "points", replace(POINTS, **change))
        compared(ratings, out=tmp_path, seeds=(0,))
        assert {name for name, *_ in here.calls} == {"points"}

    def test_a_run_that_breaks_off_keeps_what_it_finished(self, ratings, here, tmp_path, monkeypatch):
        def break_off(train, settings, seed):
            raise KeyboardInterrupt

        monkeypatch.setitem(registry.KNOWN, "points", POINTS.__class__("points", "", "numpy", break_off))
        with pytest.raises(KeyboardInterrupt):
            compared(ratings, out=tmp_path, seeds=(0,))
        assert [path.name[:7] for path in tmp_path.iterdir()] == ["levels-"]

    def test_a_damaged_file(self, ratings, here, tmp_path):
        compared(ratings, out=tmp_path, seeds=(0,))
        path = next(tmp_path.glob("points-*.json"))
        path.write_text(path.read_text()[:100])
        with pytest.raises(StoreError, match=r"cannot be read\. Delete it"):
            compared(ratings, out=tmp_path, seeds=(0,))

    def test_a_file_in_the_way(self, ratings, here, tmp_path):
        (tmp_path / "out").write_text("")
        with pytest.raises(StoreError, match="cannot be made"):
            compared(ratings, out=tmp_path / "out")


class TestProblems:
    def test_a_model_that_fails_is_left_out(self, ratings, here):
        here.hangs = [dict(settings) for settings in POINTS.starts]
        said = []
        result = compared(ratings, say=said.append)
        assert list(result.scores) == ["levels"]
        assert result.left_out == {"points": "points did not finish."}
        assert "points is left out: points did not finish." in said
        assert "points is left out: points did not finish." in heading(result)

    def test_no_model_left(self, ratings, here):
        here.hangs = [dict(settings) for settings in POINTS.starts]
        with pytest.raises(EnvironmentProblem, match=r"no model could be run\. points did not finish"):
            compared(ratings, models=["points"])

    def test_a_missing_package_of_a_group_is_named(self, ratings, here, monkeypatch):
        absent = POINTS.__class__("absent", "", "no_such_package", POINTS.fit)
        monkeypatch.setitem(registry.GROUPS, "some", (LEVELS, absent))
        said = []
        result = compared(ratings, models=["some"], seeds=(0,), say=said.append)
        assert list(result.scores) == ["levels"]
        assert (
            "absent is skipped: package no_such_package is not installed. Run: pip install 'doublefeature[peers]'"
            in said
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"models": ["nothing"]}, "unknown model 'nothing'"),
            ({"settings": {"bias": {}}}, "settings are given for 'bias', which is not compared"),
            ({"settings": {"points": {"mass": 1}}}, "points has no setting 'mass'"),
            ({"seeds": ()}, "at least one seed"),
            ({"protocol": "half"}, "unknown protocol 'half'"),
        ],
    )
    def test_wrong_requests(self, ratings, here, options, message):
        with pytest.raises(SettingsError, match=message):
            compared(ratings, **options)

    def test_no_splits(self, here):
        with pytest.raises(SettingsError, match="at least one split"):
            compare([], ["levels"])


class TestTables:
    def test_the_best_log_score_comes_first_and_is_bold(self, ratings, here):
        result = compared(ratings)
        assert ranked(result) == ["points", "levels"]
        scores = grids(result)[0]
        assert scores.rows[0][0] == "points"
        assert (0, 1) in scores.best
        assert (1, 1) not in scores.best
        rmse = scores.heads.index("RMSE")
        assert (0, rmse) in scores.best

    def test_every_table_is_in_every_form(self, ratings, here):
        result = compared(ratings)
        text = markdown(result)
        for grid in grids(result):
            assert "| " + " | ".join(grid.heads) + " |" in text
            assert all(len(row) == len(grid.heads) for row in grid.rows)
        assert [table.row_count for table in rich_tables(result)] == [len(grid.rows) for grid in grids(result)]
        assert "levels minus the model" in text.lower()
        assert "weight 1.0" in text

    def test_a_page_keeps_what_is_around_its_markers(self):
        page = f"above\n{BEGIN}\nold\n{END}\nbelow\n"
        once = put_into(page, "new\n")
        assert once == f"above\n{BEGIN}\n\nnew\n\n{END}\nbelow\n"
        assert put_into(once, "new\n") == once
        assert put_into("no markers", "new\n") == "new\n"

    def test_plain_values(self, ratings, here):
        result = compared(ratings)
        again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert again["models"]["points"]["cost"] == {
            "fit_seconds": 2.0,
            "fit_cpu_seconds": 1.5,
            "tuning_seconds": 6.0,
            "answer_seconds": 0.25,
            "peak_megabytes": 100.0,
        }
        rows = result.to_rows()
        assert len(rows) == sum(len(part.estimates) for parts in result.scores.values() for part in parts)


class TestCommand:
    @pytest.fixture
    def run(self, monkeypatch, capsys, here):
        def compared(*words):
            done = call(monkeypatch, capsys, "compare", *words)
            return done.code, done.out, done.err

        return compared

    def test_json_and_files(self, run, file, tmp_path):
        code, out, _ = run(
            *(file, "--models", "points,levels", "--seeds", 2, "--json", "--levels", "1..5"),
            *("--csv", tmp_path / "s.csv", "--markdown", tmp_path / "t.md", "--out", tmp_path / "cells"),
        )
        assert code == 0
        found = json.loads(out)
        assert list(found["models"]) == ["points", "levels", "constant", "item-mean", "bias"]
        assert len(found["splits"]) == 2
        rows = list(csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text())))
        assert {row["model"] for row in rows} == set(found["models"])
        assert "| points |" in (tmp_path / "t.md").read_text()
        assert len(list((tmp_path / "cells").iterdir())) == 10

    def test_a_table_for_people(self, run, file):
        code, out, err = run(
            file, "--models", "levels", "--levels", "1..5", "--set", "points.weight=1", "--models", "points"
        )
        assert code == 0
        assert "protocol holdout" in out
        assert "log score" in out
        assert "points: fitting with weight 1.0" in err

    def test_the_list_of_models(self, run):
        code, out, _ = run("--list")
        assert code == 0
        assert "myfm-svdpp-32" in out

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--models", "nonsense"], "unknown model 'nonsense'. Known are: all,"),
            (["--models", "points", "--set", "points"], "'points' is no setting. Write it as MODEL.SETTING=VALUE."),
            (["--models", "points", "--set", "points.x=1"], "'points.x' is no setting of a model. Known are: weight."),
            (["--models", "points", "--set", "points.weight=a"], "'points.weight=a': the value must be like 0.0."),
            (["--models", "points", "--protocol", "half"], "unknown protocol 'half'"),
            (["--models", "points", "--csv", "x.txt"], "x.txt: the ending must be .csv or .parquet."),
            (["--models", "points", "--markdown", "/no/such/t.md"], "there is no such folder"),
        ],
    )
    def test_one_line_errors(self, run, file, words, message):
        code, out, err = run(file, *words)
        assert code == 2
        assert out == ""
        assert message in err
        assert len(err.strip().splitlines()) == 1


def test_a_finished_run_comes_back_as_it_was():
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(5), 20)
    lists = {"ndcg_10": Ratio(np.arange(3), rng.random(3), np.ones(3))}
    cell = Cell(Predicted(table, table[:, 0]), lists, {"a": 1}, [Trial({"a": 2}, None, 3.0)], Usage(1.0, 1.0, 1.0), 0.5)
    again = Cell.from_json(json.loads(json.dumps(cell.to_json())))
    np.testing.assert_array_equal(again.predicted.proba, table)
    np.testing.assert_array_equal(again.predicted.mean, table[:, 0])
    np.testing.assert_array_equal(again.lists["ndcg_10"].sums, lists["ndcg_10"].sums)
    assert (again.settings, again.trials, again.usage) == (cell.settings, cell.trials, cell.usage)
