import csv
import json
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import xarray
from arviz_stats.base import array_stats

import doublefeature as df
from doublefeature.errors import EnvironmentProblem, InputError, MissingExtraError, RatingsError
from doublefeature.inference.chain import sample
from doublefeature.inference.diagnostics import diagnose
from doublefeature.model.state import members
from doublefeature.posterior import export
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.export import export_arviz, export_csv, export_parquet, to_datatree
from doublefeature.posterior.predict import draw_scores
from doublefeature.studies.recovery import Design, simulate
from tests.examples import message
from tests.posterior import SCALES, grade

EXPORTERS = [export_arviz, export_csv, export_parquet]
AWKWARD = ["=1+1", "+a", "-b", "@c", "\tt", 'quote"d', "comma, new\nline", "ünï", "'", "plain"]
TABLES = ["draws", "features", "item_members", "item_offsets", "user_members", "user_offsets"]


@pytest.fixture(scope="module")
def fitted():
    full, _ = simulate(Design(users=30, items=20, tau=0.5), seed=3)
    train = full.split(0.2, seed=1)[0]
    schedule = df.Schedule(sweeps=40, warmup=20, thin=2, chains=2, threads=1)
    posterior = sample(train, df.Priors(user_offsets=True, item_rate_by_feature=True), schedule, seed=1)
    return posterior, train


@pytest.fixture(scope="module")
def graded(fitted):
    """The same draws with effects of single items, noise scales of users and free cutpoints."""
    posterior, train = fitted
    return grade_posterior(posterior), train


@pytest.fixture(scope="module")
def named(fitted):
    posterior, train = fitted
    items = (*AWKWARD, *(f"film {k}" for k in range(train.n_items - len(AWKWARD))))
    return posterior, replace(train, items=items)


def grade_posterior(posterior):
    rng = np.random.default_rng(8)
    return Posterior(posterior.base, [grade(draw, rng) for draw in posterior], posterior.traces, SCALES)


def open_tree(path):
    with xarray.open_datatree(path, engine="h5netcdf") as tree:
        return tree.load()


def by_draw(posterior, value):
    return np.array([[value(draw) for draw in chain] for chain in posterior.chains])


