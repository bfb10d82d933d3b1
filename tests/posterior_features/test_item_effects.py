"""What each item of a feature adds: over draws that renumber features, turn them round and lose some."""

import json

import numpy as np
import pytest

from doublefeature.posterior import features, item_effects
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.features import Allocation, estimate, paper_estimate, summarise
from doublefeature.posterior.item_effects import Matched, membership_effects
from doublefeature.posterior.steady import steady_features
from tests.posterior_features.planted import Truth, make_draw, make_truth

SPREAD = 0.6


def grade(draw, table, spread, rng):
    """Return the draw with effects of a (items, K) table and noise around them."""
    inside = table != 0.0
    noise = spread * rng.standard_normal(inside.sum())
    return draw._replace(item_effect=table[inside] + noise, graded=True)


def disturbed(truth, grades, rng, sweep, complement=0.4, missing=0.1):
    """Return a draw of the truth with some features lost, some turned, all renumbered; and how it was made."""
    kept = np.flatnonzero(rng.random(truth.effect.size) >= missing)
    order = rng.permutation(kept)
    turned = rng.random(order.size) < complement
    signs = np.where(turned, -1.0, 1.0)
    items = truth.items[:, order] & (rng.random((truth.items.shape[0], order.size)) > 0.05)
    moved = Truth(truth.users[:, order] ^ turned, items, signs * truth.effect[order])
    draw = grade(
        make_draw(moved, chain=sweep % 2, sweep=sweep), np.where(items, signs * grades[:, order], 0.0), 0.1, rng
    )
    return draw, order, turned


@pytest.fixture
def case(rng):
    truth = make_truth(rng, user_share=0.3)
    grades = truth.effect + SPREAD * rng.standard_normal(truth.items.shape)
    made = [disturbed(truth, grades, rng, sweep) for sweep in range(40)]
    return truth, grades, made


def by_hand(made, item, feature):
    """Return the effects of an item in a planted feature, draw by draw, where it has any."""
    found = []
    for draw, order, turned in made:
        if feature in order:
            place = int(np.flatnonzero(order == feature)[0])
            inside = int(draw.item_words[item, 0]) >> place & 1
            if inside:
                sign = -1.0 if turned[place] else 1.0
                found.append(sign * draw.effects_of()[item, place])
    return found


def allocation_of(truth):
    return Allocation(truth.users, truth.items, truth.effect, 0.0, "distance")


