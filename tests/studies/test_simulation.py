import dataclasses
import io
import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest

import doublefeature as df
from doublefeature.errors import EnvironmentProblem, InputError, MissingExtraError, SettingsError
from doublefeature.evaluation import drawing
from doublefeature.evaluation.peers import base, child
from doublefeature.posterior import disk
from doublefeature.posterior.disk import write_whole
from doublefeature.studies import figures, recovery, simulation
from doublefeature.studies.factorisation import Grid, factorise, tune
from doublefeature.studies.recovery import (
    Columns,
    Design,
    accuracy_by_user,
    align,
    coverage,
    overlap,
    share_right,
    simulate,
    top_accuracy_by_user,
)
from doublefeature.studies.simulation import run_simulation_study, simulate_into
from doublefeature.studies.tables import Spread, bars_of

SMALL = Design(users=20, items=15)
SCHEDULE = df.Schedule(sweeps=30, warmup=15, thin=3, chains=2, threads=1)
GRID = Grid(ranks=(1,), penalties=(0.02, 0.1), folds=2, iterations=20)


def study(out, **changes):
    settings = {"seeds": [3, 4], "taus": [0.25, 0.5], "schedule": SCHEDULE, "design": SMALL, "grid": GRID}
    return run_simulation_study(out, **(settings | changes))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return study(tmp_path_factory.mktemp("study") / "new" / "folder")