class TestArviz:
    @pytest.fixture
    def tree(self, named, tmp_path):
        path = export_arviz(*named, tmp_path / "draws.nc", settings={"seed": 1})
        assert path == tmp_path / "draws.nc"
        return open_tree(path)

    def test_what_is_read_back_is_what_was_drawn(self, named, tree):
        posterior, ratings = named
        found = tree["posterior"]
        assert np.array_equal(found["K"], posterior.n_features.reshape(2, 10))
        assert np.array_equal(found["noise_scale"], posterior.noise.reshape(2, 10))
        assert np.array_equal(found["lp"], by_draw(posterior, lambda draw: draw.log_likelihood))
        assert np.array_equal(found["item_offset"], by_draw(posterior, lambda draw: draw.item_offset))
        assert np.array_equal(found["user_offset"], by_draw(posterior, lambda draw: draw.user_offset))
        assert found["item_offset"].dims == ("chain", "draw", "item")
        assert found["item"].values.tolist() == list(ratings.items)
        assert found["user"].values.tolist() == list(ratings.users)
        assert np.array_equal(
            found["item_offset"].sel(item="=1+1"), by_draw(posterior, lambda draw: draw.item_offset[0])
        )
        assert {"mass", "item_rate", "effect_sd", "item_offset_sd", "user_offset_sd"} <= set(found.data_vars)

    def test_the_other_groups(self, named, tree):
        posterior, ratings = named
        stats, observed = tree["sample_stats"], tree["observed_data"]
        assert np.array_equal(stats["sweep"], by_draw(posterior, lambda draw: draw.sweep))
        assert np.array_equal(stats["n_features"], tree["posterior"]["K"])
        assert np.array_equal(stats["lp"], tree["posterior"]["lp"])
        for name, column in zip(("user_code", "item_code", "level"), ratings.triples(), strict=True):
            assert np.array_equal(observed[name], column)
        assert list(tree.children) == ["posterior", "sample_stats", "memberships", "observed_data"]

    def test_memberships_by_hand(self, named, tree):
        posterior, _ = named
        found = tree["memberships"]
        for role, words in (("item", "item_words"), ("user", "user_words")):

            def counts(draw, words=words):
                return members(getattr(draw, words), np.arange(draw.n_features)).sum(axis=1)

            assert np.array_equal(found[f"{role}_features"], by_draw(posterior, counts))
        inside = [members(draw.item_words, np.arange(draw.n_features)) for draw in posterior.chains[1]]
        shared = np.mean([(one[4] & one[7]).sum() for one in inside])
        table = found["shared_features"]
        assert float(table.sel(chain=1, item=AWKWARD[4], other_item=AWKWARD[7])) == pytest.approx(shared)
        assert np.array_equal(table, table.transpose("chain", "other_item", "item").values)

    def test_convergence_read_from_the_file_is_that_of_diagnose(self, named, tree):
        found = diagnose(*named)
        table = tree["posterior"]["predictive_mean"]
        for place, probe in enumerate(found.probes):
            chains = table.isel(probe=place)
            assert float(array_stats.rhat(chains.values)) == pytest.approx(probe.found.rhat, rel=1e-8)
            assert (chains["probe_user"].item(), chains["probe_item"].item()) == probe.pair
        expected = {quantity.name: quantity.found.ess_bulk for quantity in found.quantities}
        assert float(array_stats.ess(tree["posterior"]["K"].values)) == pytest.approx(expected["K"], rel=1e-8)

    def test_attributes(self, named, tree):
        assert tree.attrs["inference_library"] == "doublefeature"
        assert tree.attrs["inference_library_version"] == df.__version__
        assert json.loads(tree.attrs["settings"]) == {"seed": 1}
        assert json.loads(tree.attrs["levels"]) == [1, 2, 3, 4, 5]
        assert tree.attrs["data_fingerprint"] == named[1].fingerprint

    def test_whole_number_ids_stay_numbers(self, fitted):
        assert to_datatree(*fitted)["posterior"]["user"].dtype == np.int64

    def test_pairs_of_items_only_when_they_are_few(self, fitted, monkeypatch):
        monkeypatch.setattr(export, "MOST_ITEMS_PAIRED", 19)
        assert "shared_features" not in to_datatree(*fitted)["memberships"]

    def test_users_without_offsets_have_none_in_the_file(self, fitted):
        posterior, ratings = fitted
        plain = [draw._replace(user_offset=np.zeros(30)) for draw in posterior]
        assert "user_offset" not in to_datatree(Posterior(posterior.base, plain), ratings)["posterior"]

    def test_unequal_chains_are_cut(self, fitted):
        posterior, ratings = fitted
        tree = to_datatree(Posterior(posterior.base, posterior.draws[:-3]), ratings)
        assert dict(tree["posterior"].sizes) == {"chain": 2, "draw": 7, "item": 20, "user": 30, "probe": 50}
        assert tree["sample_stats"]["sweep"].values[:, -1].tolist() == [34, 34]


def read_csv(folder, name):
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def scores_from_tables(tables, place, base, users, items):
    """Rebuild scores from the tables alone: base, offsets, and the effects of features that hold both."""
    here = {name: [row for row in rows if (row["chain"], row["sweep"]) == place] for name, rows in tables.items()}
    rho = {row["item"]: float(row["value"]) for row in here["item_offsets"]}
    alpha = {row["user"]: float(row["value"]) for row in here["user_offsets"]}
    of_users = {(row["user"], row["feature"]) for row in here["user_members"]}
    of_items = {(row["item"], row["feature"]) for row in here["item_members"]}
    return np.array([
        base + rho[item] + alpha[user] + sum(
            float(row["effect"]) for row in here["features"]
            if (user, row["feature"]) in of_users and (item, row["feature"]) in of_items
        )
        for user in users for item in items
    ])  # fmt: skip


