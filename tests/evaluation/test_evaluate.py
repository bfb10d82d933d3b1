"""The whole way: splits, a small fit, scores, tables, plots and the command."""

from __future__ import annotations

import csv
import json
import math
import threading

import numpy as np
import pytest

from doublefeature import DoubleFeature
from doublefeature.config import Schedule
from doublefeature.errors import SettingsError
from doublefeature.evaluation.evaluate import MODEL, evaluate
from doublefeature.evaluation.plots import draw_evaluation
from doublefeature.evaluation.predictors import ModelPredictor
from doublefeature.evaluation.splits import make_splits
from doublefeature.evaluation.tables import LOOKS, heading, look_of, score_table, shown
from doublefeature.studies.recovery import Design, simulate
from tests.command import call

SCHEDULE = Schedule(sweeps=200, warmup=150, thin=2, chains=2, threads=1)
FIT = ("--sweeps", "40", "--warmup", "20", "--thin", "2", "--chains", "2", "--threads", "1")


@pytest.fixture(scope="module")
def ratings():
    return simulate(Design(users=30, items=20, tau=0.4), seed=3)[0].split(0.3, seed=1)[0]


@pytest.fixture(scope="module")
def model():
    return DoubleFeature(seed=1, schedule=SCHEDULE)


@pytest.fixture(scope="module")
def evaluation(ratings, model):
    return evaluate(ratings, "holdout", model=model, seeds=(0, 1), share=0.3)


class TestEvaluate:
    def test_the_model_stays_as_it_is(self, evaluation, model):
        assert not hasattr(model, "posterior_")

    def test_every_method_has_every_score(self, evaluation):
        assert list(evaluation.scores) == [MODEL, "constant", "item mean", "bias"]
        names = {name if name in LOOKS else name.removesuffix("_10") for name in evaluation.summary(MODEL)}
        assert names == set(LOOKS)
        assert all(
            len(parts) == 2 and set(parts[0].estimates) == set(evaluation.summary(MODEL))
            for parts in evaluation.scores.values()
        )

    def test_numbers_are_those_of_the_public_predictions(self, ratings, model, evaluation):
        (split,) = make_splits(ratings, "holdout", share=0.3, seed=1)
        fitted = DoubleFeature(seed=1, schedule=SCHEDULE).fit(split.train)
        users, items, levels = split.test.triples()
        pairs = [(split.test.users[u], split.test.items[i]) for u, i in zip(users, items, strict=True)]
        predicted = fitted.predict(pairs)
        rows = np.arange(levels.size)
        scores = evaluation.scores[MODEL][1]
        assert scores["log_score"].value == pytest.approx(np.log(predicted.proba[rows, levels]).mean())
        values = np.array(split.test.levels)[levels]
        assert scores["rmse"].value == pytest.approx(np.sqrt(((predicted.mean - values) ** 2).mean()))
        assert scores["exact"].value == pytest.approx(np.mean(np.array(predicted.mode) == values))
        table = ModelPredictor(fitted).means(np.array([4, 2]))
        assert table[1, 7] == pytest.approx(fitted.predict([(2, 7)]).mean[0])

    def test_a_model_beats_the_constant_on_what_it_was_made_for(self, evaluation):
        value, error = evaluation.differences("constant")["log_score"]
        assert value > 2 * error

    def test_means_over_splits(self, evaluation):
        one, two = (scores["rps"].value for scores in evaluation.scores["bias"])
        value, error = evaluation.summary("bias")["rps"]
        assert value == pytest.approx((one + two) / 2)
        assert 0 < error < max(scores["rps"].error for scores in evaluation.scores["bias"]) * 1.05

    def test_plain_values(self, evaluation):
        told = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
        assert told["scores"][MODEL]["rmse"]["value"] == pytest.approx(evaluation.summary(MODEL)["rmse"].value)
        assert [split["seed"] for split in told["splits"]] == [0, 1]
        assert told["relevant_level"] == 4
        assert set(told["model_minus"]) == {"constant", "item mean", "bias"}
        rows = evaluation.to_rows()
        assert len(rows) == 2 * 4 * len(evaluation.summary(MODEL))
        assert rows[0].keys() == {"split", "seed", "method", "score", "value", "error"}

    def test_unseen_users_are_counted(self, ratings, model):
        found = evaluate(ratings, "cold-users", model=model, given=0, top_n=None)
        assert found.splits[0].unseen_users == found.splits[0].test_users == 3
        assert any("prior answers" in line for line in heading(found))
        assert math.isnan(found.summary(MODEL)["pairs_authors"].value)
        assert "ndcg_10" not in found.summary(MODEL)
        assert not any("lists" in line for line in heading(found))

    def test_cold_users_are_folded_in(self, ratings, model):
        found = evaluate(ratings, "cold-users", model=model, share=0.3, given=4, top_n=5)
        (split,) = make_splits(ratings, "cold-users", share=0.3, given=4)
        assert found.splits[0].unseen_users == 0
        assert found.splits[0].given_ratings == split.given.n_ratings
        assert any("folded in" in line for line in heading(found))
        fitted = DoubleFeature(seed=1, schedule=SCHEDULE).fit(split.train)
        users, items, levels = split.test.triples()
        chances = []
        for user, item, level in zip(users.tolist(), items.tolist(), levels.tolist(), strict=True):
            folded = fitted.fold_in(split.given.rated_items(split.test.users[user]))
            chances.append(folded.predict([split.test.items[item]]).proba[0, level])
        assert found.summary(MODEL)["log_score"].value == pytest.approx(np.mean(np.log(chances)))

    def test_stop_and_no_seeds(self, ratings, model):
        stop = threading.Event()
        stop.set()
        with pytest.raises(KeyboardInterrupt):
            evaluate(ratings, model=model, stop=stop)
        with pytest.raises(SettingsError, match="seed"):
            evaluate(ratings, model=model, seeds=())


