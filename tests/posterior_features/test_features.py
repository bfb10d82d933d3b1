import itertools
import json

import numpy as np
import pytest

from doublefeature.errors import SettingsError
from doublefeature.posterior import features
from doublefeature.posterior.alignment import Matching, Metric, match, metric_for, pack, pack_members
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.feature_summary import CLOSE
from doublefeature.posterior.features import Allocation, aligner, estimate, paper_estimate, summarise
from doublefeature.ratings import Ratings
from tests.posterior_features.planted import Truth, disturb, is_same, make_draw, make_posterior, make_truth, shuffle


@pytest.fixture
def truth(rng):
    return make_truth(rng)


@pytest.fixture
def posterior(truth, rng):
    return make_posterior([truth] * 3, rng)


def expected_distance(posterior, allocation):
    columns = pack_members(allocation.user_members, allocation.item_members, allocation.effect)
    metric = metric_for(posterior)
    return np.mean([match(draw, columns, metric).distance for draw in posterior])


def same(one, two):
    names = ("user_members", "item_members", "effect", "expected_distance")
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in names)


class TestEstimate:
    @pytest.mark.parametrize("seed", range(5))
    def test_recovers_what_was_planted(self, seed):
        rng = np.random.default_rng(seed)
        truth = make_truth(rng, user_share=0.4)
        posterior = make_posterior([truth] * 3, rng)
        found = estimate(posterior)
        assert is_same(found, truth)
        assert found.method == "distance"
        assert found.expected_distance == pytest.approx(expected_distance(posterior, found))
        order = np.argsort(-found.user_members.sum(axis=0) * found.item_members.sum(axis=0) * np.abs(found.effect))
        assert order.tolist() == list(range(6))

    def test_effects_are_recovered(self, truth, posterior):
        found = estimate(posterior)
        large = 2 * truth.users.sum(axis=0) > truth.users.shape[0]
        expected = np.sort(np.where(large, -1, 1) * truth.effect)
        assert np.abs(np.sort(found.effect) - expected).max() < 5 * 0.05 / np.sqrt(40)

    def test_without_item_offsets(self, truth, rng):
        assert is_same(estimate(make_posterior([truth], rng, offset=0.0, complement=0.0)), truth)

    def test_check_sees_missing_complements(self, truth, posterior):
        assert not is_same(estimate(posterior, metric=Metric(complement=False)), truth)

    def test_check_sees_missing_alignment(self, truth, posterior, monkeypatch):
        def by_number(draw, columns, metric=None):
            fewest = min(draw.effect.size, columns.effect.size)
            partner = np.where(np.arange(draw.effect.size) < fewest, np.arange(draw.effect.size), -1)
            none = np.zeros(partner.size)
            return Matching(partner, none, none.astype(bool), none, match(draw, columns, metric).distance)

        monkeypatch.setattr(features, "match", by_number)
        monkeypatch.setattr(features, "in_order", lambda draw: draw)
        assert not is_same(estimate(posterior), truth)

    def test_numbers_of_features_do_not_matter(self, posterior, rng):
        def renumber(draw):
            packed = pack(draw)
            moved = shuffle(Truth(packed.user_members, packed.item_members, packed.effect), rng)
            return make_draw(moved, draw.chain, draw.sweep)

        renumbered = Posterior(2.5, [renumber(draw) for draw in posterior])
        assert not np.array_equal(renumbered.draws[0].effect, posterior.draws[0].effect)
        one, two = estimate(posterior), estimate(renumbered)
        assert same(one, two)
        for left, right in zip(summarise(posterior, one), summarise(renumbered, two), strict=True):
            assert left.effect_95 == right.effect_95
            assert np.array_equal(left.user_probability, right.user_probability)

    def test_half_size_features(self, rng):
        truth = make_truth(rng, n_users=101, user_share=0.5)
        assert is_same(estimate(make_posterior([truth] * 2, rng)), truth)

    @pytest.mark.parametrize("seed", [0, 2, 9])
    def test_a_feature_that_the_baseline_lacks_is_taken_in(self, seed):
        rng = np.random.default_rng(seed)
        truth = make_truth(rng)
        posterior = make_posterior([truth], rng, missing=0.2, spurious=1)
        assert is_same(estimate(posterior, starts=1, sweeten=1), truth)
        assert not is_same(estimate(posterior, starts=1, sweeten=0, growths=0), truth)

    @pytest.mark.parametrize("seed", range(3))
    def test_is_at_least_as_good_as_the_truth(self, seed):
        rng = np.random.default_rng(seed)
        truth = make_truth(rng)
        posterior = make_posterior([truth], rng, draws=40, missing=0.35, noise=0.08)
        planted = Allocation(truth.users, truth.items, truth.effect, 0.0, "truth")
        assert estimate(posterior).expected_distance <= expected_distance(posterior, planted) + 1e-9

    def test_the_mode_of_most_chains_wins(self, truth, rng):
        posterior = make_posterior([make_truth(rng), truth, truth, truth], rng, draws=80, missing=0.0)
        found = estimate(posterior)
        assert is_same(found, truth)
        shares = [summary.recurrence_by_chain for summary in summarise(posterior, found)]
        assert all(share[0] < 0.2 and min(share[1], share[2], share[3]) > 0.9 for share in shares)

    def test_is_at_least_as_good_as_every_draw(self, rng):
        posterior = make_posterior([make_truth(rng), make_truth(rng)], rng, draws=30, noise=0.15)
        found = estimate(posterior)
        for draw in posterior:
            packed = pack(draw)
            taken = Allocation(packed.user_members, packed.item_members, packed.effect, 0.0, "draw")
            assert found.expected_distance <= expected_distance(posterior, taken)

    def test_no_single_flip_is_better(self, rng):
        posterior = make_posterior([make_truth(rng, 20, 12, 3)], rng, draws=21, noise=0.15)
        found = estimate(posterior)
        for members in (found.user_members, found.item_members):
            for place in np.ndindex(members.shape):
                members[place] ^= True
                assert expected_distance(posterior, found) > found.expected_distance - 1e-9
                members[place] ^= True

    def test_seed_and_starts(self, posterior):
        assert same(estimate(posterior, seed=4), estimate(posterior, seed=4))
        assert estimate(posterior, starts=2, sweeten=0).n_features > 0
        for options in ({"starts": 0}, {"sweeten": -1}, {"seed": "x"}):
            with pytest.raises(SettingsError):
                estimate(posterior, **options)

    def test_many_draws_are_thinned_evenly(self, truth, rng):
        posterior = make_posterior([truth] * 5, rng, draws=500)
        assert len(features._spread(posterior.draws, 200)) == 200
        chains = [draw.chain for draw in features._spread(posterior.draws, 200)]
        assert np.bincount(chains).tolist() == [40] * 5
        assert is_same(estimate(posterior, starts=2, sweeten=1), truth)


