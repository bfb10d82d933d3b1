import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from doublefeature.errors import SettingsError
from doublefeature.posterior import alignment
from doublefeature.posterior.alignment import Metric, Tally, canonical, in_order, match, metric_for, pack, pack_members
from doublefeature.posterior.draws import Posterior
from tests.posterior_features.planted import Truth, disturb, make_draw, make_truth, shuffle

METRICS = [Metric(), Metric(complement=False), Metric(0.8, 0.0, True), Metric(1.0, 0.0, False), Metric(0.3, 2.0)]


def packed(truth):
    return pack_members(truth.users, truth.items, truth.effect)


def slow_distance(one, two, metric):
    """Distance of two features (users, items, effect), written out."""
    (u, i, e), (v, j, f) = one, two
    forms = [(u, e), (~u, -e)] if metric.complement else [(u, e)]
    return min(
        metric.user_weight * np.mean(users != v)
        + (1 - metric.user_weight) * np.mean(i != j)
        + metric.sign_penalty * ((effect < 0) != (f < 0))
        for users, effect in forms
    )


def slow_empty(feature, metric):
    users, items, _ = feature
    share = min(users.mean(), 1 - users.mean()) if metric.complement else users.mean()
    return metric.user_weight * share + (1 - metric.user_weight) * items.mean()


def slow_total(one, two, metric):
    """Least total distance after padding both sides with empty features."""
    left, right = (list(zip(t.users.T, t.items.T, t.effect, strict=True)) for t in (one, two))
    cost = np.zeros((len(left) + len(right),) * 2)
    for k, feature in enumerate(left):
        cost[k, len(right) :] = slow_empty(feature, metric)
        cost[k, : len(right)] = [slow_distance(feature, other, metric) for other in right]
    for k, other in enumerate(right):
        cost[len(left) :, k] = slow_empty(other, metric)
    return cost[linear_sum_assignment(cost)].sum()


def pairs(rng):
    for sizes in [(0, 0), (0, 3), (3, 0), (1, 1), (4, 4), (3, 7), (9, 2)]:
        for shares in [(0.1, 0.1), (0.5, 0.3), (0.8, 0.2)]:
            yield tuple(make_truth(rng, 70, 33, k, *shares) for k in sizes)


class TestMatch:
    @pytest.mark.parametrize("metric", METRICS)
    def test_total_is_that_of_padded_matrices(self, metric, rng):
        for one, two in pairs(rng):
            matching = match(packed(one), packed(two), metric)
            assert np.isclose(matching.distance, slow_total(one, two, metric), atol=1e-12)

    @pytest.mark.parametrize("metric", METRICS)
    def test_costs_are_those_of_the_pairs_made(self, metric, rng):
        for one, two in pairs(rng):
            matching = match(packed(one), packed(two), metric)
            left, right = (list(zip(t.users.T, t.items.T, t.effect, strict=True)) for t in (one, two))
            taken = [to for to in matching.partner.tolist() if to >= 0]
            assert len(set(taken)) == len(taken)
            for k, to in enumerate(matching.partner.tolist()):
                expected = slow_empty(left[k], metric) if to < 0 else slow_distance(left[k], right[to], metric)
                assert np.isclose(matching.costs[k], expected)
            left_over = sum(slow_empty(f, metric) for to, f in enumerate(right) if to not in taken)
            assert np.isclose(matching.distance, matching.costs.sum() + left_over)

    def test_renumbered_and_turned_features_are_found(self, rng):
        truth = make_truth(rng, n_features=8)
        order = rng.permutation(8)
        turned = rng.random(8) < 0.5
        draw = make_draw(
            Truth(truth.users[:, order] ^ turned, truth.items[:, order], np.where(turned, -1, 1) * truth.effect[order])
        )
        matching = match(draw, packed(truth))
        assert matching.partner.tolist() == order.tolist()
        assert matching.swapped.tolist() == turned.tolist()
        assert np.allclose(matching.costs, 0.0)
        assert np.allclose(matching.relative, 0.0)
        assert matching.distance == pytest.approx(0.0)

    def test_features_of_half_the_users_match_across_the_border(self, rng):
        users = np.arange(100) < 49
        items = np.arange(20)[:, None] < 5
        estimate = packed(Truth(users[:, None], items, np.array([1.0])))
        grown = np.arange(100) < 52
        matching = match(canonical(packed(Truth(grown[:, None], items, np.array([1.0])))), estimate)
        assert matching.costs[0] == pytest.approx(0.5 * 3 / 100)
        assert matching.swapped.tolist() == [True]

    def test_opposite_features_are_kept_apart(self):
        users, items = (np.arange(50) < 10)[:, None], (np.arange(20) < 4)[:, None]
        matching = match(packed(Truth(users, items, np.array([1.0]))), packed(Truth(users, items, np.array([-1.0]))))
        assert matching.partner.tolist() == [0]
        assert matching.relative.tolist() == [1.0]
        strict = Metric(sign_penalty=1.0)
        matching = match(
            packed(Truth(users, items, np.array([1.0]))), packed(Truth(users, items, np.array([-1.0]))), strict
        )
        assert matching.partner.tolist() == [-1]

    def test_strangers_stay_alone(self):
        users, items = np.zeros((64, 2), bool), np.zeros((10, 2), bool)
        users[:5, 0] = users[5:9, 1] = items[:2, 0] = items[2:5, 1] = True
        one, two = (packed(Truth(users[:, [k]], items[:, [k]], np.ones(1))) for k in (0, 1))
        matching = match(one, two)
        assert matching.partner.tolist() == [-1]
        assert matching.distance == pytest.approx(0.5 * (5 + 4) / 64 + 0.5 * (2 + 3) / 10)

    def test_relative_distance_by_hand(self, rng):
        users, items = np.zeros((50, 2), bool), np.zeros((20, 2), bool)
        users[:10, 0] = users[2:14, 1] = items[:4, 0] = items[:5, 1] = True
        one, two = (packed(Truth(users[:, [k]], items[:, [k]], np.ones(1))) for k in (0, 1))
        assert match(one, two).relative[0] == pytest.approx(0.5 * 6 / 22 + 0.5 * 1 / 9)

    def test_more_than_64_features(self, rng):
        truth = make_truth(rng, 200, 90, 130)
        moved = shuffle(truth, rng)
        matching = match(make_draw(moved), packed(truth))
        assert np.allclose(truth.effect[matching.partner], moved.effect)
        assert matching.distance == pytest.approx(0.0)

    def test_other_sizes_are_refused(self, rng):
        with pytest.raises(SettingsError, match="the draw has 60 users"):
            match(packed(make_truth(rng)), packed(make_truth(rng, n_users=61)))

    def test_check_sees_a_wrong_count(self, rng, monkeypatch):
        one, two = make_truth(rng, 70, 33, 4), make_truth(rng, 70, 33, 4)
        monkeypatch.setattr(alignment, "count_shared", lambda a, b: np.zeros((len(a), len(b)), np.int64))
        assert not np.isclose(match(packed(one), packed(two)).distance, slow_total(one, two, Metric()))