class TestGraded:
    def test_scores_can_be_rebuilt(self, graded, tmp_path):
        posterior, ratings = graded
        folder = export_csv(posterior, ratings, tmp_path / "tables")
        names = sorted(path.stem for path in folder.iterdir())
        assert names == sorted([*TABLES, "user_scales"])
        draw = posterior.draws[13]
        here = {
            name: [row for row in read_csv(folder, name) if (row["chain"], row["sweep"]) == ("1", str(draw.sweep))]
            for name in names
        }
        rho = {row["item"]: float(row["value"]) for row in here["item_offsets"]}
        alpha = {row["user"]: float(row["value"]) for row in here["user_offsets"]}
        of_users = {(row["user"], row["feature"]) for row in here["user_members"]}

        def score(user, item, effect):
            shared = (row for row in here["item_members"] if row["item"] == item and (user, row["feature"]) in of_users)
            return posterior.base + rho[item] + alpha[user] + sum(effect(row) for row in shared)

        of_features = {row["feature"]: float(row["effect"]) for row in here["features"]}
        ids = [(str(u), str(i)) for u in ratings.users for i in ratings.items]
        expected = draw_scores(draw, posterior.base, *np.indices((30, 20)).reshape(2, -1))
        found = [score(*pair, lambda row: float(row["effect"])) for pair in ids]
        wrong = [score(*pair, lambda row: of_features[row["feature"]]) for pair in ids]
        np.testing.assert_allclose(found, expected, atol=1e-9)
        assert np.abs(wrong - expected).max() > 0.1
        assert [float(row["value"]) for row in here["user_scales"]] == SCALES[draw.user_scale].tolist()
        (row,) = here["draws"]
        assert [float(row[f"cutpoint_{place}"]) for place in range(1, 5)] == draw.cutpoints[1:-1].tolist()

    def test_parquet_holds_the_same(self, graded, tmp_path):
        texts, frames = export_csv(*graded, tmp_path / "csv"), export_parquet(*graded, tmp_path / "parquet")
        for path in frames.iterdir():
            frame = pl.read_parquet(path)
            assert frame.equals(pl.read_csv(texts / f"{path.stem}.csv", schema=frame.schema))
        columns = pl.read_parquet(frames / "item_members.parquet").columns
        assert columns == ["chain", "sweep", "feature", "item", "effect"]

    def test_the_netcdf_file(self, graded, tmp_path):
        posterior, _ = graded
        tree = open_tree(export_arviz(*graded, tmp_path / "draws.nc"))
        found, shared = tree["posterior"], tree["memberships"]
        assert np.array_equal(found["cutpoints"], by_draw(posterior, lambda draw: draw.cutpoints[1:-1]))
        assert np.array_equal(found["user_scale"], by_draw(posterior, lambda draw: SCALES[draw.user_scale]))
        sums = by_draw(posterior, lambda draw: draw.to_state().item_effect.sum(axis=1))
        assert np.allclose(shared["item_effects"], sums)
        tables = [draw.to_state().item_effect for draw in posterior.chains[1]]
        products = np.mean([table[4] @ table[7] for table in tables])
        assert float(shared["shared_effects"][1, 4, 7]) == pytest.approx(products)

    def test_what_a_model_does_not_have_is_left_out(self, fitted, tmp_path):
        tree = open_tree(export_arviz(*fitted, tmp_path / "draws.nc"))
        assert not {"cutpoints", "user_scale"} & set(tree["posterior"].data_vars)
        assert not {"item_effects", "shared_effects"} & set(tree["memberships"].data_vars)


