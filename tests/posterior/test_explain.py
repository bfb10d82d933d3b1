import json
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from doublefeature.errors import NotFittedError, SettingsError
from doublefeature.model.state import members
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.explain import explain
from doublefeature.posterior.predict import predict_levels, score_table
from tests.posterior import make_posterior


class Estimate(NamedTuple):
    user_members: np.ndarray
    item_members: np.ndarray


USER, ITEM = 4, 2


@pytest.fixture
def posterior():
    return make_posterior(seed=1, draws=12, features=(5, 3, 0, 9, 7, 4))


@pytest.fixture
def estimate(rng):
    return Estimate(rng.random((9, 3)) < 0.5, rng.random((7, 3)) < 0.5)


def straight(draw):
    """Pair the first two features with 2 and 0, leave the others alone."""
    index = np.full(draw.n_features, -1)
    index[:2] = [2, 0][: draw.n_features]
    return index


def crosswise(draw):
    """The same, the first feature by its complement."""
    return straight(draw), np.arange(draw.n_features) == 0


def total(explanation):
    offsets = explanation.item_offset.mean + explanation.user_offset.mean
    return explanation.base + offsets + sum(part.contribution.mean for part in explanation.features)


def shared_by_hand(posterior, user, item):
    """Return, draw by draw, which features a pair shares."""
    slots = [np.arange(draw.n_features) for draw in posterior]
    return [
        members(draw.user_words, places)[user] & members(draw.item_words, places)[item]
        for draw, places in zip(posterior, slots, strict=True)
    ]


class TestSums:
    @pytest.mark.parametrize("align", [None, straight, crosswise])
    @pytest.mark.parametrize(("user", "item"), [(USER, ITEM), (0, 6), (-1, ITEM), (USER, -1), (-1, -1)])
    def test_means_add_up_to_the_mean_score(self, posterior, estimate, align, user, item):
        found = explain(posterior, user, item, allocation=estimate if align else None, align=align)
        assert abs(total(found) - found.score.mean) < 1e-9
        if min(user, item) >= 0:
            scores = score_table(posterior, np.array([user]), np.array([item]))
            assert abs(found.score.mean - scores.mean()) < 1e-9
            assert np.allclose([found.score.lower, found.score.upper], np.quantile(scores, [0.1, 0.9]))

    def test_the_check_sees_a_turn_without_its_offset(self, posterior, estimate):
        """Planted: the feature is turned to its complement, but the item offset does not take up the effect."""
        found = explain(posterior, USER, ITEM, allocation=estimate, align=crosswise)
        raw = float(np.mean([draw.item_offset[ITEM] for draw in posterior]))
        forgotten = total(found) - found.item_offset.mean + raw
        assert abs(forgotten - found.score.mean) > 0.01

    def test_level_probabilities(self, posterior):
        found = explain(posterior, USER, ITEM)
        assert np.array_equal(found.proba, predict_levels(posterior, np.array([USER]), np.array([ITEM]))[0])