class TestForms:
    def test_bits_and_back(self, rng):
        for n_users in (1, 63, 64, 65, 200):
            truth = make_truth(rng, n_users, 30, 70)
            draw = pack(make_draw(truth))
            assert np.array_equal(draw.user_members, truth.users)
            assert np.array_equal(draw.item_members, truth.items)
            assert np.array_equal(draw.user_sizes, truth.users.sum(axis=0))
            everybody = draw.complement(np.ones(70, bool))
            assert np.array_equal(everybody.user_members, ~truth.users)
            assert np.array_equal(everybody.user_sizes, n_users - draw.user_sizes)

    def test_canonical_form_is_the_same_for_both_complements(self, rng):
        truth = make_truth(rng, n_users=10, n_features=40, user_share=0.5)
        one = canonical(packed(truth))
        two = canonical(packed(Truth(~truth.users, truth.items, -truth.effect)))
        assert np.array_equal(one.user_bits, two.user_bits)
        assert np.array_equal(one.effect, two.effect)
        assert (2 * one.user_sizes <= 10).all()

    def test_order_does_not_depend_on_numbers(self, rng):
        truth = make_truth(rng, n_features=20)
        truth.effect[:] = 1.0
        one, two = in_order(packed(truth)), in_order(packed(shuffle(truth, rng)))
        assert np.array_equal(one.user_bits, two.user_bits)
        assert np.array_equal(one.item_bits, two.item_bits)

    def test_complements_need_item_offsets(self, rng):
        truth = make_truth(rng)
        assert metric_for(Posterior(2.5, [make_draw(truth)])).complement
        assert not metric_for(Posterior(2.5, [make_draw(truth, offset=0.0)])).complement

    @pytest.mark.parametrize("values", [(-0.1, 0.0), (1.1, 0.0), (0.5, -1.0), (0.5, np.inf), (np.nan, 0.0)])
    def test_bad_metrics_are_refused(self, values):
        with pytest.raises(SettingsError, match=r"user_weight|sign_penalty"):
            Metric(*values)


def test_tally_is_the_dense_sum(rng):
    truth = make_truth(rng)
    estimate, tally, near = packed(truth), Tally(packed(truth)), Tally(packed(truth))
    users, items = np.zeros(truth.users.shape, int), np.zeros(truth.items.shape, int)
    near_users, matched = np.zeros(truth.users.shape, int), np.zeros(6, int)
    for _ in range(10):
        draw = disturb(truth, rng, noise=0.1)
        matching = match(packed(draw), estimate)
        tally.add(packed(draw), matching)
        near.add(packed(draw), matching, matching.relative < 0.3)
        for k, to in enumerate(matching.partner.tolist()):
            if to >= 0:
                members = draw.users[:, k] ^ matching.swapped[k]
                users[:, to] += members
                items[:, to] += draw.items[:, k]
                matched[to] += 1
                near_users[:, to] += members * (matching.relative[k] < 0.3)
    assert np.array_equal(tally.user_counts, users)
    assert np.array_equal(tally.item_counts, items)
    assert np.array_equal(tally.matched, matched)
    assert np.array_equal(near.user_counts, near_users)
    assert near.matched.sum() < matched.sum()
