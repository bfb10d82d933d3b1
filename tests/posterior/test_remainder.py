"""Draws with a low-rank remainder beside the features."""

import numpy as np
import pytest

import doublefeature as df
from doublefeature.config import Priors, Schedule
from doublefeature.errors import SettingsError
from doublefeature.model.parameters import parameters_of
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.explain import explain
from doublefeature.posterior.predict import draw_scores, predict_levels, score_table
from doublefeature.posterior.similar import similar_items, similar_users
from doublefeature.posterior.store import draws_digest
from doublefeature.studies.recovery import Design, simulate
from tests.posterior import make_graded
from tests.posterior.test_graded import PAIRS, check_rows
from tests.posterior.test_similar import relations
from tests.posterior.test_user_grades import dense, with_grades

SCHEDULE = Schedule(sweeps=24, warmup=8, thin=2, chains=2, threads=1)


def with_remainder(posterior, rank=2, seed=3):
    rng = np.random.default_rng(seed)
    draws = [
        draw._replace(
            user_factor=rng.normal(0.0, 0.5, (draw.user_offset.size, rank)),
            item_factor=rng.normal(0.0, 0.5, (draw.item_offset.size, rank)),
        )
        for draw in posterior
    ]
    return Posterior(posterior.base, draws, scales=posterior.scales)


@pytest.fixture
def posterior():
    return with_remainder(with_grades(make_graded(seed=1, draws=12, features=(5, 3, 0, 9, 70, 4))))


def full_table(draw):
    return dense(draw) + draw.user_factor @ draw.item_factor.T


def test_scores_pair_by_pair(posterior):
    check_rows(posterior)
    for row, draw in zip(score_table(posterior, *PAIRS), posterior, strict=True):
        expected = posterior.base + draw.item_offset + draw.user_offset[:, None] + full_table(draw)
        assert np.allclose(row, expected[tuple(PAIRS)], atol=1e-12)
        scores = parameters_of(draw.to_state()).scores(PAIRS[0], PAIRS[1], posterior.base)
        assert np.allclose(row, scores, atol=1e-12)


@pytest.mark.parametrize(("user", "item"), [(2, 3), (-1, 3), (2, -1), (-1, -1)])
def test_explanations_add_up(posterior, user, item):
    found = explain(posterior, user, item)
    assert found.remainder is not None
    parts = [found.item_offset, found.user_offset, found.remainder, *(part.contribution for part in found.features)]
    assert abs(found.base + sum(part.mean for part in parts) - found.score.mean) < 1e-9
    assert any(line.strip().startswith("remainder") for line in found.lines())
    assert predict_levels(posterior, np.array([user]), np.array([item])).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("side", ["items", "users"])
def test_similar(side):
    posterior = with_remainder(with_grades(make_graded(seed=2, draws=10, users=40, items=15)))
    tables = [full_table(draw) if side == "items" else full_table(draw).T for draw in posterior]
    covariance = np.array([relations(table, 3)[0] for table in tables])
    found = (similar_items if side == "items" else similar_users)(posterior, 3, n=100)
    assert np.allclose(found.covariance, covariance.mean(axis=0)[found.codes], atol=1e-10)


def test_a_remainder_is_kept_and_resumed(tmp_path):
    data = simulate(Design(users=30, items=20, tau=0.5), seed=3)[0].split(0.3, seed=1)[0]
    priors = Priors(user_offsets=True, remainder=3).with_everything_learnt()
    short = Schedule.from_dict({**SCHEDULE.to_dict(), "sweeps": 14})
    df.DoubleFeature(priors=priors, schedule=short, seed=1).fit(data, out=tmp_path / "model")
    longer = df.DoubleFeature.resume(tmp_path / "model", sweeps=24)
    whole = df.DoubleFeature(priors=priors, schedule=SCHEDULE, seed=1).fit(data)
    assert draws_digest(longer.posterior_) == draws_digest(whole.posterior_)
    draw = whole.posterior_.draws[-1]
    assert draw.user_factor.shape == (30, 3)
    assert np.abs(draw.item_factor).max() > 0.0
    plain = draw._replace(user_factor=np.zeros((30, 0)), item_factor=np.zeros((20, 0)))
    users, items = np.divmod(np.arange(600), 20)
    gap = draw_scores(draw, 2.5, users, items) - draw_scores(plain, 2.5, users, items)
    assert np.allclose(gap.reshape(30, 20), draw.user_factor @ draw.item_factor.T)


def test_settings():
    with pytest.raises(SettingsError, match="needs a remainder"):
        Priors(learn=("remainder_sd",))
    with pytest.raises(SettingsError, match="remainder"):
        Priors(remainder=-1)
