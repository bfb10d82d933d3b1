"""What choices tell about a new row: traits by projection, and weights of traits drawn given a stored draw."""

from dataclasses import replace

import numpy as np
import pytest

from doublefeature import Ratings, preset
from doublefeature.inference.projection import project_items, project_users
from doublefeature.inference.tilts import item_tilt, user_tilt
from doublefeature.model.choices import traits_of
from doublefeature.model.state import ITEM_LOGIT_SD, USER_SD, build_model, members
from tests.posterior import make_draw

FULL = replace(preset("full"), choices=8, choice_least=0.0)
USERS, ITEMS = 90, 60


@pytest.fixture(scope="module")
def ratings():
    """Ratings whose choices have structure: two kinds of users, two kinds of items."""
    rng = np.random.default_rng(4)
    chance = np.where((np.arange(USERS)[:, None] % 2) == (np.arange(ITEMS) % 2), 0.5, 0.15)
    users, items = np.nonzero(rng.random((USERS, ITEMS)) < chance * rng.uniform(0.4, 1.6, (USERS, 1)))
    levels = rng.integers(1, 6, users.size)
    return Ratings.from_triples(users.tolist(), items.tolist(), levels.tolist())


@pytest.fixture(scope="module")
def model(ratings):
    return build_model(FULL, ratings.n_users, ratings.n_items, 5, traits_of(ratings.arrays, FULL))


def rated_by(ratings, user):
    return ratings.arrays.item_codes[slice(*ratings.arrays.user_ptr[user : user + 2])].astype(np.int64)


class TestProjection:
    def test_known_users_get_their_own_traits(self, ratings, model):
        found = project_users(ratings.arrays, model.user_traits)
        gaps = [
            np.abs(found.traits(rated_by(ratings, user)) - model.user_traits[user])[[0, 1, 8]].max()
            for user in range(ratings.n_users)
        ]
        assert max(gaps) < 0.02

    def test_known_items_get_their_own_traits(self, ratings, model):
        found = project_items(ratings.arrays, model.item_traits)
        ptr = ratings.arrays.item_ptr
        for item in range(ratings.n_items):
            users = ratings.arrays.user_codes[ptr[item] : ptr[item + 1]].astype(np.int64)
            assert np.abs(found.traits(users) - model.item_traits[item])[[0, 1, 8]].max() < 0.02

    def test_check_sees_a_forgotten_shift(self, ratings, model):
        found = project_users(ratings.arrays, model.user_traits)
        unshifted = found.traits(rated_by(ratings, 0))[:-1] + found.shift
        assert np.abs(unshifted - model.user_traits[0, :-1]).max() > 0.02

    def test_without_ratings_traits_are_the_mean_over_ratings(self, ratings, model):
        nothing = project_users(ratings.arrays, model.user_traits).traits(np.zeros(0, np.int64))
        counts = np.diff(ratings.arrays.user_ptr)
        assert nothing == pytest.approx(np.average(model.user_traits, axis=0, weights=counts), abs=1e-6)

    def test_choices_that_tell_nothing(self):
        users, items = np.indices((12, 9)).reshape(2, -1)
        full = Ratings.from_triples(users.tolist(), items.tolist(), ((users + items) % 5 + 1).tolist())
        traits = traits_of(full.arrays, FULL)
        assert not project_users(full.arrays, traits.users).traits(np.arange(4)).any()


class _Still:
    """Random numbers that are all 0, so that draws are modes."""

    def standard_normal(self, size):
        return np.zeros(size)


def log_target(weights, traits, inside, centre, sd):
    """The log density of a feature's weights given its members, written down once more."""
    logits = weights[0] + traits @ weights[1:]
    total = (inside * logits - np.log1p(np.exp(logits))).sum() - 0.5 * (weights[1:] ** 2).sum() / sd**2
    if centre is None:
        return total - np.log1p(np.exp(weights[0]))
    return total - 0.5 * (weights[0] - centre) ** 2 / ITEM_LOGIT_SD**2


def slopes(function, at, step=1e-5):
    nudges = step * np.eye(at.size)
    return np.array([(function(at + nudge) - function(at - nudge)) / (2 * step) for nudge in nudges])


class TestWeights:
    @pytest.fixture
    def draw(self, rng):
        return make_draw(rng, users=USERS, items=ITEMS, features=4, sweep=3)

    @pytest.mark.parametrize("side", ["users", "items"])
    def test_drawn_around_the_mode(self, draw, model, monkeypatch, side):
        monkeypatch.setattr(np.random, "default_rng", lambda seed: _Still())
        tilt = user_tilt(draw, model) if side == "users" else item_tilt(draw, model)
        words, traits = (
            (draw.user_words, model.user_traits) if side == "users" else (draw.item_words, model.item_traits)
        )
        centre = None if side == "users" else model.item_logit
        inside = members(words, np.arange(4))
        for k in range(4):
            told = traits, inside[:, k], centre, model.weight_sd
            assert np.abs(slopes(lambda at, told=told: log_target(at, *told), tilt.weights[k])).max() < 1e-3
            off = slopes(lambda at, told=told: log_target(at, *told[:3], 2 * told[3]), tilt.weights[k])
            assert np.abs(off).max() > 1e-3

    def test_spread_of_the_draws(self, draw, model):
        """Over sweeps with the same members, weights vary as the curvature of their target says."""
        drawn = np.stack([user_tilt(draw._replace(sweep=sweep), model).weights[0] for sweep in range(400)])
        inside, mode = members(draw.user_words, np.arange(4))[:, 0], drawn.mean(axis=0)
        told = model.user_traits, inside, None, model.weight_sd
        curvature = -slopes(lambda at: slopes(lambda near: log_target(near, *told), at, 1e-4)[0], mode, 1e-3)[0]
        within = np.linalg.inv(np.cov(drawn.T))[0, 0]
        assert within == pytest.approx(curvature, rel=0.4)

    def test_offset_weights_are_normal_given_offsets(self, draw, model):
        drawn = np.stack([user_tilt(draw._replace(sweep=sweep), model).offset for sweep in range(600)])
        traits, sd = model.user_offset_traits, draw.hyper[USER_SD]
        precision = traits.T @ traits / sd**2 + np.eye(traits.shape[1]) / model.offset_weight_sd**2
        mean = np.linalg.solve(precision, traits.T @ draw.user_offset / sd**2)
        error = np.sqrt(np.diag(np.linalg.inv(precision)) / 600)
        assert (np.abs(drawn.mean(axis=0) - mean) < 4.5 * error).all()
        firmer = precision + np.eye(traits.shape[1]) * (
            1.0 / model.offset_weight_sd**4 - 1.0 / model.offset_weight_sd**2
        )
        shrunk = np.linalg.solve(firmer, traits.T @ draw.user_offset / sd**2)
        assert np.abs((drawn.mean(axis=0) - shrunk) / error).max() > 4.5

    def test_the_same_for_the_same_draw(self, draw, model):
        assert np.array_equal(user_tilt(draw, model).weights, user_tilt(draw, model).weights)