@pytest.fixture
def no_sampling(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("sampled")

    monkeypatch.setattr(simulation, "run_trial", refuse)


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(figures, "draw_figures", lambda cells: {})


@pytest.fixture(scope="module")
def low_rank():
    rng = np.random.default_rng(5)
    users, items = rng.choice([-1.4, 0.0, 1.4], (40, 2)), rng.choice([-1.0, 1.0], (30, 2))
    levels = np.clip(np.rint(2 + users @ items.T), 0, 4).astype(np.uint8)
    rows, columns = np.divmod(np.arange(40 * 30), 30)
    ratings = df.Ratings.from_codes(
        rows.astype(np.uint32),
        columns.astype(np.uint32),
        levels.ravel(),
        users=range(40),
        items=range(30),
        levels="1..5",
    )
    return ratings.split(0.3, seed=1)


def rmse(model, part):
    users, items, _ = recovery.codes_of(part)
    return float(np.sqrt(((model.predict(users, items) - part.values()) ** 2).mean()))


class TestFactorisation:
    def test_finds_a_planted_low_rank_matrix(self, low_rank, capfd):
        train, test = low_rank
        tuned = tune(train, Grid(ranks=(1, 2), penalties=(0.01, 0.3), folds=3), threads=2)
        by_mean = float(np.sqrt(((test.values() - train.values().mean()) ** 2).mean()))
        assert (tuned.rank, tuned.penalty) == (2, 0.01)
        assert rmse(tuned.model, test) < 0.5 * by_mean
        mixed = dataclasses.replace(tuned.model, item_factors=tuned.model.item_factors[::-1])
        assert rmse(mixed, test) > 0.9 * by_mean
        assert capfd.readouterr().out == ""

    def test_cross_validation_by_hand(self, low_rank):
        train, _ = low_rank
        tuned = tune(train, Grid(ranks=(2,), penalties=(0.05,), folds=2, iterations=15), seed=3)
        folds = np.random.default_rng(3).permutation(len(train)) % 2
        squares = 0.0
        for fold in range(2):
            left_out = train.subset(folds == fold)
            squares += rmse(factorise(train.subset(folds != fold), 2, 0.05, 15), left_out) ** 2 * len(left_out)
        assert tuned.validation_rmse == {(2, 0.05): pytest.approx((squares / len(train)) ** 0.5)}

    def test_the_same_every_time(self, low_rank):
        one, two = (tune(low_rank[0], GRID, threads=threads) for threads in (1, 2))
        assert one.validation_rmse == two.validation_rmse
        assert np.array_equal(one.model.user_factors, two.model.user_factors)

    def test_ids_without_training_ratings_get_the_mean(self, low_rank):
        users, items, _ = low_rank[0].triples()
        train = low_rank[0].subset((users != 5) & (users != 39) & (items != 7))
        model = factorise(train, 2, 0.02)
        predicted = model.predict(np.array([5, 39, 0, 0]), np.array([0, 1, 7, 1]))
        assert np.allclose(predicted[:3], train.values().mean())
        assert predicted[3] != predicted[0]

    def test_ratings_that_are_all_equal(self):
        train = df.Ratings.from_triples(["a", "a", "b"], ["x", "y", "x"], [4, 4, 4], levels="1..5")
        assert np.allclose(factorise(train, 2, 0.02).predict(np.array([1]), np.array([1])), 4.0, atol=0.01)

    def test_a_fit_that_hangs_is_tried_again(self, low_rank, monkeypatch):
        real, allowed = subprocess.run, []

        def first_hangs(command, **options):
            allowed.append(options["timeout"])
            if len(allowed) == 1:
                raise subprocess.TimeoutExpired(command, options["timeout"])
            return real(command, **options)

        monkeypatch.setattr(child.subprocess, "run", first_hangs)
        assert rmse(factorise(low_rank[0], 2, 0.01), low_rank[1]) < 1.0
        assert allowed[1] == 2 * allowed[0]

    def test_without_the_package(self, low_rank, monkeypatch):
        monkeypatch.setattr(base, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"doublefeature\[study\]"):
            tune(low_rank[0])

    def test_too_few_ratings(self, low_rank):
        mask = np.zeros(len(low_rank[0]), bool)
        with pytest.raises(SettingsError, match="5 folds need as many ratings"):
            tune(low_rank[0].subset(mask))


class TestCoverage:
    def test_by_hand(self):
        table = np.array([[0.3, 0.6, 0.1]] * 3)
        assert coverage(table, np.array([1, 1, 1]), 0.5) == pytest.approx(0.5 / 0.6)
        assert coverage(table, np.array([0, 0, 0]), 0.8) == pytest.approx(0.2 / 0.3)
        assert coverage(table, np.array([0, 1, 2]), 0.9) == pytest.approx(2 / 3)

    def test_against_sets_that_are_drawn(self, rng):
        table = rng.dirichlet(np.ones(4), 3000)
        levels = np.array([rng.choice(4, p=row) for row in table])
        for mass in (0.5, 0.95):
            inside = []
            for row, level in zip(table, levels, strict=True):
                left = mass
                for candidate in sorted(range(4), key=lambda one: -row[one]):
                    if candidate == level:
                        inside.append(rng.random() < left / row[candidate])
                        break
                    left -= row[candidate]
            error = np.std(inside) / len(inside) ** 0.5
            assert abs(np.mean(inside) - coverage(table, levels, mass)) < 5 * error

    def test_sees_what_is_not_calibrated(self, rng):
        n = 20_000
        table = rng.dirichlet(np.ones(5), n)
        levels = (rng.random(n)[:, None] > np.cumsum(table, axis=1)).sum(axis=1)
        sure = table**2 / (table**2).sum(axis=1, keepdims=True)
        error = 0.5 / n**0.5
        for mass in recovery.MASSES:
            assert abs(coverage(table, levels, mass) - mass) < 5 * error
            assert coverage(sure, levels, mass) < mass - 10 * error


def columns(rng, n_features, n_users=7, n_items=5):
    members = rng.random((n_users, n_features)) < 0.5, rng.random((n_items, n_features)) < 0.5
    return Columns(*members, rng.standard_normal(n_features))


def differing(one, two):
    return int((one.user_members != two.user_members).sum() + (one.item_members != two.item_members).sum())


class TestAlign:
    @pytest.mark.parametrize(("planted", "found"), [(3, 3), (4, 2), (2, 4), (0, 2), (2, 0)])
    def test_against_all_pairings(self, rng, planted, found):
        for _ in range(10):
            truth, guess = columns(rng, planted), columns(rng, found)
            padded = truth.take([*range(planted), *[-1] * found])
            places = [*range(found), *[-1] * planted]
            fewest = min(differing(padded, guess.take(order)) for order in itertools.permutations(places))
            assert differing(*align(truth, guess)) == fewest

    def test_a_permuted_truth_is_all_right(self, rng):
        truth = columns(rng, 6, 60, 50)
        one, two = align(truth, truth.take(rng.permutation(6)))
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
        sizes = one.user_members.sum(axis=0) * one.item_members.sum(axis=0)
        assert (np.diff(sizes) <= 0).all()
        everything = np.ones(6, bool)
        assert share_right(one, two, everything) == overlap(one, two, everything) == 1.0
        assert share_right(truth, two, everything) < 0.8

    def test_shares_by_hand(self):
        truth = Columns(np.array([[1, 1], [1, 0]], bool), np.array([[1, 1], [0, 1]], bool), np.ones(2))
        guess = Columns(np.array([[1], [0]], bool), np.array([[1], [0]], bool), np.ones(1))
        one, two = align(truth, guess)
        both = np.ones(2, bool)
        assert one.effect.size == two.effect.size == 2
        assert share_right(one, two, both) == (3 + 1) / 8
        assert overlap(one, two, both) == pytest.approx((1 / 2 + 1 + 0 + 0) / 4)
        assert np.isnan(share_right(one, two, ~both))

    def test_a_complement_is_not_the_same_feature(self, rng):
        truth = columns(rng, 1, 40, 30)
        turned = truth._replace(user_members=~truth.user_members, effect=-truth.effect)
        one, two = align(truth, turned)
        assert share_right(one, two, np.array([True])) < 0.6


class TestByUser:
    def test_accuracy(self):
        users, levels = np.array([0, 0, 2]), np.array([1, 2, 3])
        found = accuracy_by_user(np.array([1, 0, 3]), users, levels, 3)
        assert np.array_equal(found, [0.5, np.nan, 1.0], equal_nan=True)

    def test_the_best_of_all_tops_that_ties_allow(self, rng):
        for _ in range(30):
            levels, means = rng.integers(0, 3, 7), rng.standard_normal(7)
            chosen = set(np.argsort(-means)[:3])
            best = sorted(levels)[-3:]
            tops = [top for top in itertools.combinations(range(7), 3) if sorted(levels[list(top)]) == best]
            expected = max(len(chosen & set(top)) for top in tops) / 3
            found = top_accuracy_by_user(means, np.zeros(7, int), levels, 1, n=3)
            assert found[0] == pytest.approx(expected)

    def test_a_perfect_ranking_and_one_upside_down(self):
        levels = np.arange(20)
        users = np.zeros(20, int)
        assert top_accuracy_by_user(levels.astype(float), users, levels, 1)[0] == 1.0
        assert top_accuracy_by_user(-levels.astype(float), users, levels, 1)[0] == 0.0
        assert np.isnan(top_accuracy_by_user(np.zeros(10), users[:10], levels[:10], 1)[0])


class TestStudy:
    def test_writes_everything(self, done):
        names = {str(path.relative_to(done.out)) for path in done.out.rglob("*") if path.is_file()}
        assert {"summary.md", "table.csv", "table.md", "results.json", "cells/tau0.25_seed3.json"} <= names
        assert not [name for name in names if "writing" in name]
        assert (done.out / "summary.md").read_text("utf-8") == done.summary
        assert (done.out / "table.md").read_text("utf-8") in done.summary
        for name in names:
            if name.startswith("figures/") and name.endswith(".png"):
                assert f"({name})" in done.summary

    def test_scores_by_hand(self, done):
        cell = done.cells[0]
        trial = recovery.run_trial(SMALL, 3, SCHEDULE)
        users, items, levels = recovery.codes_of(trial.test)
        table = trial.predicted(trial.test)
        peer = tune(trial.train, GRID, seed=3).model.predict(users, items)
        given = levels + 1.0
        assert cell.scores["doublefeature"] == (table.argmax(axis=1) == levels).mean()
        assert cell.scores["doublefeature_rmse"] == pytest.approx(
            np.sqrt(np.mean((table @ np.arange(1.0, 6.0) - given) ** 2))
        )
        assert cell.scores["factorisation"] == (np.rint(peer) == given).mean()
        assert cell.scores["factorisation_rmse"] == pytest.approx(np.sqrt(np.mean((peer - given) ** 2)))
        assert cell.scores["oracle"] == recovery.recover(SMALL, 3, SCHEDULE).oracle
        shares = cell.by_user["accuracy"]["factorisation"]
        counts = np.bincount(users, minlength=20)
        total = sum(share * count for share, count in zip(shares, counts, strict=True) if share is not None)
        assert total / counts.sum() == pytest.approx(cell.scores["factorisation"])
        assert [len(chain) for chain in cell.n_features] == [30, 30]
        assert cell.recovery["planted"] == trial.truth.n_features

    def test_table_is_over_seeds(self, done):
        rows = [line.split(",") for line in (done.out / "table.csv").read_text("utf-8").splitlines()]
        row = next(row for row in rows if row[0] == "oracle" or '"accuracy' in row[0])
        shares = [cell.scores["train"] for cell in done.cells if cell.tau == 0.25]
        assert float(row[4]) == pytest.approx(np.mean(shares))
        assert float(row[5]) == pytest.approx(np.std(shares, ddof=1))
        assert float(row[6]) == pytest.approx(np.std(shares, ddof=1) / 2**0.5)
        assert "69.12" in done.summary
        assert "66.89" in done.summary

    @pytest.mark.parametrize("threads", [None, 2])
    def test_finished_cells_are_kept(self, done, no_sampling, no_figures, threads):
        before = (done.out / "results.json").read_bytes()
        again = study(done.out, threads=threads)
        assert again.cells == done.cells
        assert again.summary.partition("## Figures")[0] == done.summary.partition("## Figures")[0]
        assert (done.out / "results.json").read_bytes() == before

    @pytest.mark.parametrize(
        "change",
        [
            {"schedule": dataclasses.replace(SCHEDULE, sweeps=31)},
            {"design": Design(users=21, items=15)},
            {"grid": dataclasses.replace(GRID, folds=4)},
        ],
    )
    def test_other_settings_are_other_cells(self, done, no_sampling, change):
        with pytest.raises(AssertionError, match="sampled"):
            study(done.out, **change)

    def test_goes_on_where_it_was_stopped(self, done, tmp_path, monkeypatch, no_figures):
        real = simulation.run_trial

        def interrupted(design, seed, *args, **kwargs):
            if seed == 4:
                raise KeyboardInterrupt
            return real(design, seed, *args, **kwargs)

        monkeypatch.setattr(simulation, "run_trial", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study(tmp_path, taus=[0.25])
        assert [path.name for path in (tmp_path / "cells").iterdir()] == ["tau0.25_seed3.json"]
        monkeypatch.setattr(simulation, "run_trial", lambda design, seed, *a, **k: real(design, {4: 4}[seed], *a, **k))
        lines = []
        assert study(tmp_path, taus=[0.25], threads=2, announce=lines.append).cells == done.cells[:2]
        assert [line[:14] for line in lines] == ["τ 0.25  seed 3", "τ 0.25  seed 4"]

    @pytest.mark.parametrize(
        "damage", [lambda text: text[:100], lambda text: "[]", lambda text: text.replace("cell", "x")]
    )
    def test_a_damaged_cell_is_computed_again(self, done, tmp_path, no_figures, damage):
        (tmp_path / "cells").mkdir()
        path = tmp_path / "cells" / "tau0.25_seed3.json"
        stored = (done.out / "cells" / path.name).read_text("utf-8")
        path.write_text(damage(stored), "utf-8")
        assert study(tmp_path, seeds=[3], taus=[0.25]).cells == done.cells[:1]
        assert path.read_text("utf-8") == stored

    def test_nothing_to_do(self, tmp_path, no_sampling):
        with pytest.raises(SettingsError, match="at least one seed"):
            study(tmp_path, seeds=[])


class TestFolders:
    def test_a_file_in_the_way(self, tmp_path, no_sampling):
        (tmp_path / "file").write_text("")
        for out in (tmp_path / "file", tmp_path / "file" / "below"):
            with pytest.raises(InputError, match="a file is in the way"):
                study(out)

    def test_a_folder_of_something_else(self, tmp_path, no_sampling):
        (tmp_path / "results.json").write_text("mine")
        with pytest.raises(InputError, match="something else than a study"):
            study(tmp_path)
        assert (tmp_path / "results.json").read_text() == "mine"

    def test_a_folder_that_cannot_be_written(self, tmp_path, no_sampling, monkeypatch):
        def refuse(**options):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(simulation.tempfile, "TemporaryFile", refuse)
        with pytest.raises(EnvironmentProblem, match="Permission denied"):
            study(tmp_path)

    def test_missing_extras_are_seen_first(self, tmp_path, no_sampling, monkeypatch):
        monkeypatch.setattr(drawing, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"doublefeature\[plot\]"):
            study(tmp_path / "new")
        assert not (tmp_path / "new").exists()

    def test_a_full_disk_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "table.md"
        write_whole(path, b"old")

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(disk.os, "fsync", full)
        with pytest.raises(EnvironmentProblem, match="no space left"):
            write_whole(path, b"new")
        assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def pixels(content):
    from matplotlib.image import imread

    return imread(io.BytesIO(content), format="png")


def count_blue(picture):
    return int((np.abs(picture[..., :3] - np.array([0x00, 0x72, 0xB2]) / 255) < 0.02).all(axis=2).sum())


class TestFigures:
    def test_pictures_with_something_in_them(self, done):
        names = {"accuracy_tau0.25", "users_tau0.5", "sweeps_tau0.25", "features_tau0.5_seed4"}
        found = {path.stem for path in (done.out / "figures").iterdir()}
        assert names <= found
        for stem in found:
            picture = pixels((done.out / "figures" / f"{stem}.png").read_bytes())
            drawing = (done.out / "figures" / f"{stem}.svg").read_text("utf-8")
            assert min(picture.shape[:2]) > 300
            assert 0.01 < (picture[..., :3] < 0.98).any(axis=2).mean() < 0.95
            assert "</svg>" in drawing
            assert len(drawing) > 5_000

    def test_the_same_every_time(self, done):
        again = figures.draw_figures([cell for cell in done.cells if cell.tau == 0.5])
        assert len(again) == 10
        assert all((done.out / "figures" / name).read_bytes() == content for name, content in again.items())

    def test_an_estimate_without_features(self, done):
        empty = {**done.cells[0].truth, "users": [], "items": [], "effect": []}
        cell = dataclasses.replace(done.cells[0], truth=empty, estimate=empty)
        drawn = pixels(figures.draw_figures([cell])["features_tau0.25_seed3.png"])
        full = pixels((done.out / "figures" / "features_tau0.25_seed3.png").read_bytes())
        assert count_blue(drawn) == 0 < count_blue(full)


class TestBars:
    @pytest.fixture
    def cells(self, done):
        good = {"doublefeature": 0.9, "oracle": 0.91, "factorisation": 0.85}
        recovered = {"planted_large": 8, "found": 9, "found_large": 7, "right": 0.97, "right_plain": 0.99}
        return [
            dataclasses.replace(
                cell,
                scores=cell.scores | good,
                coverage={"0.5": 0.51, "0.8": 0.79, "0.95": 0.95},
                recovery=cell.recovery | recovered,
                ceiling=cell.ceiling | recovered,
            )
            for cell in done.cells
            if cell.tau == 0.25
        ]

    def test_all_hold(self, cells):
        assert len(bars_of(cells)) == 10
        assert all(bar.holds for bar in bars_of(cells))

    @pytest.mark.parametrize(
        ("part", "change", "broken"),
        [
            ("scores", {"oracle": 0.93}, "less 1.5 points"),
            ("scores", {"doublefeature": 0.86, "oracle": 0.88}, "86.89%"),
            ("scores", {"factorisation": 0.95}, "factorisation"),
            ("coverage", {"0.8": 0.83}, "80% sets"),
            ("recovery", {"right": 0.9}, "memberships of large features right"),
            ("recovery", {"right_plain": 0.9}, "plain to see"),
            ("recovery", {"found": 11}, "K̂"),
            ("recovery", {"found_large": 5}, "in the estimate"),
        ],
    )
    def test_one_breaks(self, cells, part, change, broken):
        changed = [dataclasses.replace(cell, **{part: getattr(cell, part) | change}) for cell in cells]
        bars = bars_of(changed)
        assert any(broken in bar.asked for bar in bars if not bar.holds)

    def test_one_seed_is_enough_to_lose_to_the_peer(self, cells):
        lost = dataclasses.replace(cells[1], scores=cells[1].scores | {"factorisation": 0.901})
        assert "least lead -0.10 points" in [bar.found for bar in bars_of([cells[0], lost]) if not bar.holds]

    def test_spread(self):
        assert Spread.of([0.5, 0.7]).show(percent=True) == "60.00 ± 10.00 (sd 14.14)"
        assert Spread.of([0.25]).show(percent=False) == "0.250"


class TestSimulateInto:
    def test_ratings_and_truth(self, tmp_path):
        simulate_into(tmp_path / "data", SMALL, 7)
        ratings, truth = simulate(SMALL, 7)
        read = df.read_ratings(tmp_path / "data" / "ratings.csv")
        assert len(read) == 300
        for user, item in ((0, 0), (19, 14), (7, 11)):
            given = ratings.rated_items(user)[item]
            assert read.rated_items(f"u{user + 1}")[f"i{item + 1}"] == given
        with np.load(tmp_path / "data" / "truth.npz", allow_pickle=False) as stored:
            assert np.array_equal(stored["user_members"], truth.user_members)
            assert np.array_equal(stored["item_members"], truth.item_members)
            assert np.array_equal(stored["effect"], truth.effect)
            assert (stored["noise"], stored["base"], stored["seed"]) == (0.25, 2.5, 7)
        assert {path.name for path in (tmp_path / "data").iterdir()} == {"ratings.csv", "truth.npz"}

    def test_nothing_is_overwritten(self, tmp_path):
        simulate_into(tmp_path, SMALL, 7)
        before = (tmp_path / "ratings.csv").read_bytes()
        with pytest.raises(InputError, match="is there already"):
            simulate_into(tmp_path, SMALL, 8)
        assert (tmp_path / "ratings.csv").read_bytes() == before

    @pytest.mark.parametrize("seed", [-1, 1.5, "1"])
    def test_bad_seeds(self, tmp_path, seed):
        with pytest.raises(SettingsError, match="seed"):
            simulate_into(Path(tmp_path), SMALL, seed)
