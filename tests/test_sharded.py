"""The model over shards answers every question, each user from their own shard."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import doublefeature as df
from doublefeature.config import Schedule, Sharding
from doublefeature.errors import SettingsError
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.ranking import mean_ratings
from doublefeature.posterior.sharding import ShardedFolder
from doublefeature.report.page import build_report
from doublefeature.sharded import ShardedDoubleFeature
from tests.command import call
from tests.inference.sharded_models import RATINGS, fit


@pytest.fixture(scope="module", params=["paper", "full"])
def model(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("sharded") / request.param
    fit(out, preset=request.param)
    return df.load(out)


@pytest.fixture(scope="module")
def by_paper(tmp_path_factory):
    out = tmp_path_factory.mktemp("sharded") / "authors"
    return fit(out, merge="paper", second_stage="paper", keep_share=0.5)


@pytest.fixture
def run(monkeypatch, capsys):
    return partial(call, monkeypatch, capsys)


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    users, items, levels = RATINGS.triples()
    rows = [f"u{u},i{i},{level + 1}" for u, i, level in zip(users, items, levels, strict=True)]
    place = tmp_path_factory.mktemp("csv") / "ratings.csv"
    place.write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    return place


class TestWhatShardsTakeInAfterwards:
    def test_known_users_are_folded_into_their_shard(self, model):
        user = model.ratings_.users[5]
        given = {0: 5, 3: 1, 7: 4}
        folded = model.fold_in(given, user=user)
        shard = int(model.shard_of_[5])
        apart = model.shard_model(shard).fold_in(given, user=user)
        assert np.array_equal(folded.predict([1, 2]).proba, apart.predict([1, 2]).proba)

    def test_new_users_are_folded_in(self, model):
        assert len(model.fold_in({0: 5, 3: 1}).recommend(4)) == 4

    def test_new_items_are_refused(self, model):
        with pytest.raises(SettingsError, match="no new items"):
            model.fold_in_item({0: 5})

    def test_the_command_line_folds_in(self, run, model, tmp_path):
        (tmp_path / "mine.csv").write_text("item,rating\n0,5\n3,1\n")
        done = run("recommend", model.folder_.path, "--ratings", tmp_path / "mine.csv", "-n", 3, "--json")
        assert done.code == 0
        assert '"items"' in done.out
        assert run("ask", model.folder_.path, "-n", 2).code == 0

    @pytest.mark.parametrize("verb", [["serve"], ["forget", "--user", "1"]])
    def test_what_cannot_be_done_is_said_in_one_line(self, run, model, verb):
        done = run(verb[0], model.folder_.path, *verb[1:])
        assert done.code == 2
        assert "model over shards" in done.err
        assert len(done.err.splitlines()) == 1


class TestAnswers:
    def test_known_users_are_answered_by_their_shard(self, model):
        folder = ShardedFolder.open(model.folder_.path)
        for shard in range(3):
            part = folder.merged(shard)
            posterior = part.posterior()
            for user in list(part.ratings.users)[:3]:
                pairs = [(user, item) for item in (0, 7, 24)]
                codes = np.full(3, part.ratings.user_code(user)), np.array([0, 7, 24])
                assert np.array_equal(model.predict(pairs).proba, predict_levels(posterior, *codes))

    def test_merged_offsets_are_in_every_draw(self, model):
        for shard in range(3):
            for chain, draws in enumerate(model.shard_model(shard).posterior_.chains):
                for place, draw in enumerate(draws):
                    assert np.array_equal(draw.item_offset, model.consensus_.offsets[chain, place])

    def test_strangers_get_the_average_over_shards(self, model):
        each = [model.shard_model(shard).predict([("nobody", 4)]).proba[0] for shard in range(3)]
        found = model.predict([("nobody", 4)])
        assert found.proba[0] == pytest.approx(np.mean(each, axis=0), abs=0.05)
        assert found.known.tolist() == [[False, True]]

    def test_recommendations_leave_out_what_was_rated(self, model):
        user = RATINGS.users[5]
        seen = set(model.ratings_.rated_items(user)) | set(model.heldout_.rated_items(user))
        found = model.recommend(user, n=25)
        assert {row.item for row in found} == set(RATINGS.items) - seen
        assert found[0].title.startswith("Film")
        assert len(model.recommend("nobody", n=3)) == 3

    def test_preferences_add_up(self, model):
        for user in (RATINGS.users[2], "nobody"):
            found = model.prefer(user, 1, 2)
            assert found.above + found.level + found.below == pytest.approx(1.0)

    def test_explanations_add_up(self, model):
        for user in (RATINGS.users[2], "nobody"):
            found = model.explain(user, 3)
            parts = found.base + found.item_offset.mean + found.user_offset.mean
            assert parts + sum(part.contribution.mean for part in found.features) == pytest.approx(found.score.mean)

    def test_top_by_offset_is_the_merged_one(self, model):
        found = model.top(25, by="offset")
        means = model.consensus_.offsets.mean(axis=(0, 1))
        assert [row.mean for row in found] == pytest.approx(sorted(means, reverse=True))

    def test_top_by_rating_counts_every_user_once(self, model):
        values = np.arange(1.0, 6.0)
        sizes = [model.shard_model(s).ratings_.n_users for s in range(3)]
        tables = [mean_ratings(model.shard_model(s).posterior_, values) for s in range(3)]
        wanted = sum(n * table for n, table in zip(sizes, tables, strict=True)) / 40
        found = {row.item: row.mean for row in model.top(25)}
        assert [found[item] for item in RATINGS.items] == pytest.approx(wanted.mean(axis=0))

    def test_similar_items(self, model):
        assert len(model.similar_items(3, 4)) == 4

    def test_features_belong_to_shards(self, model):
        for feature in model.features_of(1):
            assert feature.users.size <= 14
        with pytest.raises(SettingsError, match="0 to 2"):
            _ = model.features_
        with pytest.raises(SettingsError, match="0 to 2"):
            model.features_of(3)

    def test_diagnosis_has_every_shard(self, model):
        found = model.diagnose()
        assert len(found.parts) == 3
        assert found.to_dict()["level"] == found.level
        assert any("disagreement" in line for line in found.lines())

    def test_saved_copy_answers_alike(self, model, tmp_path):
        model.save(tmp_path / "copy")
        pairs = [(0, 3), (17, 2)]
        assert np.array_equal(df.load(tmp_path / "copy").predict(pairs).proba, model.predict(pairs).proba)

    def test_the_report_names_items_shards_disagree_about(self, model):
        page = build_report(model)
        assert "Items that shards disagree about most" in page
        worst = model.disagreements(1)[0]
        assert f"Film {worst.item}" in page
        assert worst.lowest <= worst.highest


class TestTheAuthorsWay:
    def test_half_of_the_draws_are_kept(self, by_paper):
        assert len(by_paper.posterior_) == 3 * 2 * 4

    def test_kept_draws_are_stored_ones_with_merged_offsets(self, by_paper):
        stored = {draw.effect.tobytes() for draw in by_paper.shard_before(0).posterior_}
        for draw in by_paper.shard_model(0).posterior_:
            assert draw.effect.tobytes() in stored
            assert any(np.array_equal(draw.item_offset, row) for row in by_paper.consensus_.offsets[draw.chain])

    def test_log_likelihoods_are_those_of_the_merged_offsets(self, by_paper):
        part = by_paper.shard_model(1)
        users, items, levels = (column.astype(np.int64) for column in part.ratings_.triples())
        draw = part.posterior_.draws[0]
        proba = predict_levels(Posterior(part.posterior_.base, [draw]), users, items)
        assert draw.log_likelihood == pytest.approx(np.log(proba[np.arange(levels.size), levels]).sum())


class TestRefusals:
    def test_without_a_folder(self):
        with pytest.raises(SettingsError, match="give out"):
            ShardedDoubleFeature(Sharding(2)).fit(RATINGS)

    def test_one_draw_cannot_be_merged(self, tmp_path):
        schedule = Schedule(sweeps=2, warmup=1, thin=1, chains=1)
        with pytest.raises(SettingsError, match="two draws"):
            ShardedDoubleFeature(Sharding(2), schedule=schedule).fit(RATINGS, out=tmp_path / "model")
        assert not (tmp_path / "model").exists()


class TestCommandLine:
    FIT = ("--sweeps", "16", "--warmup", "8", "--thin", "2", "--chains", "2", "--threads", "1", "--preset", "paper")

    def test_every_verb(self, run, csv, tmp_path):
        out = tmp_path / "model"
        done = run("fit", csv, "--out", out, "--shards", 2, *self.FIT)
        assert done.code == 0, done.err
        assert "within ε" in done.err
        assert "shards disagree" in (out / "card.md").read_text()
        (tmp_path / "pairs.csv").write_text("user,item\nu0,i1\nnobody,i2\n")
        for words in (
            ("predict", out, tmp_path / "pairs.csv"),
            ("recommend", out, "--user", "u3"),
            ("recommend", out, "--user", "nobody"),
            ("prefer", out, "--user", "u3", "i1", "i2"),
            ("explain", out, "--user", "u3", "--item", "i1"),
            ("top", out),
            ("top", out, "--by", "offset", "--json"),
            ("similar", out, "i3"),
            ("diagnose", out),
            ("features", out, "--shard", 1),
            ("report", out),
            ("export", out, "--shard", 0, "--format", "csv", "--out", tmp_path / "draws"),
            ("resume", out),
        ):
            done = run(*words)
            assert done.code == 0, (words, done.err)
            assert done.out

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--merge", "paper"), "--shards"),
            (("--shards", 100), "at most 40"),
        ],
    )
    def test_bad_options_get_one_line(self, run, csv, tmp_path, words, says):
        done = run("fit", csv, "--out", tmp_path / "model", *words, *self.FIT)
        assert done.code == 2
        assert says in done.err
        assert len(done.err.strip().splitlines()) == 1

    def test_features_need_a_shard(self, run, by_paper):
        for words, says in (((), "--shard, 0 to 2"), (("--shard", 7), "shards 0 to 2")):
            done = run("features", by_paper.folder_.path, *words)
            assert (done.code, says in done.err) == (2, True), done.err
        done = run("features", by_paper.folder_.path / "shards" / "00", "--shard", 0)
        assert "Leave out --shard" in done.err
