from itertools import product

import numpy as np
import pytest

from doublefeature.errors import NotFittedError, SettingsError
from doublefeature.model.ordinal import level_probabilities
from doublefeature.model.parameters import parameters_of
from doublefeature.model.state import NOISE, members
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.predict import STRANGERS, levels_in_draw, predict_levels, spread
from doublefeature.posterior.ranking import prefer, recommend, top
from tests.posterior import make_draw, make_posterior, repeat_draw

VALUES = np.arange(1.0, 6.0)


def levels_by_hand(posterior, user, items):
    """Return level probabilities draw by draw, shape (draws, items, levels)."""
    users = np.full(len(items), user)
    tables = []
    for draw in posterior:
        parameters = parameters_of(draw.to_state())
        scores = parameters.scores(users, np.asarray(items), posterior.base)
        tables.append(level_probabilities(scores, parameters.noise, draw.cutpoints))
    return np.array(tables)


@pytest.fixture
def posterior():
    return make_posterior(seed=4, items=30, user_offsets=True)


class TestRecommend:
    def test_the_best_unseen_items_by_mean(self, posterior):
        seen = [0, 3, 17]
        found = recommend(posterior, 2, seen=seen, values=VALUES, n=8)
        unseen = [item for item in range(30) if item not in seen]
        means = levels_by_hand(posterior, 2, unseen).mean(axis=0) @ VALUES
        assert found.items.tolist() == [unseen[k] for k in np.argsort(-means)[:8]]
        assert np.allclose(found.mean, np.sort(means)[::-1][:8])
        assert len(found) == 8

    def test_what_is_said_of_each_item(self, posterior):
        found = recommend(posterior, 2, seen=[], values=VALUES, n=5)
        proba = predict_levels(posterior, np.full(5, 2), found.items)
        assert np.array_equal(found.proba, proba)
        assert np.allclose(found.at_least, proba[:, 3:].sum(axis=1))
        assert found.level == 3
        assert np.allclose(found.sd**2, proba @ VALUES**2 - found.mean**2)
        inside = [row[low : high + 1].sum() for row, low, high in zip(proba, found.lower, found.upper, strict=True)]
        assert min(inside) >= 0.8

    @pytest.mark.parametrize("n", [1, 26, 27, 100])
    def test_as_many_as_asked_for_or_as_there_are(self, posterior, n):
        found = recommend(posterior, 1, seen=np.array([4, 5, 6]), values=VALUES, n=n)
        assert len(found) == min(n, 27)
        assert not set(found.items.tolist()) & {4, 5, 6}
        assert np.unique(found.items).size == len(found)

    def test_all_items_seen(self, posterior):
        assert len(recommend(posterior, 1, seen=range(30), values=VALUES)) == 0

    def test_filters(self, posterior):
        found = recommend(posterior, 1, seen=[7], allow={5, 6, 7, 8}, deny=[8], values=VALUES)
        assert sorted(found.items.tolist()) == [5, 6]
        with pytest.raises(SettingsError, match="item codes run from 0 to 29, got -1 to 5"):
            recommend(posterior, 1, seen=[], allow=[5, -1], values=VALUES)

    def test_by_lower_quantile_then_mean(self, posterior):
        found = recommend(posterior, 3, seen=[], values=VALUES, n=30, rank_by="lower", quantile=0.25)
        proba = levels_by_hand(posterior, 3, range(30)).mean(axis=0)
        lower = (proba.cumsum(axis=1) >= 0.25).argmax(axis=1)
        expected = sorted(range(30), key=lambda item: (-lower[item], -(proba[item] @ VALUES)))
        assert found.items.tolist() == expected
        by_mean = recommend(posterior, 3, seen=[], values=VALUES, n=30)
        assert found.items.tolist() != by_mean.items.tolist()

    def test_by_chance_of_a_level(self, posterior):
        found = recommend(posterior, 3, seen=[], values=VALUES, n=30, rank_by="at_least", level=4)
        chance = levels_by_hand(posterior, 3, range(30)).mean(axis=0)[:, 4]
        assert found.items.tolist() == np.argsort(-chance, kind="stable").tolist()
        assert np.allclose(found.at_least, np.sort(chance)[::-1])

    def test_thompson_follows_one_draw(self):
        posterior = make_posterior(seed=4, items=30, features=(5, 3, 9))
        tables = levels_by_hand(posterior, 3, range(30)) @ VALUES
        orders = {tuple(np.argsort(-table, kind="stable")[:6].tolist()) for table in tables}
        found = set()
        for seed in range(40):
            once = recommend(posterior, 3, seen=[], values=VALUES, n=6, rank_by="thompson", seed=seed)
            again = recommend(posterior, 3, seen=[], values=VALUES, n=6, rank_by="thompson", seed=seed)
            assert np.array_equal(once.items, again.items)
            found.add(tuple(once.items.tolist()))
        assert found == orders

    def test_ties_go_by_code(self):
        posterior = make_posterior(items=12, features=(0,), item_offsets=False)
        assert recommend(posterior, 0, seen=[1], values=VALUES, n=4).items.tolist() == [0, 2, 3, 4]

    def test_grades_of_which_the_lowest_number_is_best(self, posterior):
        up = recommend(posterior, 2, seen=[], values=VALUES, n=30)
        down = recommend(posterior, 2, seen=[], values=VALUES[::-1], n=30)
        assert np.array_equal(up.items, down.items)
        assert np.allclose(down.mean, 6.0 - up.mean)

    @pytest.mark.parametrize("rank_by", ["mean", "lower", "at_least", "thompson"])
    def test_an_unknown_user_gets_the_prior(self, posterior, rank_by):
        found = recommend(posterior, -1, seen=[], values=VALUES, n=4, rank_by=rank_by, seed=3)
        assert len(found) == 4
        assert np.allclose(found.proba, predict_levels(posterior, np.full(4, -1), found.items))

    @pytest.mark.parametrize("levels", [(2, 1), (3, 2), (5, 3), (10, 7)])
    def test_usual_level_of_a_good_rating(self, levels):
        n_levels, expected = levels
        posterior = make_posterior(levels=n_levels)
        found = recommend(posterior, 0, seen=[], values=np.arange(n_levels, dtype=float))
        assert found.level == expected

    @pytest.mark.parametrize(
        "wrong", [{"n": 0}, {"rank_by": "best"}, {"level": 5}, {"rank_by": "lower", "quantile": 1.0}]
    )
    def test_bad_questions(self, posterior, wrong):
        with pytest.raises(SettingsError, match=r"n must|rank_by must|level is|quantile must"):
            recommend(posterior, 0, seen=[], values=VALUES, **wrong)

    def test_no_draws(self):
        with pytest.raises(NotFittedError):
            recommend(Posterior(2.5), 0, seen=[], values=VALUES)


