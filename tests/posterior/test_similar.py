import numpy as np
import pytest

from doublefeature.errors import NotFittedError, SettingsError
from doublefeature.model.state import members, words_of
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.similar import member_covariance, similar_items, similar_users
from tests.posterior import make_posterior

SIZES = {"users": 40, "items": 15}


def dense(draw):
    """Return the features' part of every score, shape (users, items)."""
    slots = np.arange(draw.n_features)
    return (members(draw.user_words, slots) * draw.effect) @ members(draw.item_words, slots).T.astype(float)


def relations(table, own):
    """Return covariance and correlation of the columns of a table with one of them; 0 where a column is flat."""
    gaps = table - table.mean(axis=0)
    covariance = (gaps * gaps[:, [own]]).mean(axis=0)
    sd = table.std(axis=0)
    flat = (sd < 1e-9) | (sd[own] < 1e-9)
    correlation = np.where(flat, 0.0, covariance / np.where(flat, 1.0, sd * sd[own]))
    return covariance, correlation


@pytest.fixture
def posterior():
    return make_posterior(seed=2, draws=10, **SIZES)


@pytest.mark.parametrize("side", ["items", "users"])
@pytest.mark.parametrize("by", ["correlation", "covariance"])
def test_against_dense_scores(posterior, side, by):
    ask = similar_items if side == "items" else similar_users
    tables = [dense(draw) if side == "items" else dense(draw).T for draw in posterior]
    covariance, correlation = np.array([relations(table, 3) for table in tables]).transpose(1, 0, 2)
    found = ask(posterior, 3, n=100, by=by)
    assert sorted(found.codes.tolist()) == [code for code in range(SIZES[side]) if code != 3]
    assert np.allclose(found.correlation, correlation.mean(axis=0)[found.codes], atol=1e-10)
    assert np.allclose(found.covariance, covariance.mean(axis=0)[found.codes], atol=1e-10)
    assert (np.diff(getattr(found, by)) <= 1e-12).all()
    for name, table in (("correlation", correlation), ("covariance", covariance)):
        ends = getattr(found, f"{name}_lower"), getattr(found, f"{name}_upper")
        assert np.allclose(ends, np.quantile(table[:, found.codes], [0.1, 0.9], axis=0), atol=1e-10)


def test_the_check_sees_features_taken_as_independent(posterior):
    """Planted: the diagonal Σ_k θ_k² B_ik B_jk π_k (1 − π_k) alone."""
    expected, diagonal = np.zeros(15), np.zeros(15)
    for draw in posterior:
        slots = np.arange(draw.n_features)
        share = members(draw.user_words, slots).mean(axis=0)
        loads = members(draw.item_words, slots) * draw.effect
        diagonal += loads @ (share * (1.0 - share) * loads[3]) / len(posterior)
        expected += relations(dense(draw), 3)[0] / len(posterior)
    found = similar_items(posterior, 3, n=14)
    assert np.allclose(found.covariance, expected[found.codes])
    assert np.abs(found.covariance - diagonal[found.codes]).max() > 0.05


def test_offsets_play_no_part(posterior):
    moved = [draw._replace(user_offset=draw.user_offset * 9, item_offset=draw.item_offset + 5) for draw in posterior]
    for ask in (similar_items, similar_users):
        assert np.array_equal(ask(posterior, 1).codes, ask(Posterior(2.5, moved), 1).codes)


def test_blocks_do_not_show(posterior, monkeypatch):
    whole = similar_items(posterior, 2)
    monkeypatch.setattr("doublefeature.posterior.similar._BLOCK", 4)
    found = similar_items(posterior, 2)
    assert np.array_equal(found.codes, whole.codes)
    assert np.allclose(found.correlation, whole.correlation)


class TestFlatScores:
    def test_an_item_outside_all_features(self, posterior):
        outside = [
            draw._replace(item_words=np.where(np.arange(15)[:, None] == 6, np.uint64(0), draw.item_words))
            for draw in posterior
        ]
        flat = Posterior(2.5, outside)
        assert (similar_items(flat, 6, n=14).correlation == 0.0).all()
        assert similar_items(flat, 6, n=3).codes.tolist() == [0, 1, 2]
        found = similar_items(flat, 2, n=14)
        assert found.correlation[found.codes == 6] == 0.0

    def test_a_feature_of_everybody_and_two_that_cancel(self, rng):
        draw = make_posterior(draws=1, features=(3,), **SIZES).draws[0]
        users = np.ones((40, 3), bool)
        users[:, 1] = users[:, 2] = rng.random(40) < 0.3
        items = np.tile([True, True, True], (15, 1))
        items[1] = [False, True, False]
        words = {"user_words": words_of(users, 1), "item_words": words_of(items, 1)}
        posterior = Posterior(2.5, [draw._replace(effect=np.array([0.7, 0.3, -0.3]), **words)])
        found = similar_items(posterior, 1, n=14)
        assert (found.correlation == 0.0).all()
        assert np.isfinite(found.covariance).all()

    def test_twins(self, posterior):
        twins = [draw._replace(item_words=draw.item_words[[0, 0, *range(2, 15)]]) for draw in posterior]
        found = similar_items(Posterior(2.5, twins), 0, n=1)
        assert found.codes.tolist() == [1]
        assert 0.75 < found.correlation[0] <= 1.0


def test_member_covariance(posterior):
    for draw in posterior:
        inside = members(draw.user_words, np.arange(draw.n_features)).astype(float)
        found = member_covariance(draw.user_words, draw.n_features)
        assert found.shape == (draw.n_features, draw.n_features)
        if draw.n_features:
            assert np.allclose(found, np.cov(inside.T, bias=True).reshape(found.shape))


def test_bad_questions(posterior):
    with pytest.raises(SettingsError, match="item codes run from 0 to 14, got -1"):
        similar_items(posterior, -1)
    with pytest.raises(SettingsError, match="user codes run from 0 to 39, got 40"):
        similar_users(posterior, 40)
    with pytest.raises(SettingsError, match="by must be"):
        similar_items(posterior, 1, by="taste")
    with pytest.raises(SettingsError, match="n must"):
        similar_items(posterior, 1, n=0)
    with pytest.raises(NotFittedError):
        similar_items(Posterior(2.5), 0)