class TestTables:
    def test_scores_can_be_rebuilt(self, fitted, tmp_path):
        posterior, ratings = fitted
        folder = export_csv(posterior, ratings, tmp_path / "tables")
        assert sorted(path.stem for path in folder.iterdir()) == TABLES
        tables = {name: read_csv(folder, name) for name in TABLES}
        grid = np.indices((30, 20)).reshape(2, -1)
        ids = [str(u) for u in ratings.users], [str(i) for i in ratings.items]
        for draw in (posterior.draws[0], posterior.draws[13]):
            place = (str(draw.chain), str(draw.sweep))
            expected = draw_scores(draw, posterior.base, *grid)
            np.testing.assert_allclose(scores_from_tables(tables, place, posterior.base, *ids), expected, atol=1e-9)
        shifted = [{**row, "feature": str(int(row["feature"]) + 1)} for row in tables["user_members"]]
        wrong = scores_from_tables({**tables, "user_members": shifted}, place, posterior.base, *ids)
        assert np.abs(wrong - expected).max() > 0.1

    def test_draws(self, fitted, tmp_path):
        posterior, _ = fitted
        rows = read_csv(export_csv(*fitted, tmp_path / "tables"), "draws")
        assert len(rows) == len(posterior)
        for row, draw in zip(rows, posterior, strict=True):
            assert (int(row["chain"]), int(row["sweep"]), int(row["K"])) == (draw.chain, draw.sweep, draw.n_features)
            assert float(row["log_likelihood"]) == draw.log_likelihood
            assert float(row["noise_scale"]) == draw.hyper[0]
        assert list(rows[0])[4:] == [
            "noise_scale", "mass", "item_rate", "effect_sd", "item_offset_sd", "user_offset_sd", "grade_sd",
            "user_scale_sd", "user_grade_sd", "remainder_sd",
        ]  # fmt: skip

    def test_parquet_holds_the_same(self, fitted, tmp_path):
        texts, frames = export_csv(*fitted, tmp_path / "csv"), export_parquet(*fitted, tmp_path / "parquet")
        assert sorted(path.name for path in frames.iterdir()) == [f"{name}.parquet" for name in TABLES]
        for name in TABLES:
            frame = pl.read_parquet(frames / f"{name}.parquet")
            assert frame.equals(pl.read_csv(texts / f"{name}.csv", schema=frame.schema))

    def test_parquet_in_batches_is_one_file(self, fitted, tmp_path, monkeypatch):
        whole = export_parquet(*fitted, tmp_path / "whole")
        monkeypatch.setattr(export, "_BATCH_ROWS", 50)
        folder = export_parquet(*fitted, tmp_path / "odd [name]*")
        for name in TABLES:
            parts, one = ((place / f"{name}.parquet").read_bytes() for place in (folder, whole))
            assert pl.read_parquet(parts).equals(pl.read_parquet(one))
        assert sorted(path.name for path in folder.iterdir()) == [f"{name}.parquet" for name in TABLES]

    def test_batches_stay_small(self):
        blocks = ({"chain": np.zeros(100_000)} for _ in range(12))
        assert [len(batch) for batch in export._batches(blocks)] == [3, 3, 3, 3]

    def test_spreadsheets_run_no_ids(self, named, tmp_path):
        rows = read_csv(export_csv(*named, tmp_path / "tables"), "item_offsets")
        found = [row["item"] for row in rows[: len(AWKWARD)]]
        assert found == ["'=1+1", "'+a", "'-b", "'@c", "'\tt", *AWKWARD[5:]]
        values = [float(row["value"]) for row in rows if row["item"] == "'-b"]
        assert values == [draw.item_offset[2] for draw in named[0]]

    def test_parquet_keeps_ids(self, named, tmp_path):
        frame = pl.read_parquet(export_parquet(*named, tmp_path / "tables") / "item_offsets.parquet")
        assert frame["item"][: len(AWKWARD)].to_list() == AWKWARD

    def test_negative_numbers_are_not_text(self, fitted, tmp_path):
        posterior, ratings = fitted
        rows = read_csv(export_csv(posterior, replace(ratings, items=range(-20, 0)), tmp_path / "t"), "item_offsets")
        assert rows[0]["item"] == "-20"

    def test_no_user_offsets_no_table(self, fitted, tmp_path):
        posterior, ratings = fitted
        plain = Posterior(posterior.base, [draw._replace(user_offset=np.zeros(30)) for draw in posterior])
        for write in (export_csv, export_parquet):
            assert not list(write(plain, ratings, tmp_path / write.__name__).glob("user_offsets*"))

    def test_draws_without_features(self, fitted, tmp_path):
        posterior, ratings = fitted
        none = {"effect": np.zeros(0), "item_rate": np.zeros(0)}
        bare = [
            draw._replace(user_words=np.zeros((30, 1), np.uint64), item_words=np.zeros((20, 1), np.uint64), **none)
            for draw in posterior
        ]
        empty = Posterior(posterior.base, bare)
        assert read_csv(export_csv(empty, ratings, tmp_path / "csv"), "features") == []
        folder = export_parquet(empty, ratings, tmp_path / "parquet")
        assert pl.read_parquet(folder / "user_members.parquet").columns == ["chain", "sweep", "feature", "user"]
        assert not to_datatree(empty, ratings)["memberships"]["shared_features"].any()


