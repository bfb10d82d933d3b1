"""Every adapter on small ratings: does it learn, answer for strangers, and say what its package says?"""

from importlib.util import find_spec

import numpy as np
import pytest

from doublefeature.errors import MissingExtraError, SettingsError
from doublefeature.evaluation.peers import base
from doublefeature.evaluation.peers.base import Factors, Rows
from doublefeature.evaluation.peers.cmfrec import CMFREC
from doublefeature.evaluation.peers.cornac import MF, PMF
from doublefeature.evaluation.peers.fitting import Pairs, fit_apart
from doublefeature.evaluation.peers.myfm import MYFM
from doublefeature.evaluation.peers.registry import GROUPS, KNOWN, OWN, PEERS, find_models
from doublefeature.evaluation.peers.surprise import SVDPP
from doublefeature.ratings import Ratings
from doublefeature.studies.recovery import Design, simulate

QUICK = {
    "libmf": {"iterations": 30, "penalty": 0.04},
    "bpmf": {"warmup": 20, "draws": 30, "rank": 4},
    "autorec": {"hidden": 50, "penalty": 20.0, "epochs": 80, "batches": 4},
    "mf": {"rank": 8, "epochs": 100},
    **{peer.name: {"iterations": 80, "warmup": 30} for peer in MYFM},
    **{
        peer.name: {"sweeps": 40, "warmup": 20, "thin": 2, "chains": 2}
        for peer in KNOWN.values()
        if peer.name.startswith(OWN)
    },
}
LEARNERS = [*PEERS, KNOWN[OWN], KNOWN["bias"]]
STRANGE_USER, STRANGE_ITEM = 5, 39


def split():
    ratings, _ = simulate(Design(users=60, items=40, tau=0.5), seed=3)
    train, test = ratings.split(0.2, seed=1)
    users, items, _ = train.triples()
    return train.subset((users != STRANGE_USER) & (items != STRANGE_ITEM)), test


TRAIN, TEST = split()


def need(peer):
    if not peer.installed:
        pytest.skip(f"{peer.package} is not installed")


def fit(peer, train=TRAIN, pairs=None, seed=1):
    need(peer)
    return fit_apart(peer, train, pairs or Pairs.of(TEST), QUICK.get(peer.name, {}), seed=seed, threads=1, limit=300.0)


def known_rows(pairs):
    return (pairs.users != STRANGE_USER) & (pairs.items != STRANGE_ITEM)


def check_it_learns(points):
    """Clearly less squared error than the mean rating: by three standard errors of the difference."""
    pairs, values = Pairs.of(TEST), TEST.values()
    gain = ((TRAIN.values().mean() - values) ** 2 - (points - values) ** 2)[known_rows(pairs)]
    assert gain.mean() > 3.0 * gain.std() / np.sqrt(gain.size)


@pytest.mark.parametrize("peer", LEARNERS, ids=lambda peer: peer.name)
def test_learns_and_answers_for_everybody(peer):
    found = fit(peer)
    points, proba = found.answer
    check_it_learns(points)
    assert np.isfinite(points).all()
    assert (proba is not None) == peer.gives_levels
    if proba is not None:
        assert proba.shape == (len(TEST), TEST.n_levels)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-6)
    assert found.usage.wall_seconds > 0.0
    assert found.usage.peak_megabytes > 20.0


def test_the_check_sees_users_and_items_mixed_up():
    pairs = Pairs.of(TEST)
    points = fit(KNOWN["bias"]).answer.points
    mixed = points[np.random.default_rng(0).permutation(points.size)]
    with pytest.raises(AssertionError):
        check_it_learns(mixed)
    wrong = Pairs(pairs.items, np.minimum(pairs.users, TEST.n_items - 1))
    with pytest.raises(AssertionError):
        check_it_learns(fit(KNOWN["bias"], pairs=wrong).answer.points)


@pytest.mark.parametrize("name", ["libmf", "svdpp", "autorec", "bpmf", "myfm-8"])
def test_the_same_every_time(name):
    pairs = Pairs(np.arange(6), np.arange(6))
    one, two = (fit(KNOWN[name], pairs=pairs).answer.points for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_tuning_starts_from_the_defaults_and_all_starts_differ(peer):
    starts = [tuple(settings.items()) for settings in peer.starts]
    assert starts[0] == tuple(peer.defaults.items())
    assert len(set(starts)) == len(starts)
    assert all(set(choice) <= set(peer.defaults) for choice in (*peer.choices, peer.ladders))


def caught(monkeypatch, cls):
    """Return a list into which every fitted object of a class goes."""
    found, real = [], cls.fit

    def noting(self, *args, **kwargs):
        found.append(self)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(cls, "fit", noting)
    return found


@pytest.mark.filterwarnings("ignore")
class TestAgainstThePackagesOwnAnswers:
    pairs = Pairs(*(column[known_rows(Pairs.of(TEST))][:40] for column in Pairs.of(TEST)))

    def answers(self, peer):
        return peer.fit_predict(TRAIN, *self.pairs, QUICK.get(peer.name, {}), 1).points

    def test_svdpp(self, monkeypatch):
        need(SVDPP)
        from surprise import SVDpp

        fitted = caught(monkeypatch, SVDpp)
        ours = self.answers(SVDPP)
        theirs = [fitted[0].estimate(*pair) for pair in zip(*self.pairs, strict=True)]
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)

    @pytest.mark.parametrize("peer", [MF, PMF], ids=lambda peer: peer.name)
    def test_cornac(self, peer, monkeypatch):
        need(peer)
        from cornac import models

        fitted = caught(monkeypatch, getattr(models, peer.name.upper()))
        ours = self.answers(peer)
        theirs = [float(fitted[0].score(*pair)) for pair in zip(*self.pairs, strict=True)]
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)

    def test_cmfrec(self, monkeypatch):
        need(CMFREC)
        from cmfrec import CMF

        fitted = caught(monkeypatch, CMF)
        np.testing.assert_allclose(self.answers(CMFREC), fitted[0].predict(*self.pairs), rtol=1e-6)


