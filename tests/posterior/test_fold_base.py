"""Fold-in from draw to prediction: what the kernel is told of a draw, against a prior written down by hand."""

import numpy as np
import pytest

from doublefeature import Priors, Ratings
from doublefeature.inference.folding import FoldBase, NewRow
from doublefeature.kernels.fold import Others, Rated, RowPrior
from doublefeature.model.generative import scale_log_weights
from doublefeature.model.state import members
from doublefeature.posterior.draws import Posterior, member_starts
from doublefeature.posterior.predict import levels_in_draw
from tests.posterior import SCALES, exact_fold, make_graded
from tests.posterior.test_user_grades import with_grades

PRIORS = Priors(user_offsets=True, graded=True, user_grades=True, user_scales=True)
USERS, ITEMS, DRAWS, ASKED = 9, 7, 3_000, 6
CODES, LEVELS = np.array([0, 1, 3, 4]), np.array([4, 3, 0, 2])
TAU, ITEM_SD, USER_SD, GRADE_SD, SCALE_SD, USER_GRADE_SD, FACTOR_SD = 0.6, 0.7, 0.5, 0.4, 0.3, 0.6, 0.5
HYPER = np.array([TAU, 3.0, 0.2, 2.0, ITEM_SD, USER_SD, GRADE_SD, SCALE_SD, USER_GRADE_SD, FACTOR_SD])


@pytest.fixture(scope="module")
def draw():
    made = with_grades(make_graded(seed=5, draws=1, features=(2,))).draws[0]
    effects = np.clip(made.item_effect, -1.0, 1.0)
    return made._replace(hyper=HYPER, item_effect=effects)


def base_of(draw):
    """Return the draw many times over, each time with other random numbers."""
    users, items = np.indices((USERS, ITEMS)).reshape(2, -1)
    ratings = Ratings.from_triples(users.tolist(), items.tolist(), ((users + items) % 5 + 1).tolist())
    posterior = Posterior(2.5, [draw._replace(sweep=sweep) for sweep in range(DRAWS)], scales=SCALES)
    return FoldBase(posterior, ratings, PRIORS, 0)


def largest_z(view, truth, users, items):
    """Return how far the predicted levels are from the truth in standard errors, at worst."""
    found = np.concatenate([levels_in_draw(one, view.base, users, items, view.scales) for one in view])
    error = found.std(axis=0) / np.sqrt(len(view)) + 0.5 / len(view)
    return float((np.abs(found.mean(axis=0) - truth) / error).max())


def user_truth(draw, monkeypatch):
    owners = members(draw.user_words, np.arange(2)).sum(axis=0)
    prior = RowPrior(
        np.log(owners / (USERS + 1 - owners)),
        np.ones(2),
        USER_GRADE_SD,
        0.0,
        USER_SD,
        FACTOR_SD,
        SCALES,
        scale_log_weights(SCALES, SCALE_SD),
    )
    first = member_starts(draw.item_words)[:-1]
    others = Others(draw.item_words, first, draw.item_effect, draw.effect, draw.item_offset, np.zeros((ITEMS, 0)))
    monkeypatch.setattr(exact_fold, "NOISE", TAU)
    case = exact_fold.Case(others, prior, Rated(CODES, LEVELS, np.full(4, TAU), 2.5, draw.cutpoints), ASKED)
    return exact_fold.exact(case).quantities[-5:]


def test_user(draw, monkeypatch):
    truth, one = user_truth(draw, monkeypatch), np.zeros(1, np.int64)
    row = NewRow(CODES, LEVELS)
    base = base_of(draw)
    assert largest_z(base.posterior_of(base.fold_user(row)), truth, one, np.array([ASKED])) < 4.0
    wrong = HYPER.copy()
    wrong[[5, 8]] = HYPER[[8, 5]] * 1.5
    other = base_of(draw._replace(hyper=wrong))
    planted = other.posterior_of(other.fold_user(row))
    assert largest_z(planted, truth, one, np.array([ASKED])) > 4.0


def test_item(draw, monkeypatch):
    own = TAU * SCALES[draw.user_scale]
    prior = RowPrior(
        np.log(draw.item_rate / (1.0 - draw.item_rate)),
        draw.effect,
        GRADE_SD,
        0.0,
        ITEM_SD,
        FACTOR_SD,
        np.ones(1),
        np.zeros(1),
    )
    first = member_starts(draw.user_words)[:-1]
    others = Others(draw.user_words, first, draw.user_grade, np.ones(2), draw.user_offset, np.zeros((USERS, 0)))
    monkeypatch.setattr(exact_fold, "NOISE", own[ASKED])
    case = exact_fold.Case(others, prior, Rated(CODES, LEVELS, own[CODES], 2.5, draw.cutpoints), ASKED)
    truth = exact_fold.exact(case).quantities[-5:]
    row, one = NewRow(CODES, LEVELS), np.zeros(1, np.int64)
    assert largest_z(base_of(draw).fold_item(row), truth, np.array([ASKED]), one) < 4.0
    same_noise = draw._replace(user_scale=np.full(USERS, 2, np.uint8))
    planted = base_of(same_noise).fold_item(row)
    view = Posterior(2.5, [found._replace(user_scale=draw.user_scale) for found in planted], scales=SCALES)
    assert largest_z(view, truth, np.array([ASKED]), one) > 4.0