def chances(one, two):
    joint = one[:, None] * two[None, :]
    return np.array([np.tril(joint, -1).sum(), np.trace(joint), np.triu(joint, 1).sum()])


class TestPrefer:
    def test_averages_the_products(self, posterior):
        one, two = levels_by_hand(posterior, 4, [2, 9]).transpose(1, 0, 2)
        expected = np.mean([chances(a, b) for a, b in zip(one, two, strict=True)], axis=0)
        found = prefer(posterior, 4, 2, 9, VALUES)
        assert np.allclose([found.above, found.level, found.below], expected, atol=1e-12)
        assert found.difference == pytest.approx((one - two).mean(axis=0) @ VALUES)

    def test_the_check_sees_a_product_of_averages(self):
        draws = make_posterior(features=(2,), draws=2).draws
        far = [draw._replace(user_offset=draw.user_offset + shift) for draw, shift in zip(draws, (-3, 3), strict=True)]
        posterior = Posterior(2.5, far)
        one, two = levels_by_hand(posterior, 4, [1, 2]).transpose(1, 0, 2)
        wrong = chances(one.mean(axis=0), two.mean(axis=0))
        found = prefer(posterior, 4, 1, 2, VALUES)
        assert np.abs(wrong - [found.above, found.level, found.below]).max() > 0.1

    def test_swapping_the_items_mirrors_the_answer(self, posterior):
        for a, b in ((3, 8), (3, -1)):
            one, two = prefer(posterior, 1, a, b, VALUES), prefer(posterior, 1, b, a, VALUES)
            assert (one.above, one.below) == pytest.approx((two.below, two.above))
            assert one.difference == pytest.approx(-two.difference)
            assert one.above + one.level + one.below == pytest.approx(1.0)

    def test_an_item_beside_itself(self, posterior):
        assert prefer(posterior, 1, 3, 3, VALUES).level == 1.0

    def test_two_unknown_items_are_alike_but_not_the_same(self, posterior):
        found = prefer(posterior, 1, -1, -1, VALUES)
        assert found.above == found.below > 0.05
        assert found.difference == 0.0

    def test_an_unknown_user_has_one_taste_for_both(self, rng):
        draw = make_draw(rng, users=3, items=4, features=3, user_offsets=False)
        draw = draw._replace(item_words=np.full((4, 1), 0b111, np.uint64), effect=np.array([2.0, -2.0, 1.0]))
        posterior = repeat_draw(draw, 400)
        slots, items = np.arange(3), members(draw.item_words, np.arange(3))
        rates = members(draw.user_words, slots).sum(axis=0) / 4.0
        expected, marginals = np.zeros(3), np.zeros((2, 5))
        for taste in product([0, 1], repeat=3):
            weight = np.where(taste, rates, 1.0 - rates).prod()
            scores = 2.5 + draw.item_offset[[0, 1]] + (items[[0, 1]] * np.array(taste)) @ draw.effect
            both = level_probabilities(scores, float(draw.hyper[NOISE]), draw.cutpoints)
            expected += weight * chances(*both)
            marginals += weight * both
        found = prefer(posterior, -1, 0, 1, VALUES)
        answer = np.array([found.above, found.level, found.below])
        error = chance_errors(posterior)
        assert (np.abs(answer - expected) < 4.5 * error).all()
        assert (np.abs(answer - chances(*marginals)) / error).max() > 9.0  # planted: two independent strangers


