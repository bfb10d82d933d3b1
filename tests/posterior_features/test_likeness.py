"""Graded features found again by what they add: against whole tables, and whatever form a draw gives them."""

import numpy as np
import pytest

from doublefeature.posterior import likeness as module
from doublefeature.posterior.alignment import metric_for
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.features import Allocation, summarise
from doublefeature.posterior.likeness import LIKE, likeness
from tests.posterior_features.planted import Truth, make_draw, make_truth

USERS, ITEMS, FEATURES = 60, 40, 6


def graded(truth, rng, chain, sweep, *, turned=False, spread=0.2):
    """Return a draw of the truth with graded items, its features renumbered; and the place of each."""
    order = rng.permutation(truth.effect.size)
    sign = -1.0 if turned else 1.0
    users = ~truth.users[:, order] if turned else truth.users[:, order]
    moved = Truth(users, truth.items[:, order], sign * truth.effect[order])
    draw = make_draw(moved, chain=chain, sweep=sweep)
    effects = (moved.effect + spread * rng.standard_normal(moved.items.shape))[moved.items]
    return draw._replace(item_effect=effects, graded=True), np.argsort(order)


@pytest.fixture
def truth(rng):
    return make_truth(rng, user_share=0.3)


@pytest.fixture
def case(truth, rng):
    made = [graded(truth, rng, sweep % 2, sweep, turned=sweep % 3 == 0) for sweep in range(12)]
    return [draw for draw, _ in made], np.array([places for _, places in made])


def by_tables(draws, numbers):
    """The same from whole (users × items) tables, for draws of one chain."""
    tables = []
    for draw, partners in zip(draws, numbers, strict=True):
        grades, effects = draw.grades_of()[:, partners], draw.effects_of()[:, partners]
        tables.append([np.outer(g - g.mean(), e) for g, e in zip(grades.T, effects.T, strict=True)])
    return np.array(tables)


def cosine(one, two):
    return float((one * two).sum() / np.sqrt((one**2).sum() * (two**2).sum()))


class TestLikeness:
    def test_of_two_draws_is_the_cosine_of_their_tables(self, truth, case):
        draws, numbers = case
        first = [draws[0]._replace(chain=0), draws[1]._replace(chain=1)]
        found = likeness(first, numbers[:2], truth.users, truth.items * truth.effect, centred=True)
        tables = by_tables(first, numbers[:2])
        for k in range(truth.effect.size):
            # The profile is that of the chain nearer to the estimate: one of the two draws is alike to itself.
            assert max(found[:, k]) == pytest.approx(1.0)
            assert min(found[:, k]) == pytest.approx(cosine(tables[0, k], tables[1, k]))

    def test_the_form_of_a_draw_does_not_matter(self, truth, rng):
        """A feature, its complement, and its users' strength moved to the items are one and the same."""
        one, places = graded(truth, rng, 0, 0)
        other = one._replace(
            user_words=make_draw(Truth(~truth.users, truth.items, truth.effect)).user_words,
            item_words=make_draw(truth).item_words,
            item_effect=-3.0 * one.effects_of()[:, places][truth.items],
        )
        numbers = np.array([places, np.arange(truth.effect.size)])
        found = likeness([one, other], numbers, truth.users, truth.items * truth.effect, centred=True)
        assert np.allclose(found, 1.0)

    def test_centring_matters_for_complements(self, truth, case):
        """Planted: means over users are left in."""
        draws, numbers = case
        told = draws, numbers, truth.users, truth.items * truth.effect
        assert likeness(*told, centred=True).min() > 0.8
        assert likeness(*told, centred=False).min() < LIKE

    def test_no_partner_is_like_nothing(self, truth, case):
        draws, numbers = case
        numbers = numbers.copy()
        numbers[3, 2] = -1
        found = likeness(draws, numbers, truth.users, truth.items * truth.effect, centred=True)
        assert found[3, 2] == 0.0
        assert np.count_nonzero(found == 0.0) == 1


class TestRecurrence:
    def test_small_effects_that_come_and_go_do_not_count(self, truth, rng):
        """Half of the items hardly matter and flicker: memberships differ widely, what is added hardly at all."""
        weak = truth.items & (np.arange(ITEMS) % 2 == 0)[:, None]
        draws = []
        for sweep in range(20):
            items = truth.items & ~(weak & (rng.random(weak.shape) < 0.7))
            draw = make_draw(Truth(truth.users, items, truth.effect), chain=0, sweep=sweep)
            effects = np.where(weak, 0.05, 1.0) * truth.effect
            draws.append(draw._replace(item_effect=effects[items], graded=True))
        posterior = Posterior(2.5, draws)
        allocation = Allocation(truth.users, truth.items, truth.effect, 0.0, "distance")
        assert min(one.recurrence for one in summarise(posterior, allocation)) == 1.0

    def test_another_feature_in_the_same_place_does_not_recur(self, truth, case, rng):
        draws, _ = case
        strange = make_truth(rng, user_share=0.3)
        posterior = Posterior(2.5, [*draws, *(graded(strange, rng, 2, sweep)[0] for sweep in range(6))])
        assert metric_for(posterior).complement
        allocation = Allocation(truth.users, truth.items, truth.effect, 0.0, "distance")
        for one in summarise(posterior, allocation):
            assert one.recurrence_by_chain == {0: 1.0, 1: 1.0, 2: 0.0}

    def test_the_check_sees_a_profile_from_the_wrong_chain(self, truth, case, rng, monkeypatch):
        """Planted: the first chain's mean is taken, whatever the estimate is."""
        draws, _ = case
        strange = make_truth(rng, user_share=0.3)
        others = [graded(strange, rng, -1, sweep)[0] for sweep in range(6)]
        posterior = Posterior(2.5, [*others, *draws])
        allocation = Allocation(truth.users, truth.items, truth.effect, 0.0, "distance")
        right = [one.recurrence for one in summarise(posterior, allocation)]
        monkeypatch.setattr(module, "_cosine", _first_wins(module._cosine))
        wrong = [one.recurrence for one in summarise(posterior, allocation)]
        assert min(right) > 0.6
        assert min(wrong) < LIKE


def _first_wins(cosine):
    calls = []

    def planted(one, two):
        calls.append(None)
        if len(calls) <= 3:  # the three chains, compared with the estimate
            return np.full(one.items.shape[1], -float(len(calls)))
        return cosine(one, two)

    return planted
