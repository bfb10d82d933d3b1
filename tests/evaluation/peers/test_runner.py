import numpy as np
import pytest

from doublefeature.errors import EnvironmentProblem
from doublefeature.evaluation.calibrate import fit_calibration
from doublefeature.evaluation.peers import runner
from doublefeature.evaluation.peers.base import Answer, Peer
from doublefeature.evaluation.peers.fitting import Pairs
from doublefeature.evaluation.peers.runner import Plan, run_peer, validation_split
from doublefeature.evaluation.peers.tuning import Search
from doublefeature.evaluation.splits import Split, make_splits
from doublefeature.studies.recovery import Design, simulate
from tests.evaluation.peers.fakes import LEVELS, POINTS, FitHere, offsets


@pytest.fixture(scope="module")
def ratings():
    return simulate(Design(users=60, items=30, tau=0.5), seed=4)[0].split(0.4, seed=0)[0]


@pytest.fixture(scope="module")
def split(ratings):
    return make_splits(ratings, "holdout", seed=2)[0]


@pytest.fixture
def here(monkeypatch):
    def put(**options):
        fit = FitHere(**options)
        monkeypatch.setattr(runner, "fit_apart", fit)
        return fit

    return put


def cells_of(part):
    return set(zip(*Pairs.of(part), strict=True))


def check_no_leak(calls, split):
    """No fit may learn from a held-out rating, nor from one that it is then asked about."""
    held_out = cells_of(split.test)
    for _, train, pairs, _ in calls:
        assert not cells_of(train) & held_out
        assert not cells_of(train) & set(zip(*pairs, strict=True))


class TestValidation:
    @pytest.mark.parametrize("protocol", ["paper", "holdout", "cold-users", "cold-items", "kfold"])
    def test_is_a_part_of_the_training_ratings_with_the_same_codes(self, ratings, protocol):
        split = make_splits(ratings, protocol, seed=1)[0]
        part = validation_split(split)
        assert cells_of(part.train) | cells_of(part.test) == cells_of(split.train)
        assert not cells_of(part.train) & cells_of(part.test)
        assert part.train.users == split.train.users
        assert part.train.items == split.train.items

    def test_looks_like_the_test_part(self, ratings):
        paper = validation_split(make_splits(ratings, "paper", seed=1)[0])
        assert np.bincount(Pairs.of(paper.test).users).max() == 1
        cold = validation_split(make_splits(ratings, "cold-items", seed=1)[0])
        assert not set(Pairs.of(cold.test).items) & set(Pairs.of(cold.train).items)

    def test_as_much_is_given_of_cold_users(self, ratings, here):
        split = make_splits(ratings, "cold-users", seed=1, given=3)[0]
        part = validation_split(split)
        counts = np.bincount(Pairs.of(part.given).users)
        assert set(counts[counts > 0]) == {3}
        fit = here()
        run_peer(POINTS, split, Search.of(POINTS), Plan())
        check_no_leak(fit.calls, split)
        assert [train.fingerprint for _, train, _, _ in fit.calls] == [part.known.fingerprint] * 3 + [
            split.known.fingerprint
        ]

    def test_is_the_same_every_time_and_another_for_each_seed(self, ratings):
        one, two, other = (
            validation_split(make_splits(ratings, "paper", seed=seed)[0]).test.fingerprint for seed in (1, 1, 2)
        )
        assert one == two != other


class TestTuning:
    def test_takes_the_settings_that_do_best_and_fits_them_to_all_training_ratings(self, split, here):
        fit = here()
        found = run_peer(POINTS, split, Search.of(POINTS), Plan())
        assert found.settings == {"weight": 1.0}
        scores = {trial.settings["weight"]: trial.log_score for trial in found.trials}
        assert max(scores, key=scores.get) == 1.0
        name, train, _, settings = fit.calls[-1]
        assert (name, settings) == ("points", {"weight": 1.0})
        assert train.fingerprint == split.train.fingerprint
        assert found.tuning_seconds == 6.0
        check_no_leak(fit.calls, split)

    def test_all_settings_see_the_same_parts(self, split, here):
        fit = here()
        run_peer(POINTS, split, Search.of(POINTS), Plan())
        assert len({train.fingerprint for _, train, _, _ in fit.calls[:-1]}) == 1

    def test_the_leak_check_sees_a_fit_on_everything(self, split, here, ratings):
        fit = here()
        run_peer(POINTS, Split(split.protocol, split.seed, ratings, split.test), Search.of(POINTS), Plan())
        with pytest.raises(AssertionError):
            check_no_leak(fit.calls, split)

    def test_a_model_with_probabilities_and_one_choice_is_fitted_once(self, split, here):
        fit = here()
        found = run_peer(LEVELS, split, Search.of(LEVELS), Plan())
        assert len(fit.calls) == 1
        assert found.trials == []
        np.testing.assert_allclose(found.predicted.proba.sum(axis=1), 1.0)

    def test_settings_that_take_too_long_are_passed_over(self, split, here):
        here(hangs=[{"weight": 1.0}])
        found = run_peer(POINTS, split, Search.of(POINTS), Plan(limit=9.0))
        finished = [trial for trial in found.trials if trial.log_score is not None]
        assert found.settings == max(finished, key=lambda trial: trial.log_score).settings
        assert [trial.log_score is None for trial in found.trials] == [False, True, False]
        assert found.trials[1].seconds == 9.0

    def test_a_model_that_never_finishes(self, split, here):
        here(hangs=POINTS.starts)
        with pytest.raises(EnvironmentProblem, match="points did not finish"):
            run_peer(POINTS, split, Search.of(POINTS), Plan())


def test_numbers_become_probabilities_by_a_calibration_on_the_validation_part(split, here):
    here()
    found = run_peer(POINTS, split, Search([{"weight": 1.0}]), Plan())
    part = validation_split(split)
    seen = offsets(part.train, {"weight": 1.0}, split.seed)(*Pairs.of(part.test)).points
    calibration = fit_calibration(seen, part.test.arrays.levels, part.test.n_levels)
    points = offsets(split.train, {"weight": 1.0}, split.seed)(*Pairs.of(split.test)).points
    np.testing.assert_allclose(found.predicted.proba, calibration.proba(points), atol=1e-8)
    np.testing.assert_allclose(found.predicted.mean, points.clip(1.0, 5.0))
    wrong = fit_calibration(-seen, part.test.arrays.levels, part.test.n_levels)
    assert not np.allclose(found.predicted.proba, wrong.proba(points), atol=1e-3)


def test_a_pair_without_a_number_gets_the_mean_rating(split, here):
    def gaps(train, settings, seed):
        return lambda users, items: Answer(np.where(items % 2, 9.0, np.nan))

    here()
    found = run_peer(Peer("gaps", "", "numpy", gaps), split, Search([{}]), Plan())
    odd = Pairs.of(split.test).items % 2 == 1
    np.testing.assert_allclose(found.predicted.mean[odd], 5.0)
    np.testing.assert_allclose(found.predicted.mean[~odd], split.train.values().mean())


def test_lists_are_asked_for_with_the_test_pairs(split, here):
    fit = here()
    listed = np.array([3, 1])
    found = run_peer(POINTS, split, Search([{"weight": 1.0}]), Plan(), listed=listed)
    expected = offsets(split.train, {"weight": 1.0}, split.seed)(np.zeros(30, int), np.arange(30)).points
    np.testing.assert_allclose(found.means, np.tile(expected, (2, 1)))
    assert fit.calls[-1][2].users.size == len(split.test) + 2 * split.train.n_items
    assert found.predicted.mean.size == len(split.test)