class TestEdges:
    def test_no_features_in_any_draw(self, rng):
        nothing = make_truth(rng, n_features=0)
        posterior = Posterior(2.5, [make_draw(nothing), make_draw(nothing)])
        for found in (estimate(posterior), paper_estimate(posterior)):
            assert found.n_features == 0
            assert found.user_members.shape == (60, 0)
            assert found.expected_distance == 0.0
            assert summarise(posterior, found) == []
            assert aligner(posterior, found)(posterior.draws[0])[0].size == 0

    def test_no_features_in_some_draws(self, truth, rng):
        draws = [make_draw(disturb(truth, rng)) for _ in range(20)]
        draws += [make_draw(make_truth(rng, n_features=0)) for _ in range(6)]
        found = estimate(Posterior(2.5, draws))
        assert is_same(found, truth)
        assert max(summary.recurrence for summary in summarise(Posterior(2.5, draws), found)) <= 20 / 26

    def test_one_draw(self, truth):
        posterior = Posterior(2.5, [make_draw(truth)])
        for found in (estimate(posterior), paper_estimate(posterior)):
            assert is_same(found, truth)
            assert found.expected_distance == pytest.approx(0.0)
            assert all(summary.recurrence == 1.0 for summary in summarise(posterior, found))

    def test_more_than_64_features(self, rng):
        truth = make_truth(rng, 400, 150, 70, 0.1, 0.1)
        posterior = make_posterior([truth], rng, draws=24, noise=0.02, missing=0.05)
        found = estimate(posterior, starts=3, sweeten=1)
        assert is_same(found, truth)
        partner, swapped = aligner(posterior, found)(posterior.draws[0])
        assert partner.size == swapped.size == posterior.draws[0].n_features

    def test_features_without_items_are_left_out(self, truth):
        truth.items[:, 0] = False
        found = estimate(Posterior(2.5, [make_draw(truth)] * 3))
        assert found.n_features == 5

    def test_no_draws(self):
        for question in (estimate, paper_estimate):
            with pytest.raises(SettingsError, match="no draws"):
                question(Posterior(2.5))


