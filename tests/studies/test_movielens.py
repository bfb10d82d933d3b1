"""The MovieLens study on a handful of users: every table and figure, kept runs, and numbers against slow ones."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from doublefeature.config import Schedule, Sharding
from doublefeature.errors import RatingsError, SettingsError
from doublefeature.evaluation.splits import make_splits
from doublefeature.inference.chain import sample
from doublefeature.model.state import members
from doublefeature.studies import movielens
from doublefeature.studies.movielens import run_movielens_study
from doublefeature.studies.movielens_data import movielens as read_movielens
from doublefeature.studies.movielens_data import user_counts
from doublefeature.studies.movielens_runs import effect_errors
from doublefeature.studies.movielens_scores import judge
from doublefeature.studies.recovery import Design, simulate
from tests.command import call

SCHEDULE = Schedule(sweeps=12, warmup=4, thin=2, chains=2, threads=1)
RATINGS, _ = simulate(Design(users=40, items=20, tau=0.5), seed=4)[0].split(0.6, seed=0)
TITLES = {item: {"title": f"Film {item}"} for item in range(20)}


def study(out, **changes):
    settings = {"seeds": [0], "shards": 2, "sizes": (1, 2), "schedule": SCHEDULE, "ratings": RATINGS, "n_items": 12}
    return run_movielens_study(out, **(settings | {"items": TITLES} | changes))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("movielens") / "study"
    told = []
    return study(out, announce=told.append), told


def rows(out, name):
    return list(csv.DictReader((out / f"{name}.csv").read_text().splitlines()))


class TestStudy:
    def test_everything_is_written(self, done):
        out = done[0].out
        figures = {path.stem for path in (out / "figures").glob("*.png")}
        assert figures == {path.stem for path in (out / "figures").glob("*.svg")}
        assert figures == {
            "pairs_by_shard", "within_one_by_shard", "features", "three_users", "scores_and_ratings", "cost"
        }  # fmt: skip
        assert (out / "summary.md").read_text() == done[0].summary
        assert all(f"figures/{name}.png" in done[0].summary for name in figures)

    def test_user_counts_are_told(self, done):
        assert sum("users with" in line for line in done[1]) == 3

    def test_every_method_has_its_row_beside_the_papers(self, done):
        found = {row["method"]: row for row in rows(done[0].out, "scores")}
        assert float(found["paper (as printed)"]["pairs_authors"]) == 0.791
        assert {"consensus, after the merge", "exact, preset full", "bias", "always 4"} <= set(found)

    def test_constants_score_what_counting_says(self, done):
        split = make_splits(RATINGS, "paper", seed=0, top_items=12)[0]
        _, _, levels = split.test.triples()
        found = {row["method"]: row for row in rows(done[0].out, "scores")}
        assert float(found["always 4"]["within_one"]) == pytest.approx((levels >= 2).mean())

    def test_shards_hold_all_held_out_ratings(self, done):
        split = make_splits(RATINGS, "paper", seed=0, top_items=12)[0]
        found = rows(done[0].out, "shards")
        assert sum(int(row["users"]) for row in found) == split.test.n_ratings
        mean = sum(int(row["users"]) * float(row["within_one"]) for row in found) / split.test.n_ratings
        after = {row["method"]: row for row in rows(done[0].out, "scores")}["consensus, after the merge"]
        assert float(after["within_one"]) == pytest.approx(mean)

    def test_differences_are_differences(self, done):
        scores = {row["method"]: row for row in rows(done[0].out, "scores")}
        for row in rows(done[0].out, "differences"):
            gap = float(scores[row["method"]][row["score"]]) - float(scores[row["minus"]][row["score"]])
            assert float(row["value"]) == pytest.approx(gap)

    def test_cost_is_measured_for_every_number_of_shards(self, done):
        found = rows(done[0].out, "cost")
        assert [row["shards"] for row in found] == ["1", "2"]
        assert all(float(row["cpu_seconds_first_stage"]) > 0.0 for row in found)

    def test_finished_runs_are_kept(self, done):
        told = []
        again = study(done[0].out, announce=told.append)
        assert not any("running" in line for line in told)
        assert again.summary == done[0].summary

    def test_a_broken_run_goes_on(self, done, tmp_path, monkeypatch):
        def stop(*arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr(movielens, "run_exact", stop)
        with pytest.raises(KeyboardInterrupt):
            study(tmp_path / "study")
        monkeypatch.undo()
        told = []
        result = study(tmp_path / "study", announce=told.append)
        assert next(line for line in told if "running" in line) == "running exact-paper-seed0"
        assert rows(result.out, "scores") == rows(done[0].out, "scores")
        assert not list((tmp_path / "study" / "models").iterdir())

    def test_other_settings_are_other_runs(self, done):
        told = []
        study(done[0].out, seeds=[1], sizes=(), shards=1, announce=told.append)
        assert sum("running" in line for line in told) == 4


class TestNumbers:
    def test_effect_errors_are_those_of_the_joint_normal(self):
        draw = sample(RATINGS, Sharding(1).shard_priors(_priors()), SCHEDULE, seed=1).draws[-1]
        users, items, _ = (column.astype(np.int64) for column in RATINGS.triples())
        slots = np.arange(draw.n_features)
        inside = members(draw.user_words, slots)
        x = (inside[users] & members(draw.item_words, slots)[items]).astype(float)
        z = np.eye(RATINGS.n_items)[items]
        design = np.hstack([x, z])
        spread = [draw.hyper[3] ** -2] * slots.size + [draw.hyper[4] ** -2] * RATINGS.n_items
        joint = np.linalg.inv(design.T @ design / draw.hyper[0] ** 2 + np.diag(spread))
        wanted = np.sqrt(np.diag(joint))[: slots.size][inside.sum(axis=0) >= 2]
        assert wanted.size
        assert effect_errors(draw, RATINGS) == pytest.approx(wanted)

    def test_user_counts_by_hand(self):
        given = np.bincount(RATINGS.triples()[0], minlength=40)
        assert [count.users for count in user_counts(RATINGS, 20)] == [
            (given >= 1).sum(), (given >= 3).sum(), (given >= 4).sum()
        ]  # fmt: skip

    def test_certain_predictions_are_always_right(self):
        split = make_splits(RATINGS, "paper", seed=0, top_items=12)[0]
        found = judge(np.eye(5)[split.test.arrays.levels], split)
        assert (found["exact"].value, found["pairs_authors"].value, found["rmse"].value) == (1.0, 1.0, 0.0)

    @pytest.mark.data
    def test_the_papers_users(self, data_dir, monkeypatch):
        monkeypatch.setenv("DOUBLEFEATURE_DATA", str(data_dir))
        ratings, titles = read_movielens()
        assert [count.users for count in user_counts(ratings)] == [6039, 6019, 5999]
        assert "Godfather, The (1972)" in {row["title"] for row in titles.values()}


class TestRefusals:
    def test_too_few_items(self, tmp_path):
        with pytest.raises(RatingsError, match="200 most rated"):
            study(tmp_path / "study", n_items=200)

    def test_no_seed(self, tmp_path):
        with pytest.raises(SettingsError, match="at least one seed"):
            study(tmp_path / "study", seeds=[])

    def test_bad_numbers_on_the_command_line(self, monkeypatch, capsys, tmp_path):
        done = call(monkeypatch, capsys, "study", "movielens", "--out", tmp_path / "s", "--seeds", "0;1")
        assert done.code == 2
        assert "seeds must be whole numbers" in done.err


def _priors():
    from doublefeature.config import preset

    return preset("paper")
