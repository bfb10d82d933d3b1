"""Draws in which every item of a feature has an effect of its own, and every user a noise scale."""

from itertools import product

import numpy as np
import pytest

from doublefeature.model.generative import scale_log_weights
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.state import GRADE_SD, ITEM_SD, NOISE, SCALE_SD, USER_SD, members, words_of
from doublefeature.posterior.convergence import Probes, probe_means
from doublefeature.posterior.draws import Posterior, draw_of, gather, member_starts
from doublefeature.posterior.explain import explain
from doublefeature.posterior.predict import draw_scores, levels_in_draw, predict_levels, predict_rows, score_table
from doublefeature.posterior.prediction import level_values
from doublefeature.posterior.ranking import prefer, recommend, top
from doublefeature.posterior.similar import similar_items, similar_users
from doublefeature.posterior.strangers import STRANGERS, spread
from tests.posterior import SCALES, grade, make_draw, make_graded, make_posterior, repeat_draw
from tests.posterior.test_explain import ITEM, USER, crosswise, estimate, straight, total  # noqa: F401
from tests.posterior.test_similar import relations
from tests.store.cases import same, tiny_ratings

PAIRS = np.array(list(product(range(9), range(7)))).T
VALUES = np.arange(1.0, 6.0)


def unpacked(words, packed, n_features):
    """Read numbers off a packed array, one membership after the other: a dictionary of (row, feature)."""
    found, place = {}, 0
    for row in range(words.shape[0]):
        for feature in range(n_features):
            if int(words[row, feature // 64]) >> feature % 64 & 1:
                found[row, feature] = float(packed[place])
                place += 1
    assert place == packed.size
    return found


def effects_by_hand(draw):
    return unpacked(draw.item_words, draw.item_effect, draw.n_features)


def score_by_hand(draw, base, user, item, *, effect=None):
    shared = [
        value if effect is None else effect[feature]
        for (other, feature), value in effects_by_hand(draw).items()
        if other == item and int(draw.user_words[user, feature // 64]) >> feature % 64 & 1
    ]
    return base + draw.item_offset[item] + draw.user_offset[user] + sum(shared)


def levels_by_hand(posterior, users, items, *, wrong=None):
    """Average level probabilities pair by pair; `wrong` plants one bug."""
    out = np.zeros((users.size, posterior.draws[0].cutpoints.size - 1))
    for draw in posterior:
        cutpoints = level_cutpoints(out.shape[1]) if wrong == "cutpoints" else draw.cutpoints
        for row, (user, item) in enumerate(zip(users, items, strict=True)):
            score = score_by_hand(draw, posterior.base, user, item, effect=draw.effect if wrong == "effect" else None)
            scale = 1.0 if wrong == "scale" else posterior.scales[draw.user_scale[user]]
            noise = draw.hyper[NOISE] * scale
            out[row] += level_probabilities(np.array([score]), noise, cutpoints)[0] / len(posterior)
    return out


def dense(draw):
    """Return the features' part of every score, shape (users, items)."""
    out = np.zeros((draw.user_offset.size, draw.item_offset.size))
    for (item, feature), value in effects_by_hand(draw).items():
        out[:, item] += members(draw.user_words, np.array([feature]))[:, 0] * value
    return out


def random_state(rng, slots=(0, 3, 64, 70), share=0.5):
    """Return a graded state whose features sit in scattered slots."""
    draw = grade(make_draw(rng, features=5), rng)
    inside = np.zeros((7, 128), bool)
    inside[:, slots] = rng.random((7, len(slots))) < share
    users = np.zeros((9, 128), bool)
    users[:, slots] = True
    active = np.zeros(128, np.uint8)
    active[list(slots)] = 1
    return draw.to_state()._replace(
        user_words=words_of(users, 2),
        item_words=words_of(inside, 2),
        active=active,
        effect=np.where(active, rng.normal(size=128), 0.0),
        item_effect=np.where(inside, rng.normal(size=(7, 128)), 0.0),
        item_rate=rng.random(128),
    )


class TestStates:
    def test_effects_follow_their_memberships(self, rng):
        state = random_state(rng)
        draw = draw_of(state, 0, 1, 0.0)
        slots = np.flatnonzero(state.active)
        for (item, feature), value in effects_by_hand(draw).items():
            assert value == state.item_effect[item, slots[feature]] != 0.0
        assert draw.item_effect.size == np.count_nonzero(state.item_effect)
        assert np.array_equal(draw.effects_of(), state.item_effect[:, slots])
        assert np.array_equal(draw.effects_of(np.array([4, 1, 4])), state.item_effect[:, slots][[4, 1, 4]])
        assert np.array_equal(draw.effects_of(slice(2, 5)), state.item_effect[2:5, slots])

    def test_the_check_sees_effects_packed_feature_by_feature(self, rng):
        state = random_state(rng)
        slots = np.flatnonzero(state.active)
        inside = members(state.item_words, slots)
        wrong = draw_of(state, 0, 1, 0.0)._replace(item_effect=state.item_effect[:, slots].T[inside.T])
        assert not np.array_equal(wrong.effects_of(), state.item_effect[:, slots])

    @pytest.mark.parametrize("slots", [(0, 1, 2), (0, 3, 64, 70), ()])
    @pytest.mark.parametrize("share", [0.5, 0.0, 1.0])
    def test_a_state_comes_back(self, rng, slots, share):
        draw = draw_of(random_state(rng, slots, share), 2, 7, -1.5)
        again = draw.to_state()
        assert again.item_effect.shape == (7, again.active.size)
        assert draw.graded
        assert same(draw_of(again, 2, 7, -1.5), draw)
        assert same(draw_of(again, 2, 7, -1.5).to_state(), again)

    def test_no_memberships_and_not_graded_are_two_things(self, rng):
        graded = draw_of(random_state(rng, share=0.0), 0, 1, 0.0)
        plain = graded._replace(graded=False)
        assert graded.item_effect.size == plain.item_effect.size == 0
        assert graded.to_state().item_effect.shape[0] == 7
        assert plain.to_state().item_effect.shape[0] == 0
        assert Posterior(2.5, [graded]).graded
        assert not Posterior(2.5, [plain]).graded

    def test_effects_all_the_same_are_the_papers(self):
        for draw in make_posterior():
            counts = np.diff(member_starts(draw.item_words))
            rows = members(draw.item_words, np.arange(draw.n_features))
            even = draw._replace(item_effect=np.broadcast_to(draw.effect, rows.shape)[rows], graded=True)
            assert counts.sum() == even.item_effect.size
            assert np.array_equal(even.effects_of(), draw.effects_of())
            assert np.allclose(draw_scores(even, 2.5, *PAIRS), draw_scores(draw, 2.5, *PAIRS), atol=1e-12)

    def test_scales_go_with_the_draws(self):
        posterior = make_graded()
        found = gather(posterior.base, posterior.chains, scales=SCALES)
        assert np.array_equal(found.scales, SCALES)
        assert np.array_equal(gather(2.5, []).scales, [1.0])


def check_rows(posterior):
    """Rows of the table of predictions are the predictions of pairs."""
    n_users, n_items = posterior.draws[0].user_offset.size, posterior.draws[0].item_offset.size
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    rows = predict_rows(posterior, np.arange(n_users))
    assert np.abs(rows.reshape(users.size, -1) - predict_levels(posterior, users, items)).max() < 1e-12
    assert np.array_equal(predict_rows(posterior, np.arange(1, 3)), rows[1:3])


class TestPredictions:
    @pytest.mark.parametrize("levels", [2, 5, 10])
    def test_pair_by_pair(self, levels):
        posterior = make_graded(seed=levels, levels=levels)
        found = predict_levels(posterior, *PAIRS)
        assert np.abs(found - levels_by_hand(posterior, *PAIRS)).max() < 1e-12
        check_rows(posterior)
        scores = score_table(posterior, *PAIRS)
        for row, draw in zip(scores, posterior, strict=True):
            expected = [score_by_hand(draw, posterior.base, user, item) for user, item in PAIRS.T]
            assert np.allclose(row, expected, atol=1e-12)

    @pytest.mark.parametrize("wrong", ["effect", "scale", "cutpoints"])
    def test_the_check_sees(self, wrong):
        """Planted: the feature's effect for the item's, one noise scale for all, cutpoints at whole numbers."""
        posterior = make_graded()
        assert np.abs(predict_levels(posterior, *PAIRS) - levels_by_hand(posterior, *PAIRS, wrong=wrong)).max() > 0.01

    def test_probes_of_the_diagnosis(self):
        posterior, ratings = make_graded(users=12, items=9), tiny_ratings()
        probes = Probes(np.array([0, 5, 11]), np.array([3, 8, 0]))
        found = probe_means(posterior, ratings, probes)[0]
        for row, draw in zip(found, posterior, strict=True):
            one = Posterior(posterior.base, [draw], scales=SCALES)
            assert np.allclose(row, levels_by_hand(one, *probes) @ level_values(ratings.levels), atol=1e-12)


def strangers_by_hand(draw, base, user, item, *, spread_of_effects=True, own_scale=True):
    """Return the prior answer: a sum over memberships and noise scales, normal parts in the noise."""
    slots = np.arange(draw.n_features)
    inside = members(draw.user_words, slots)
    user_rates = inside.mean(axis=0) * inside.shape[0] / (inside.shape[0] + 1.0) if user < 0 else inside[user] * 1.0
    item_rates = draw.item_rate if item < 0 else members(draw.item_words, slots)[item] * 1.0
    effects = draw.effect if item < 0 else draw.effects_of(np.array([item]))[0]
    grade_sd = draw.hyper[GRADE_SD] if item < 0 and spread_of_effects else 0.0
    fixed = base + (draw.user_offset[user] if user >= 0 else 0.0) + (draw.item_offset[item] if item >= 0 else 0.0)
    variance = (draw.hyper[USER_SD] ** 2 if user < 0 else 0.0) + (draw.hyper[ITEM_SD] ** 2 if item < 0 else 0.0)
    chances = np.exp(scale_log_weights(SCALES, float(draw.hyper[SCALE_SD])))
    if user >= 0 or not own_scale:
        chances = np.arange(SCALES.size) == (draw.user_scale[user] if user >= 0 else 1)
    out = 0.0
    for chance, scale in zip(chances, SCALES, strict=True):
        for shared in product([0, 1], repeat=draw.n_features):
            weight = chance * np.where(shared, user_rates * item_rates, 1.0 - user_rates * item_rates).prod()
            noise = (variance + (draw.hyper[NOISE] * scale) ** 2 + sum(shared) * grade_sd**2) ** 0.5
            score = np.array([fixed + effects @ np.array(shared)])
            out = out + weight * level_probabilities(score, noise, draw.cutpoints)[0]
    return out


class TestStrangers:
    @pytest.fixture
    def posterior(self, rng):
        draw = grade(make_draw(rng, users=3, items=4, features=4), rng)
        draw.hyper[GRADE_SD], draw.hyper[SCALE_SD] = 1.2, 0.8
        return Posterior(2.5, repeat_draw(draw, 1000).draws, scales=SCALES)

    def z(self, posterior, user, item, **planted):
        """Return how far the answer is from the enumerated one, in standard errors of the strangers."""
        users, items = spread(np.array([user]), STRANGERS), spread(np.array([item]), STRANGERS)
        each = [levels_in_draw(draw, 2.5, users, items, SCALES).mean(axis=0) for draw in posterior]
        found = predict_levels(posterior, np.array([user]), np.array([item]))[0]
        error = np.std(each, axis=0, ddof=1) / len(posterior) ** 0.5
        assert np.allclose(found, np.mean(each, axis=0))
        return np.abs(found - strangers_by_hand(posterior.draws[0], 2.5, user, item, **planted)) / error

    @pytest.mark.parametrize(("user", "item"), [(-1, 2), (1, -1), (-1, -1)])
    def test_they_integrate_the_prior(self, posterior, user, item):
        assert (self.z(posterior, user, item) < 4.5).all()

    def test_the_check_sees_effects_without_spread(self, posterior):
        assert self.z(posterior, 1, -1, spread_of_effects=False).max() > 9.0

    def test_the_check_sees_everybody_in_the_middle(self, posterior):
        assert self.z(posterior, -1, 2, own_scale=False).max() > 9.0

    def test_an_answer_does_not_depend_on_what_else_is_asked(self):
        posterior = make_graded()
        users, items = np.array([3, -1, 4, -1, -1, 0]), np.array([-1, 5, 6, -1, 5, 1])
        together = predict_levels(posterior, users, items)
        for k in range(6):
            assert np.array_equal(predict_levels(posterior, users[[k]], items[[k]])[0], together[k])


class TestRanking:
    def test_recommendations(self):
        posterior = make_graded(seed=3)
        found = recommend(posterior, 4, seen=[2, 5], values=VALUES)
        expected = levels_by_hand(posterior, np.full(7, 4), np.arange(7))
        assert found.items.tolist() == [item for item in np.argsort(-(expected @ VALUES)) if item not in (2, 5)]
        assert np.allclose(found.proba, expected[found.items])

    def test_preferences(self):
        posterior = make_graded(seed=4)
        found = prefer(posterior, 2, 1, 5, VALUES)
        above = wrong = 0.0
        for draw in posterior:
            one = Posterior(posterior.base, [draw], scales=posterior.scales)
            a, b = levels_by_hand(one, np.array([2, 2]), np.array([1, 5]))
            above += sum(a[r] * b[:r].sum() for r in range(5)) / len(posterior)
            a, b = levels_by_hand(one, np.array([2, 2]), np.array([1, 5]), wrong="scale")
            wrong += sum(a[r] * b[:r].sum() for r in range(5)) / len(posterior)
        assert found.above == pytest.approx(above, abs=1e-12)
        assert abs(found.above - wrong) > 1e-3

    def test_top(self):
        posterior = make_graded(seed=5)
        found = top(posterior, 7, VALUES)
        mean = levels_by_hand(posterior, *PAIRS) @ VALUES
        expected = mean.reshape(9, 7).mean(axis=0)
        assert found.items.tolist() == np.argsort(-expected).tolist()
        assert np.allclose(found.mean, expected[found.items], atol=1e-5)
        for wrong in ("effect", "scale"):
            planted = (levels_by_hand(posterior, *PAIRS, wrong=wrong) @ VALUES).reshape(9, 7).mean(axis=0)
            assert np.abs(found.mean - planted[found.items]).max() > 1e-3


class TestExplanations:
    @pytest.fixture
    def posterior(self):
        return make_graded(seed=1, draws=12, features=(5, 3, 0, 9, 7, 4))

    @pytest.mark.parametrize("align", [None, straight, crosswise])
    @pytest.mark.parametrize(("user", "item"), [(USER, ITEM), (0, 6), (-1, ITEM), (USER, -1), (-1, -1)])
    def test_means_add_up_to_the_mean_score(self, posterior, estimate, align, user, item):  # noqa: F811
        found = explain(posterior, user, item, allocation=estimate if align else None, align=align)
        assert abs(total(found) - found.score.mean) < 1e-9
        if min(user, item) >= 0:
            scores = [score_by_hand(draw, posterior.base, user, item) for draw in posterior]
            assert found.score.mean == pytest.approx(np.mean(scores))
            assert np.allclose([found.score.lower, found.score.upper], np.quantile(scores, [0.1, 0.9]))

    @pytest.mark.parametrize("turned", [False, True])
    def test_a_feature_adds_the_items_own_effect(self, posterior, estimate, turned):  # noqa: F811
        """Feature 0 of every draw stands for feature 2 of the estimate; turned, for its users' complement."""
        given, inside, offsets = [], [], []
        for draw in posterior:
            effect = effects_by_hand(draw).get((ITEM, 0))
            in_it = bool(draw.n_features and int(draw.user_words[USER, 0]) & 1)
            offsets.append(draw.item_offset[ITEM] + (effect or 0.0) * turned)
            inside.append(effect is not None and in_it != turned)
            given.append((-effect if turned else effect) if inside[-1] else 0.0)
        align = crosswise if turned else straight
        found = explain(posterior, USER, ITEM, allocation=estimate, align=align, mass=0.5)
        part = next(part for part in found.features if part.feature == 2)
        assert 0 < sum(inside) < len(posterior)
        assert part.shared == pytest.approx(np.mean(inside))
        assert part.contribution.mean == pytest.approx(np.mean(given))
        assert part.contribution.lower == pytest.approx(np.quantile(given, 0.25))
        assert part.effect == pytest.approx(np.array(given)[inside].mean())
        assert found.item_offset.mean == pytest.approx(np.mean(offsets))
        wrong = [draw.effect[0] if yes else 0.0 for draw, yes in zip(posterior, inside, strict=True)]
        assert abs(part.contribution.mean - np.mean(wrong)) > 0.01


class TestSimilar:
    @pytest.mark.parametrize("side", ["items", "users"])
    def test_against_dense_scores(self, side):
        posterior = make_graded(seed=2, draws=10, users=40, items=15)
        tables = [dense(draw) if side == "items" else dense(draw).T for draw in posterior]
        covariance, correlation = np.array([relations(table, 3) for table in tables]).transpose(1, 0, 2)
        found = (similar_items if side == "items" else similar_users)(posterior, 3, n=100)
        assert np.allclose(found.correlation, correlation.mean(axis=0)[found.codes], atol=1e-10)
        assert np.allclose(found.covariance, covariance.mean(axis=0)[found.codes], atol=1e-10)
        assert np.allclose(found.covariance_lower, np.quantile(covariance[:, found.codes], 0.1, axis=0), atol=1e-10)
        plain = Posterior(2.5, [draw._replace(graded=False) for draw in posterior])
        wrong = (similar_items if side == "items" else similar_users)(plain, 3, n=100)
        order = np.argsort(found.codes), np.argsort(wrong.codes)
        assert np.abs(found.covariance[order[0]] - wrong.covariance[order[1]]).max() > 0.1

    def test_blocks_do_not_show(self, monkeypatch):
        posterior = make_graded(seed=2, users=40, items=15)
        whole = [ask(posterior, 2).correlation for ask in (similar_items, similar_users)]
        monkeypatch.setattr("doublefeature.posterior.similar._BLOCK", 4)
        found = [ask(posterior, 2).correlation for ask in (similar_items, similar_users)]
        assert np.allclose(whole, found)