class TestLooks:
    def test_the_heading_states_relevance(self, evaluation):
        assert any("relevant is a held-out rating of 4 or more" in line for line in heading(evaluation))

    def test_text(self, evaluation):
        estimate = evaluation.summary(MODEL)["exact"]
        assert shown("exact", estimate) == f"{100 * estimate.value:.1f} ± {100 * estimate.error:.1f}"
        assert shown("exact", estimate._replace(value=math.nan)) == "–"
        assert look_of("ndcg_10").label == "nDCG at 10"

    def test_the_best_is_bold(self, evaluation):
        summaries = {method: evaluation.summary(method) for method in evaluation.scores}
        table = score_table(summaries)
        rows = dict(zip(table.columns[0].cells, zip(*(c.cells for c in table.columns[1:]), strict=True), strict=True))
        best = min(range(4), key=lambda k: list(summaries.values())[k]["rmse"].value)
        assert [cell.startswith("[bold]") for cell in rows["RMSE (mean)"]] == [k == best for k in range(4)]
        assert not any("[bold]" in cell for cell in rows["50 % sets cover, %"])

    def test_plots(self, evaluation):
        files = draw_evaluation(evaluation)
        assert set(files) == {f"{n}.{e}" for n in ("calibration", "coverage", "scores") for e in ("png", "svg")}
        assert files["scores.png"].startswith(b"\x89PNG")
        assert files == draw_evaluation(evaluation)


@pytest.fixture
def run(monkeypatch, capsys):
    def evaluated(*words):
        done = call(monkeypatch, capsys, "evaluate", *words)
        return done.code, done.out, done.err

    return evaluated


@pytest.fixture(scope="module")
def file(ratings, tmp_path_factory):
    users, items, levels = ratings.triples()
    rows = [f"u{u},{i},{level + 1},{(7 * u + 13 * i) % 97}" for u, i, level in zip(users, items, levels, strict=True)]
    path = tmp_path_factory.mktemp("evaluate") / "ratings.csv"
    path.write_text("user,item,rating,given\n" + "\n".join(rows) + "\n")
    return path


class TestCommand:
    def test_table_and_files(self, run, file, tmp_path):
        places = "--csv", tmp_path / "s.csv", "--out", tmp_path / "s.json", "--plot", tmp_path / "plots"
        code, out, err = run(file, "--protocol", "kfold", "--folds", "2", *FIT, *places)
        assert code == 0, err
        assert "mean of 2 splits" in out
        assert "log score" in out
        assert all(name in out for name in ("doublefeature", "constant", "item mean", "bias"))
        assert "split 2 of 2" in err
        with (tmp_path / "s.csv").open() as lines:
            rows = list(csv.DictReader(lines))
        told = json.loads((tmp_path / "s.json").read_text())
        mine = [r for r in rows if (r["method"], r["score"], r["split"]) == (MODEL, "rps", "1")]
        assert float(mine[0]["value"]) == pytest.approx(told["by_split"][MODEL][1]["rps"]["value"])
        assert (tmp_path / "plots" / "calibration.svg").exists()

    def test_json_and_time_column(self, run, file):
        words = "--protocol", "temporal", "--share", "0.3", "--time-column", "given", "--top", "0", "--json"
        code, out, _ = run(file, *words, *FIT)
        assert code == 0
        told = json.loads(out)
        assert told["protocol"] == "temporal"
        assert "ndcg_10" not in told["scores"][MODEL]

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (("--protocol", "loo"), "unknown protocol 'loo'"),
            (("--protocol", "temporal"), "needs timestamps"),
            (("--share", "2"), "share must lie"),
            (("--protocol", "paper", "--share", "0.2"), "has no share"),
            (("--preset", "x"), "unknown preset"),
            (("--time-column", "when"), "no time column 'when'"),
            (("--out", "x.txt"), "the ending must be .json"),
            (("--csv", "no/x.csv"), "no such folder"),
            (("--plot", "no/plots"), "no such folder"),
        ],
    )
    def test_one_line_errors(self, run, file, tmp_path, monkeypatch, words, text):
        monkeypatch.chdir(tmp_path)
        code, out, err = run(file, *words)
        assert (code, out) == (2, "")
        assert len(err.strip().splitlines()) == 1
        assert text in err

    def test_too_few_ratings(self, run, tmp_path):
        path = tmp_path / "few.csv"
        path.write_text("user,item,rating\na,x,1\nb,x,2\n")
        code, _, err = run(path, "--protocol", "paper")
        assert code == 2
        assert "Give more ratings" in err