def slow_user_distance(one, two):
    """Least Hamming distance over all renumberings, by trying them all."""
    orders = itertools.permutations(range(one.shape[1]))
    return min((one != two[:, list(order)]).sum() for order in orders)


class TestPaperEstimate:
    def test_by_hand(self):
        users = np.zeros((8, 2), bool)
        users[:3, 0] = users[4:, 1] = True
        items = np.zeros((4, 2), bool)
        items[0, 0] = items[1:3, 1] = True
        near, far = users.copy(), users.copy()
        near[3, 0] = True
        far[:2, 0] = False
        more = items.copy()
        more[3, 1] = True
        draws = [
            make_draw(Truth(near[:, ::-1], more[:, ::-1], np.array([-2.0, 1.5]))),
            make_draw(Truth(users, more, np.array([1.0, -1.0]))),
            make_draw(Truth(far, items, np.array([0.5, -1.5]))),
            *(make_draw(make_truth(np.random.default_rng(k), 8, 4, 3)) for k in range(3)),
        ]
        found = paper_estimate(Posterior(2.5, draws))
        assert found.n_features == 2
        assert found.method == "paper"
        assert found.expected_distance == pytest.approx((1 + 0 + 2) / 3)
        assert np.array_equal(found.user_members, users[:, ::-1])
        assert np.array_equal(found.item_members, more[:, ::-1])
        assert np.allclose(found.effect, [-1.5, 1.0])

    def test_is_the_minimum_over_draws_and_renumberings(self, rng):
        truth = make_truth(rng, 12, 9, 4)
        posterior = make_posterior([truth], rng, draws=9, noise=0.2, spurious=0, missing=0.0, complement=0.0)
        users = [pack(draw).user_members for draw in posterior]
        means = [np.mean([slow_user_distance(one, two) for two in users]) for one in users]
        found = paper_estimate(posterior)
        assert found.expected_distance == pytest.approx(min(means))
        assert slow_user_distance(found.user_members, users[int(np.argmin(means))]) == 0

    def test_check_sees_missing_renumbering(self, rng, monkeypatch):
        truth = make_truth(rng, 12, 9, 4)
        posterior = make_posterior([truth], rng, draws=9, noise=0.2, spurious=0, missing=0.0, complement=0.0)
        users = [pack(draw).user_members for draw in posterior]
        means = [np.mean([slow_user_distance(one, two) for two in users]) for one in users]
        monkeypatch.setattr(features, "assign", lambda cost: np.arange(cost.shape[0]))
        monkeypatch.setattr(features, "in_order", lambda draw: draw)
        assert paper_estimate(posterior).expected_distance > min(means) + 1


def slow_summary(posterior, allocation, feature):
    """What `summarise` says of one feature, from dense matrices draw by draw."""
    metric = metric_for(posterior)
    columns = pack_members(allocation.user_members, allocation.item_members, allocation.effect)
    users, items, effects, close, all_users, all_items = [], [], [], [], [], []
    here_users, here_items = allocation.user_members[:, feature], allocation.item_members[:, feature]
    for draw in posterior:
        matching, packed = match(draw, columns, metric), pack(draw)
        partner = np.flatnonzero(matching.partner == feature)
        all_users.append(np.zeros(here_users.size))
        all_items.append(np.zeros(here_items.size))
        close.append(False)
        for k in partner:
            u = packed.user_members[:, k] ^ matching.swapped[k]
            i = packed.item_members[:, k]
            e = -packed.effect[k] if matching.swapped[k] else packed.effect[k]
            all_users[-1], all_items[-1] = u, i
            apart = 0.5 * (u ^ here_users).sum() / (u.sum() + here_users.sum())
            apart += 0.5 * (i ^ here_items).sum() / (i.sum() + here_items.sum())
            if apart < CLOSE and (e < 0) == (allocation.effect[feature] < 0):
                close[-1] = True
                users.append(u)
                items.append(i)
                effects.append(e)
    return tuple(np.array(part) for part in (users, items, effects, close, all_users, all_items))