def chance_errors(posterior):
    users = spread(np.array([-1]), STRANGERS)
    each = []
    for draw in posterior:
        one, two = (levels_in_draw(draw, 2.5, users, np.full(STRANGERS, item)) for item in (0, 1))
        each += [chances(a, b) for a, b in zip(one, two, strict=True)]
    return np.std(each, axis=0) / len(each) ** 0.5 + 1e-9


class TestTop:
    def ratings_by_hand(self, posterior):
        users = range(posterior.draws[0].user_offset.size)
        return np.mean([levels_by_hand(posterior, user, range(30)) @ VALUES for user in users], axis=0)

    def test_mean_rating_over_all_users(self, posterior, monkeypatch):
        table = self.ratings_by_hand(posterior)
        for block in (1, 100, 1 << 20):
            monkeypatch.setattr("doublefeature.posterior.ranking._BLOCK", block)
            found = top(posterior, 7, VALUES)
            assert found.items.tolist() == np.argsort(-table.mean(axis=0))[:7].tolist()
            assert np.allclose(found.mean, table.mean(axis=0)[found.items], rtol=0, atol=4 * 5e-7)
            assert np.allclose(found.lower, np.quantile(table[:, found.items], 0.1, axis=0), atol=1e-6)
            assert np.allclose(found.upper, np.quantile(table[:, found.items], 0.9, axis=0), atol=1e-6)

    def test_is_not_the_rating_of_the_mean_score(self, posterior):
        """A planted short cut, the level probabilities at the mean score over users, is seen."""
        found = top(posterior, 30, VALUES)
        short = np.zeros(30)
        for draw in posterior:
            parameters = parameters_of(draw.to_state())
            scores = [parameters.scores(np.full(30, user), np.arange(30), 2.5) for user in range(9)]
            table = level_probabilities(np.mean(scores, axis=0), parameters.noise, draw.cutpoints)
            short += table @ VALUES / len(posterior)
        assert np.abs(found.mean - short[found.items]).max() > 0.01

    def test_offsets(self, posterior):
        table = np.array([draw.item_offset for draw in posterior])
        found = top(posterior, 30, VALUES, by="offset")
        assert found.items.tolist() == np.argsort(-table.mean(axis=0)).tolist()
        assert (found.lower <= found.mean).all()
        assert (found.mean <= found.upper).all()

    def test_falling_grades_and_ties(self, posterior):
        assert np.array_equal(top(posterior, 5, VALUES).items, top(posterior, 5, VALUES[::-1]).items)
        flat = make_posterior(items=6, features=(0,), item_offsets=False)
        assert top(flat, 3, VALUES).items.tolist() == [0, 1, 2]

    def test_bad_questions(self, posterior):
        with pytest.raises(SettingsError, match="by must be"):
            top(posterior, 3, VALUES, by="votes")
        with pytest.raises(SettingsError, match="n must"):
            top(posterior, 0, VALUES)