def test_myfm_gives_unseen_levels_no_probability():
    peer = KNOWN["myfm-8"]
    need(peer)
    levels = TRAIN.arrays.levels
    train = TRAIN.subset((levels != 0) & (levels != 3))
    proba = fit(peer, train=train).answer.proba
    assert (proba[:, [0, 3]] == 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-6)


def test_myfm_answers_are_the_packages_own(rng):
    myfm, sparse = pytest.importorskip("myfm"), pytest.importorskip("scipy.sparse")
    from doublefeature.evaluation.peers.myfm import level_shares

    n_users, n_items = 20, 8
    users, items = (rng.integers(0, n, 300) for n in (n_users, n_items))
    rated = sparse.csr_matrix(rng.random((n_users, n_items)) * (rng.random((n_users, n_items)) < 0.4))
    columns = sparse.hstack([sparse.identity(n_users), rated]).tocsr()
    blocks = [myfm.RelationBlock(users, columns), myfm.RelationBlock(items, sparse.identity(n_items, format="csr"))]
    model = myfm.MyFMOrderedProbit(rank=3, random_seed=1)
    model.fit(None, rng.integers(0, 4, 300), blocks, n_iter=12, n_kept_samples=6)
    theirs = model.predict_proba(None, blocks)
    np.testing.assert_allclose(level_shares(model.predictor_.samples, columns, users, items), theirs, atol=1e-12)


def test_myfm_describes_a_user_by_the_items_rated_in_training():
    if find_spec("scipy") is None:
        pytest.skip("scipy is not installed")
    from doublefeature.evaluation.peers.myfm import _user_columns

    train = Ratings.from_triples([0, 0, 1, 2], [0, 2, 1, 1], [1, 2, 3, 4], levels="1..5")
    table = _user_columns(train, implicit=True).toarray()
    root = 1.0 / np.sqrt(2.0)
    np.testing.assert_allclose(table[:, :3], np.eye(3))
    np.testing.assert_allclose(table[:, 3:], [[root, 0.0, root], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])


def test_factors_of_what_was_never_rated_add_nothing():
    train = Ratings.from_codes(
        np.array([0, 2]), np.array([1, 1]), np.array([3, 4]), users=range(3), items=range(2), levels="1..5"
    )
    model = Factors.seen(train, 3.0, np.full((3, 2), np.nan), np.ones((2, 2)), np.ones(3), np.array([np.nan, 0.5]))
    np.testing.assert_allclose(model(np.array([1, 1]), np.array([0, 1])).points, [3.0, 3.5])


def test_shuffled_rows_are_the_same_ratings():
    rows = Rows.of(TRAIN)
    mixed = rows.shuffled(4)
    assert not np.array_equal(rows.users, mixed.users)
    assert sorted(zip(*rows, strict=True)) == sorted(zip(*mixed, strict=True))


class TestRegistry:
    def test_groups_and_names_each_once(self):
        found, missing = find_models(["rules", "bias", "constant"])
        assert [peer.name for peer in found] == ["constant", "item-mean", "bias"]
        assert missing == []

    def test_an_unknown_name_lists_the_known_ones(self):
        with pytest.raises(SettingsError, match=r"unknown model 'nonsense'\. Known are: all, .*myfm-svdpp-32"):
            find_models(["nonsense"])

    def test_nothing_asked_for(self):
        with pytest.raises(SettingsError, match="no model to compare"):
            find_models([])

    def test_a_missing_package_by_name_and_in_a_group(self, monkeypatch):
        monkeypatch.setattr(base, "find_spec", lambda name: None if name == "surprise" else object())
        with pytest.raises(MissingExtraError, match=r"knn \(package surprise\) .*pip install 'doublefeature\[peers\]'"):
            find_models(["knn"])
        found, missing = find_models(["all"])
        assert [peer.name for peer in missing] == ["knn", "svdpp"]
        assert len(found) + 2 == len(GROUPS["all"])

    def test_unknown_settings(self):
        with pytest.raises(SettingsError, match=r"libmf has no setting 'depth'\. Known settings: rank, penalty"):
            KNOWN["libmf"].complete({"depth": 3})