class TestSummarise:
    def test_against_dense_matrices(self, rng):
        truth = make_truth(rng)
        posterior = make_posterior([truth, truth, make_truth(rng)], rng, noise=0.08)
        found = estimate(posterior)
        chains = np.array([draw.chain for draw in posterior])
        for k, summary in enumerate(summarise(posterior, found)):
            users, items, effects, close, all_users, all_items = slow_summary(posterior, found, k)
            assert 0 < close.mean() < 1
            assert np.array_equal(summary.users, np.flatnonzero(found.user_members[:, k]))
            assert np.array_equal(summary.items, np.flatnonzero(found.item_members[:, k]))
            assert summary.effect == pytest.approx(effects.mean())
            assert summary.effect_sd == pytest.approx(effects.std())
            assert summary.effect_80 == pytest.approx(np.quantile(effects, (0.1, 0.9)))
            assert summary.effect_95 == pytest.approx(np.quantile(effects, (0.025, 0.975)))
            assert summary.recurrence == pytest.approx(close.mean())
            assert summary.recurrence_by_chain == {c: close[chains == c].mean() for c in range(3)}
            assert np.allclose(summary.user_probability, all_users.mean(axis=0))
            assert np.allclose(summary.item_probability, all_items.mean(axis=0))
            assert np.allclose(summary.user_probability_matched, users.mean(axis=0))
            assert np.allclose(summary.item_probability_matched, items.mean(axis=0))

    def test_leading_items_and_ratings(self, truth, posterior, rng):
        rated = rng.random((60, 40)) < 0.3
        users, items = np.nonzero(rated)
        levels = np.zeros(users.size, np.uint8)
        ratings = Ratings.from_codes(users, items, levels, users=range(60), items=range(40), levels="1..5")
        found = estimate(posterior)
        for k, summary in enumerate(summarise(posterior, found, ratings)):
            inside = rated & found.user_members[:, k, None] & found.item_members[:, k]
            assert summary.n_ratings == inside.sum()
            keys = [(-summary.item_probability[item], -rated[:, item].sum()) for item in summary.leading_items]
            assert keys == sorted(keys)
            assert sorted(summary.leading_items) == summary.items.tolist()
        assert summarise(posterior, found)[0].n_ratings is None

    def test_raw_ids_in_plain_values(self, posterior):
        found = estimate(posterior)
        summary = summarise(posterior, found)[0]
        plain = summary.to_dict([f"u{code}" for code in range(60)], [f"film {code}" for code in range(40)])
        assert json.loads(json.dumps(plain)) == plain
        assert [row["id"] for row in plain["users"]] == [f"u{code}" for code in summary.users]
        assert plain["items"][0]["id"] == f"film {summary.leading_items[0]}"
        assert plain["items"][0]["probability"] == pytest.approx(summary.item_probability.max())
        assert plain["n_items"] == len(plain["items"]) == summary.items.size

    def test_a_feature_that_no_draw_has(self, truth, rng):
        posterior = Posterior(2.5, [make_draw(make_truth(rng, n_features=0))] * 2)
        invented = Allocation(truth.users, truth.items, truth.effect, 0.0, "invented")
        summary = summarise(posterior, invented)[2]
        assert summary.recurrence == 0.0
        assert summary.effect == truth.effect[2]
        assert not summary.user_probability_matched.any()


def test_aligner_turns_scores_into_those_of_the_estimate(truth, posterior):
    found = estimate(posterior)
    align = aligner(posterior, found)
    for draw in posterior.draws[:5]:
        partner, swapped = align(draw)
        packed = pack(draw).complement(swapped)
        for k, to in enumerate(partner.tolist()):
            if to >= 0 and match(draw, pack(make_draw(truth))).relative[k] < CLOSE:
                assert np.mean(packed.user_members[:, k] != found.user_members[:, to]) < 0.2
                assert packed.effect[k] == pytest.approx(found.effect[to], abs=0.3)