class TestFeatures:
    def test_as_a_whole(self, posterior):
        found = explain(posterior, USER, ITEM)
        shared = shared_by_hand(posterior, USER, ITEM)
        sums = [draw.effect[inside].sum() for draw, inside in zip(posterior, shared, strict=True)]
        (part,) = found.features
        assert part.feature is None
        assert part.shared == pytest.approx(np.mean([inside.any() for inside in shared]))
        assert part.contribution.mean == pytest.approx(np.mean(sums))
        assert found.item_offset.mean == pytest.approx(np.mean([draw.item_offset[ITEM] for draw in posterior]))
        assert found.user_offset.mean == pytest.approx(np.mean([draw.user_offset[USER] for draw in posterior]))

    def test_put_down_to_those_of_the_estimate(self, posterior, estimate):
        shared = shared_by_hand(posterior, USER, ITEM)
        inside = np.array([bits.size > 0 and bits[0] for bits in shared])
        effects = np.array([draw.effect[0] if draw.n_features else 0.0 for draw in posterior])
        assert 0 < inside.sum() < len(posterior)
        found = explain(posterior, USER, ITEM, allocation=estimate, align=straight, mass=0.5)
        part = next(part for part in found.features if part.feature == 2)
        given = np.where(inside, effects, 0.0)
        assert part.shared == pytest.approx(inside.mean())
        assert part.contribution.mean == pytest.approx(given.mean())
        assert part.contribution.lower == pytest.approx(np.quantile(given, 0.25))
        assert part.contribution.upper == pytest.approx(np.quantile(given, 0.75))
        assert part.effect == pytest.approx(effects[inside].mean())
        assert part.in_estimate == bool(estimate.user_members[USER, 2] and estimate.item_members[ITEM, 2])

    def test_a_complement_is_turned(self, posterior, estimate):
        slots = [np.arange(draw.n_features) for draw in posterior]
        turned = [
            bool(k.size and not members(d.user_words, k)[USER, 0] and members(d.item_words, k)[ITEM, 0])
            for d, k in zip(posterior, slots, strict=True)
        ]
        effects = [-draw.effect[0] if draw.n_features else 0.0 for draw in posterior]
        found = explain(posterior, USER, ITEM, allocation=estimate, align=crosswise)
        part = next(part for part in found.features if part.feature == 2)
        assert part.shared == pytest.approx(np.mean(turned))
        assert part.contribution.mean == pytest.approx(np.mean(np.where(turned, effects, 0.0)))

    def test_the_largest_come_first_and_the_rest_last(self, posterior, estimate):
        found = explain(posterior, USER, ITEM, allocation=estimate, align=straight)
        sizes = [abs(part.contribution.mean) for part in found.features[:-1]]
        assert sizes == sorted(sizes, reverse=True)
        assert found.features[-1].feature is None
        assert 1 not in [part.feature for part in found.features]  # no draw has it

    def test_no_features_at_all(self, estimate):
        posterior = make_posterior(features=(0,))
        found = explain(posterior, USER, ITEM, allocation=estimate, align=straight)
        (part,) = found.features
        assert (part.shared, part.effect, part.contribution.mean) == (0.0, None, 0.0)

    def test_an_unknown_pair_is_in_no_estimate(self, posterior, estimate):
        found = explain(posterior, -1, ITEM, allocation=estimate, align=straight)
        assert not any(part.in_estimate for part in found.features)
        assert found.user_offset.mean == pytest.approx(0.0, abs=1e-12)
        assert found.user_offset.lower < -0.1


class TestText:
    def test_plain_values(self, posterior, estimate):
        found = explain(posterior, USER, ITEM, allocation=estimate, align=straight)
        named = replace(found, user="ann", item="Alien", levels=("a", "b", "c", "d", "e"))
        plain = json.loads(json.dumps(named.to_dict()))
        assert (plain["user"], plain["item"]) == ("ann", "Alien")
        assert list(plain["levels"]) == ["a", "b", "c", "d", "e"]
        assert plain["features"][-1]["feature"] is None
        assert plain["score"]["mean"] == found.score.mean

    def test_lines(self, posterior, estimate):
        lines = explain(posterior, USER, ITEM, allocation=estimate, align=straight).lines()
        assert lines[0] == "user 4, item 2 (80% intervals)"
        assert lines[1] == "  base            +2.50"
        assert [line.split("  ")[1].strip() for line in lines[2:4]] == ["item offset", "user offset"]
        assert any(line.startswith("  feature 2") and "shared with probability" in line for line in lines)
        assert any(line.startswith("  other features") for line in lines)
        assert lines[-1].startswith("levels: 1 ")

    def test_lines_without_user_offsets_and_estimate(self):
        lines = explain(make_posterior(user_offsets=False), USER, ITEM).lines()
        assert not any("user offset" in line for line in lines)
        assert any(line.startswith("  features ") for line in lines)


@pytest.mark.parametrize("wrong", [{"mass": 1.0}, {"align": straight}])
def test_bad_questions(posterior, wrong):
    with pytest.raises(SettingsError, match=r"mass must|needs both"):
        explain(posterior, USER, ITEM, **wrong)


def test_no_draws():
    with pytest.raises(NotFittedError, match="no draws"):
        explain(Posterior(2.5), 0, 0)