class TestSummaries:
    def test_effects_of_items_by_hand(self, case):
        truth, _, made = case
        summaries = summarise(Posterior(2.5, [draw for draw, *_ in made]), allocation_of(truth))
        for k, summary in enumerate(summaries):
            assert sorted(summary.leading_items) == np.flatnonzero(truth.items[:, k]).tolist()
            assert (np.diff(np.abs(summary.leading_effects.mean)) <= 0.0).all()
            for place, item in enumerate(summary.leading_items):
                effects = by_hand(made, item, k)
                assert summary.leading_effects.mean[place] == pytest.approx(np.mean(effects))
                assert summary.leading_effects.lower[place] == pytest.approx(np.quantile(effects, 0.1))
                assert summary.leading_effects.upper[place] == pytest.approx(np.quantile(effects, 0.9))

    @pytest.mark.parametrize("wrong", ["sign", "number"])
    def test_the_check_sees(self, case, monkeypatch, wrong):
        """Planted: complements keep their sign; features go by their place in the order of alignment."""
        truth, _, made = case
        posterior = Posterior(2.5, [draw for draw, *_ in made])
        right = [summary.leading_effects.mean for summary in summarise(posterior, allocation_of(truth))]

        def planted(draws, matched, items, numbers):
            if wrong == "sign":
                matched = Matched(matched.number, np.ones_like(matched.sign))
            else:
                matched = Matched(np.where(matched.number < 0, -1, 0), matched.sign)
            return item_effects.item_effects(draws, matched, items, numbers)

        monkeypatch.setattr(features, "item_effects", planted)
        found = [summary.leading_effects.mean for summary in summarise(posterior, allocation_of(truth))]
        assert max(np.abs(one - two).max() for one, two in zip(right, found, strict=True)) > 0.2

    def test_items_that_mean_most_come_first(self, case):
        truth, grades, made = case
        posterior = Posterior(2.5, [draw for draw, *_ in made])
        for summary, k in zip(summarise(posterior, allocation_of(truth)), range(6), strict=True):
            members = np.flatnonzero(truth.items[:, k])
            largest = members[np.argmax(np.abs(grades[members, k]))]
            assert largest in summary.leading_items[:2]

    def test_what_is_aligned_does_not_change(self, case):
        """Estimates look at memberships and the features' own effects only."""
        posterior = Posterior(2.5, [draw for draw, *_ in case[2]])
        plain = Posterior(2.5, [draw._replace(item_effect=np.zeros(0), graded=False) for draw in posterior])
        for method in (estimate, paper_estimate, steady_features):
            one, two = method(posterior), method(plain)
            assert np.array_equal(one.user_members, two.user_members)
            assert np.array_equal(one.item_members, two.item_members)
            assert np.array_equal(one.effect, two.effect)
        both = [summarise(part, estimate(plain)) for part in (posterior, plain)]
        for one, two in zip(*both, strict=True):
            assert (one.effect, one.effect_80, one.recurrence) == (two.effect, two.effect_80, two.recurrence)
            assert two.leading_effects is None

    def test_an_item_that_never_belongs_has_the_features_effect(self, case):
        truth, _, made = case
        never = next(item for item in range(40) if not truth.items[item, 0])
        wider = truth.items.copy()
        wider[never, 0] = True
        posterior = Posterior(2.5, [draw for draw, *_ in made])
        summary = summarise(posterior, allocation_of(Truth(truth.users, wider, truth.effect)))[0]
        place = summary.leading_items.tolist().index(never)
        assert summary.leading_effects.mean[place] == summary.effect
        assert (summary.leading_effects.lower[place], summary.leading_effects.upper[place]) == summary.effect_80

    def test_plain_values(self, case):
        truth, _, made = case
        summary = summarise(Posterior(2.5, [draw for draw, *_ in made]), allocation_of(truth))[0]
        items = summary.to_dict(range(60), [f"film {k}" for k in range(40)])["items"]
        assert json.loads(json.dumps(items)) == items
        assert items[0]["id"] == f"film {summary.leading_items[0]}"
        assert items[0]["effect"] == summary.leading_effects.mean[0]
        assert items[0]["effect_80"] == [summary.leading_effects.lower[0], summary.leading_effects.upper[0]]

    def test_no_features(self, rng):
        empty = Truth(np.zeros((60, 0), bool), np.zeros((40, 0), bool), np.zeros(0))
        posterior = Posterior(2.5, [make_draw(empty)._replace(graded=True)])
        assert summarise(posterior, allocation_of(empty)) == []

    def test_few_at_a_time(self, case, monkeypatch):
        truth, _, made = case
        posterior = Posterior(2.5, [draw for draw, *_ in made])
        whole = summarise(posterior, allocation_of(truth))
        monkeypatch.setattr(item_effects, "_MOST_VALUES", 100)
        for one, two in zip(whole, summarise(posterior, allocation_of(truth)), strict=True):
            assert np.array_equal(one.leading_effects, two.leading_effects)


@pytest.mark.parametrize("n_features", [0, 1, 63, 64, 65, 130])
def test_effects_of_single_memberships(rng, n_features):
    truth = make_truth(rng, n_users=5, n_items=9, n_features=n_features, item_share=0.4)
    draw = grade(make_draw(truth), np.where(truth.items, rng.normal(size=truth.items.shape), 0.0), 0.0, rng)
    table = draw.effects_of()
    items, numbers = (part.ravel() for part in np.meshgrid(np.arange(9), np.arange(-1, n_features), indexing="ij"))
    found = membership_effects(draw, items, numbers)
    for value, item, number in zip(found, items, numbers, strict=True):
        inside = number >= 0 and truth.items[item, number]
        assert value == table[item, number] if inside else np.isnan(value)
