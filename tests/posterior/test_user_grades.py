"""Draws in which users hold features more or less strongly."""

from itertools import product

import numpy as np
import pytest

from doublefeature.model.ordinal import level_probabilities
from doublefeature.model.state import USER_GRADE_SD, members
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.explain import explain
from doublefeature.posterior.predict import draw_scores, score_table
from doublefeature.posterior.ranking import top
from doublefeature.posterior.similar import similar_items, similar_users
from doublefeature.posterior.strangers import STRANGERS, spread, user_rows
from tests.posterior import SCALES, make_graded, repeat_draw
from tests.posterior.test_explain import ITEM, USER, crosswise, estimate, straight, total  # noqa: F401
from tests.posterior.test_graded import PAIRS, VALUES, check_rows, effects_by_hand, unpacked
from tests.posterior.test_similar import relations


def with_grades(posterior, seed=9):
    """Return the draws with a grade for every membership of a user."""
    rng = np.random.default_rng(seed)
    draws = [
        draw._replace(
            user_grade=rng.normal(1.0, 0.6, int(np.bitwise_count(draw.user_words).sum())),
            user_graded=True,
        )
        for draw in posterior
    ]
    return Posterior(posterior.base, draws, scales=posterior.scales)


def grades_by_hand(draw):
    return unpacked(draw.user_words, draw.user_grade, draw.n_features)


def dense(draw):
    """Return the features' part of every score, shape (users, items)."""
    out = np.zeros((draw.user_offset.size, draw.item_offset.size))
    grades, effects = grades_by_hand(draw), effects_by_hand(draw)
    for (user, feature), grade in grades.items():
        for item in range(out.shape[1]):
            out[user, item] += grade * effects.get((item, feature), 0.0)
    return out


def scores_by_hand(draw, base):
    return base + draw.item_offset + draw.user_offset[:, None] + dense(draw)


@pytest.fixture
def posterior():
    return with_grades(make_graded(seed=1, draws=12, features=(5, 3, 0, 9, 70, 4)))


def test_scores_pair_by_pair(posterior):
    check_rows(posterior)
    for row, draw in zip(score_table(posterior, *PAIRS), posterior, strict=True):
        assert np.allclose(row, scores_by_hand(draw, posterior.base)[tuple(PAIRS)], atol=1e-12)
        plain = draw._replace(user_graded=False)
        if draw.n_features:
            assert np.abs(draw_scores(plain, posterior.base, *PAIRS) - row).max() > 0.01


def test_states_come_back(posterior):
    for draw in posterior:
        state = draw.to_state()
        assert np.array_equal(state.user_grade[:, : draw.n_features], draw.grades_of())
        assert (draw.grades_of() != 0.0).sum() == draw.user_grade.size


def test_strangers_hold_features_around_one(posterior):
    draw = posterior.draws[0]
    rows = [user_rows(each, spread(np.array([-1]), STRANGERS)) for each in repeat_draw(draw, 200)]
    held = np.concatenate([row.grades(draw)[members(row.words, np.arange(draw.n_features))] for row in rows])
    assert held.mean() == pytest.approx(1.0, abs=4 * 0.6 / held.size**0.5)
    assert held.std() == pytest.approx(draw.hyper[USER_GRADE_SD], rel=0.05)


@pytest.mark.parametrize("align", [None, straight, crosswise])
@pytest.mark.parametrize(("user", "item"), [(USER, ITEM), (0, 6), (-1, ITEM), (USER, -1)])
def test_explanations_add_up(estimate, align, user, item):  # noqa: F811
    posterior = with_grades(make_graded(seed=1, draws=12, features=(5, 3, 0, 9, 7, 4)))
    found = explain(posterior, user, item, allocation=estimate if align else None, align=align)
    assert abs(total(found) - found.score.mean) < 1e-9
    if min(user, item) >= 0:
        expected = [scores_by_hand(draw, posterior.base)[user, item] for draw in posterior]
        assert found.score.mean == pytest.approx(np.mean(expected))


def test_top(posterior):
    found = top(posterior, 7, VALUES)
    mean = np.zeros(7)
    for draw in posterior:
        scores = scores_by_hand(draw, posterior.base)
        for user, item in product(range(9), range(7)):
            noise = draw.hyper[0] * SCALES[draw.user_scale[user]]
            proba = level_probabilities(scores[user, [item]], noise, draw.cutpoints)[0]
            mean[item] += proba @ VALUES / (9 * len(posterior))
    assert np.allclose(found.mean, mean[found.items], atol=1e-5)


@pytest.mark.parametrize("side", ["items", "users"])
def test_similar(side):
    posterior = with_grades(make_graded(seed=2, draws=10, users=40, items=15))
    tables = [dense(draw) if side == "items" else dense(draw).T for draw in posterior]
    covariance, correlation = np.array([relations(table, 3) for table in tables]).transpose(1, 0, 2)
    found = (similar_items if side == "items" else similar_users)(posterior, 3, n=100)
    assert np.allclose(found.correlation, correlation.mean(axis=0)[found.codes], atol=1e-10)
    assert np.allclose(found.covariance, covariance.mean(axis=0)[found.codes], atol=1e-10)