class TestTargets:
    @pytest.mark.parametrize("write", EXPORTERS)
    def test_what_exists_is_not_overwritten(self, fitted, tmp_path, write):
        file, folder = tmp_path / "file", tmp_path / "folder"
        file.write_text("mine")
        folder.mkdir()
        (folder / "mine").touch()
        for target in (file, folder):
            with pytest.raises(InputError) as problem:
                write(*fitted, target)
            assert "exists and is not empty" in message(problem)
        assert file.read_text() == "mine"
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "mine"]

    @pytest.mark.parametrize("write", EXPORTERS)
    def test_empty_targets_and_new_parents(self, fitted, tmp_path, write):
        (tmp_path / "empty").mkdir()
        for target in (tmp_path / "empty", tmp_path / "new" / "deep"):
            assert write(*fitted, str(target)) == target
            assert target.is_file() == (write is export_arviz)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]

    @pytest.mark.parametrize("write", EXPORTERS)
    @pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError(28, "No space left on device")])
    def test_a_broken_export_leaves_nothing(self, fitted, tmp_path, monkeypatch, write, problem):
        done = []

        def broken(*arguments, **options):
            done.append(arguments)
            if len(done) > 1:
                raise problem

        if write is export_arviz:
            done.append(())
        monkeypatch.setattr(export, "_write_csv", broken)
        monkeypatch.setattr(export, "_write_parquet", broken)
        monkeypatch.setattr(xarray.DataTree, "to_netcdf", broken)
        expected = EnvironmentProblem if isinstance(problem, OSError) else KeyboardInterrupt
        with pytest.raises(expected) as caught:
            write(*fitted, tmp_path / "out")
        if expected is EnvironmentProblem:
            assert message(caught).endswith("cannot be written: No space left on device.")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("write", EXPORTERS)
    def test_places_that_cannot_be_written(self, fitted, tmp_path, write):
        (tmp_path / "file").write_text("x")
        for target in (tmp_path / "file" / "below", tmp_path / ("n" * 300)):
            with pytest.raises(EnvironmentProblem) as problem:
                write(*fitted, target)
            assert "cannot be written" in message(problem)

    @pytest.mark.parametrize("write", EXPORTERS)
    def test_other_ratings_are_refused(self, fitted, tmp_path, write):
        posterior, _ = fitted
        other, _ = simulate(Design(users=5, items=6), seed=1)
        with pytest.raises(RatingsError, match="the draws have 30 users"):
            write(posterior, other, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("write", "package", "extra"),
        [(export_arviz, "xarray", "arviz"), (export_arviz, "h5netcdf", "arviz"), (export_parquet, "polars", "io")],
    )
    def test_missing_extras_are_named(self, fitted, tmp_path, monkeypatch, write, package, extra):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError) as problem:
            write(*fitted, tmp_path / "out")
        assert f"pip install 'doublefeature[{extra}]'" in message(problem)
        assert list(tmp_path.iterdir()) == []
