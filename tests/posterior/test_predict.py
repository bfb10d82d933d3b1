from itertools import product

import numpy as np
import pytest

import doublefeature as df
from doublefeature.errors import NotFittedError, SettingsError
from doublefeature.inference.chain import sample
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.parameters import parameters_of
from doublefeature.model.state import ITEM_SD, NOISE, USER_SD, members
from doublefeature.posterior.draws import Posterior, with_item_shares
from doublefeature.posterior.predict import (
    STRANGERS,
    add_level_probabilities,
    draw_scores,
    levels_in_draw,
    predict_levels,
    predict_rows,
    score_table,
    spread,
)
from doublefeature.posterior.prediction import Prediction, level_values, shortest_interval
from doublefeature.posterior.strangers import member_counts
from doublefeature.studies.recovery import Design, simulate
from tests.posterior import make_draw, make_posterior, repeat_draw

PAIRS = np.array(list(product(range(9), range(7)))).T


def by_hand(posterior, users, items, *, leave_out_user_offset=False):
    total = 0.0
    for draw in posterior:
        parameters = parameters_of(draw.to_state())
        if leave_out_user_offset:
            parameters.user_offset = np.zeros_like(parameters.user_offset)
        scores = parameters.scores(users, items, posterior.base)
        total = total + level_probabilities(scores, parameters.noise, draw.cutpoints)
    return total / len(posterior)


class TestKnownPairs:
    def test_a_fitted_posterior_averaged_by_hand(self):
        ratings, _ = simulate(Design(users=30, items=20, tau=0.5), seed=3)
        schedule = df.Schedule(sweeps=40, warmup=20, thin=2, chains=2, threads=1)
        train = ratings.split(0.2, seed=1)[0]
        posterior = sample(train, df.Priors(user_offsets=True), schedule, seed=1)
        users, items, _ = (column.astype(np.int64) for column in ratings.triples())
        found = predict_levels(posterior, users, items)
        assert np.abs(found - by_hand(posterior, users, items)).max() < 1e-12
        assert np.abs(found.sum(axis=1) - 1.0).max() < 1e-12

    @pytest.mark.parametrize("levels", [2, 5, 10])
    def test_many_features_and_none(self, levels):
        posterior = make_posterior(seed=levels, levels=levels)
        found = predict_levels(posterior, *PAIRS)
        assert found.shape == (63, levels)
        assert np.abs(predict_rows(posterior, np.arange(9)).reshape(63, levels) - found).max() < 1e-12
        assert np.abs(found - by_hand(posterior, *PAIRS)).max() < 1e-12

    def test_the_check_sees_a_missing_offset(self):
        posterior = make_posterior()
        wrong = by_hand(posterior, *PAIRS, leave_out_user_offset=True)
        assert np.abs(predict_levels(posterior, *PAIRS) - wrong).max() > 0.01

    def test_blocks_do_not_show(self, monkeypatch):
        posterior = make_posterior()
        users, items = PAIRS - (np.arange(63) % 4 == 0)  # some strangers among them
        whole = predict_levels(posterior, users, items)
        monkeypatch.setattr("doublefeature.posterior.predict._BLOCK", STRANGERS * 2)
        assert np.array_equal(predict_levels(posterior, users, items), whole)

    def test_scores_of_all_draws(self):
        posterior = make_posterior()
        table = score_table(posterior, *PAIRS)
        assert table.shape == (6, 63)
        for row, draw in zip(table, posterior, strict=True):
            expected = parameters_of(draw.to_state()).scores(*PAIRS, posterior.base)
            assert np.allclose(row, expected, atol=1e-12)

    def test_no_pairs_and_no_draws(self):
        nobody = np.zeros(0, np.int64)
        assert predict_levels(make_posterior(), nobody, nobody).shape == (0, 5)
        with pytest.raises(NotFittedError, match="no draws"):
            predict_levels(Posterior(2.5), nobody, nobody)

    def test_member_counts(self):
        for draw in make_posterior():
            dense = members(draw.user_words, np.arange(draw.n_features)).sum(axis=0)
            assert np.array_equal(member_counts(draw.user_words, draw.n_features), dense)


@pytest.mark.parametrize("scale", [0.05, 0.5, 20.0])
def test_level_probabilities_keep_their_digits_in_the_tails(scale):
    cutpoints = level_cutpoints(5)
    scores = np.linspace(2.5 - 35 * scale, 2.5 + 35 * scale, 401)
    found = np.zeros((401, 5))
    add_level_probabilities(scores, scale, cutpoints, 1, found)
    expected = level_probabilities(scores, scale, cutpoints)
    seen = expected > 1e-250
    assert np.allclose(found[seen], expected[seen], rtol=1e-10, atol=0.0)
    assert (found >= 0.0).all()


def enumerate_levels(draw, base, user, item, *, extra_user=1.0):
    """Return the prior answer for an unknown user or item: a sum over memberships, offsets in the noise."""
    slots = np.arange(draw.n_features)
    inside = members(draw.user_words, slots)
    sides, variance, fixed = [], float(draw.hyper[NOISE]) ** 2, base
    if user < 0:
        sides.append(inside.sum(axis=0) / (inside.shape[0] + extra_user))
        variance += float(draw.hyper[USER_SD]) ** 2 * draw.user_offset.any()
    else:
        sides.append(inside[user].astype(float))
        fixed += draw.user_offset[user]
    if item < 0:
        sides.append(draw.item_rate)
        variance += float(draw.hyper[ITEM_SD]) ** 2 * draw.item_offset.any()
    else:
        sides.append(members(draw.item_words, slots)[item].astype(float))
        fixed += draw.item_offset[item]
    rates = sides[0] * sides[1]  # the two sides' memberships are independent: a pair shares k with this probability
    total = 0.0
    for shared in product([0, 1], repeat=draw.n_features):
        weight = np.where(shared, rates, 1.0 - rates).prod()
        score = np.array([fixed + draw.effect @ np.array(shared)])
        total = total + weight * level_probabilities(score, variance**0.5, draw.cutpoints)[0]
    return total


class TestStrangers:
    @pytest.mark.parametrize(("user", "item"), [(-1, 2), (1, -1), (-1, -1)])
    @pytest.mark.parametrize("offsets", [True, False])
    def test_they_integrate_the_prior(self, rng, user, item, offsets):
        draw = make_draw(rng, users=3, items=4, features=4, user_offsets=offsets, item_offsets=offsets)
        posterior = repeat_draw(draw, 1000)
        found = predict_levels(posterior, np.array([user]), np.array([item]))[0]
        error = standard_error(posterior, user, item)
        assert (np.abs(found - enumerate_levels(draw, 2.5, user, item)) < 4.5 * error).all()

    def test_strange_items_go_by_the_shares_of_ratings(self, rng):
        counts = np.array([1, 20, 3, 0])
        shares = counts / counts.sum()
        draw = make_draw(rng, users=3, items=4, features=4)
        posterior = with_item_shares(repeat_draw(draw, 1000), np.append(0, np.cumsum(counts)))
        mean = np.average(draw.item_offset, weights=counts)
        hyper = draw.hyper.copy()
        hyper[ITEM_SD] = np.sqrt(np.average((draw.item_offset - mean) ** 2, weights=counts))
        same = draw._replace(item_rate=shares @ members(draw.item_words, np.arange(4)), hyper=hyper)
        found = predict_levels(posterior, np.array([1]), np.array([-1]))[0]
        error = standard_error(posterior, 1, -1)
        assert (np.abs(found - enumerate_levels(same, 2.5 + mean, 1, -1)) < 4.5 * error).all()
        assert (np.abs(found - enumerate_levels(draw, 2.5, 1, -1)) > 4.5 * error).any()

    @pytest.mark.parametrize("preset", ["full", "paper"])
    def test_shares_come_with_the_model_of_choices(self, tmp_path, preset):
        ratings, _ = simulate(Design(users=30, items=12), seed=1)
        schedule = df.Schedule(sweeps=4, warmup=2, thin=1, chains=1, threads=1)
        model = df.DoubleFeature(preset=preset, schedule=schedule).fit(ratings, out=tmp_path / "model")
        alone = df.DoubleFeature(preset=preset, schedule=schedule).fit(ratings)
        counts = np.diff(ratings.arrays.item_ptr) if preset == "full" else np.zeros(0)
        for one in (model, alone, df.DoubleFeature.load(tmp_path / "model")):
            assert np.allclose(one.posterior_.draws[0].item_shares * ratings.n_ratings, counts)

    def test_the_check_sees_a_wrong_rate(self, rng):
        draw = make_draw(rng, users=3, items=4, features=4)
        posterior = repeat_draw(draw, 1000)
        found = predict_levels(posterior, np.array([-1]), np.array([2]))[0]
        wrong = enumerate_levels(draw, 2.5, -1, 2, extra_user=0.0)
        assert (np.abs(found - wrong) / standard_error(posterior, -1, 2)).max() > 9.0

    def test_an_answer_does_not_depend_on_what_else_is_asked(self):
        posterior = make_posterior()
        users, items = np.array([3, -1, 4, -1, -1, 0]), np.array([-1, 5, 6, -1, 5, 1])
        together = predict_levels(posterior, users, items)
        for k in range(6):
            alone = predict_levels(posterior, users[k : k + 1], items[k : k + 1])
            assert np.array_equal(alone[0], together[k])
        assert np.array_equal(together[1], together[4])

    def test_one_stranger_for_all_pairs_of_a_draw(self):
        posterior = make_posterior(features=(0,))
        table = score_table(posterior, np.array([-1, -1]), np.array([2, 5]))
        offsets = np.array([draw.item_offset[[2, 5]] for draw in posterior])
        assert np.allclose(table[:, 0] - table[:, 1], offsets[:, 0] - offsets[:, 1])
        assert np.unique(table[:, 0] - offsets[:, 0]).size == len(posterior)

    def test_groups_are_different_strangers(self):
        draw = make_posterior().draws[0]
        codes = spread(np.array([-1, 4]), 3, group=1)
        assert codes.tolist() == [-1 - STRANGERS, -2 - STRANGERS, -3 - STRANGERS, 4, 4, 4]
        everyone = draw_scores(draw, 2.5, np.full(2 * STRANGERS, 0), -1 - np.arange(2 * STRANGERS))
        assert np.unique(everyone).size == 2 * STRANGERS


def standard_error(posterior, user, item):
    users, items = spread(np.array([user]), STRANGERS), spread(np.array([item]), STRANGERS)
    each = np.concatenate([levels_in_draw(draw, posterior.base, users, items) for draw in posterior])
    return each.std(axis=0) / len(each) ** 0.5 + 1e-9


def some_prediction(levels, rng, pairs=200):
    proba = rng.dirichlet(np.full(len(levels), 0.7), pairs)
    known = np.ones((pairs, 2), bool)
    return Prediction([(f"u{k}", f"i{k}") for k in range(pairs)], tuple(levels), proba, known)


def costs(loss, values, steps):
    if loss == "mode":
        return (steps != 0).astype(float)
    if loss == "median":
        return np.abs(steps).astype(float)
    return (np.abs(steps) > 1).astype(float)


class TestPrediction:
    @pytest.mark.parametrize("levels", [(0, 1), (1, 2, 3, 4, 5), tuple(np.arange(0.5, 5.5, 0.5).tolist())])
    def test_decisions_minimise_their_loss(self, levels, rng):
        prediction = some_prediction(levels, rng)
        steps = np.arange(len(levels))[:, None] - np.arange(len(levels))
        best = {}
        for loss in ("mode", "median", "window"):
            risks = prediction.proba @ costs(loss, levels, steps)
            best[loss] = [levels[k] for k in risks.argmin(axis=1)]
            assert prediction.decide(loss) == getattr(prediction, loss)
            chosen = [levels.index(label) for label in prediction.decide(loss)]
            assert np.allclose(risks[np.arange(len(risks)), chosen], risks.min(axis=1), atol=1e-9)
        assert best["median"] != prediction.mode or len(levels) == 2  # the check tells losses apart
        assert np.allclose(prediction.decide("mean"), prediction.mean)

    def test_moments(self, rng):
        prediction = some_prediction((1, 2, 3, 4, 5), rng)
        values = np.arange(1.0, 6.0)
        assert np.allclose(prediction.mean, (prediction.proba * values).sum(axis=1))
        second = (prediction.proba * values**2).sum(axis=1)
        assert np.allclose(prediction.sd, np.sqrt(second - prediction.mean**2))

    @pytest.mark.parametrize("levels", [2, 5, 10])
    @pytest.mark.parametrize("mass", [0.5, 0.8, 1.0])
    def test_intervals_are_the_shortest(self, levels, mass, rng):
        prediction = some_prediction(range(1, levels + 1), rng)
        for row, low, high in zip(prediction.proba, *prediction.interval(mass), strict=True):
            runs = [(b - a, -row[a : b + 1].sum(), a) for a in range(levels) for b in range(a, levels)]
            width, _, first = min(run for run in runs if -run[1] >= mass - 1e-12)
            assert (low - 1, high - low) == (first, width)

    def test_equal_runs_go_to_the_lower(self):
        lower, upper = shortest_interval(np.array([[0.1, 0.4, 0.0, 0.4, 0.1], [0.3, 0.2, 0.1, 0.1, 0.3]]), 0.4)
        assert lower.tolist() == [1, 0]
        assert upper.tolist() == [1, 1]

    def test_ties_go_to_the_lower(self):
        one = Prediction([("u", "i")], (1, 2, 3), np.array([[0.4, 0.2, 0.4]]), np.ones((1, 2), bool))
        assert one.mode == [1]
        assert one.median == [2]
        half = Prediction([("u", "i")], (1, 2), np.array([[0.5, 0.5]]), np.ones((1, 2), bool))
        assert (half.median, half.window) == ([1], [1])

    def test_at_least(self, rng):
        prediction = some_prediction((0.5, 1.0, 1.5), rng)
        assert np.allclose(prediction.at_least(1), prediction.proba[:, 1:].sum(axis=1))
        assert np.allclose(prediction.at_least(0.5), 1.0)
        with pytest.raises(SettingsError, match=r"2 is none of the levels 0\.5\.\.1\.5"):
            prediction.at_least(2)

    def test_text_levels(self, rng):
        prediction = some_prediction(("low", "mid", "high"), rng, 3)
        assert np.allclose(prediction.mean, prediction.proba @ [1.0, 2.0, 3.0])
        assert set(prediction.median) <= {"low", "mid", "high"}
        assert np.allclose(prediction.at_least("mid"), prediction.proba[:, 1:].sum(axis=1))

    def test_what_levels_count_as(self):
        assert level_values((0.5, 1.0)).tolist() == [0.5, 1.0]
        assert level_values((3, 2, 1)).tolist() == [3.0, 2.0, 1.0]
        assert level_values((2, 1, 3)).tolist() == [1.0, 2.0, 3.0]

    def test_rows(self):
        known = np.array([[True, True], [False, True], [True, False], [False, False]])
        proba = np.tile([0.2, 0.5, 0.3], (4, 1))
        prediction = Prediction([("a", 1), ("b", 2), ("c", 3), ("d", 4)], (0.5, 1.0, 1.5), proba, known)
        rows = prediction.to_rows()
        columns = ["user", "item", "mean", "median", "mode", "sd", "lower", "upper"]
        assert list(rows[0]) == [*columns, "p_0.5", "p_1", "p_1.5", "prior"]
        assert [row["prior"] for row in rows] == ["", "user", "item", "user and item"]
        assert rows[0]["mode"] == 1.0
        assert (rows[0]["lower"], rows[0]["upper"]) == (1.0, 1.5)
        assert rows[0]["mean"] == pytest.approx(1.05)

    def test_bad_questions(self, rng):
        prediction = some_prediction((1, 2, 3), rng, 2)
        with pytest.raises(SettingsError, match="loss must be"):
            prediction.decide("mad")
        with pytest.raises(SettingsError, match="mass must be"):
            prediction.interval(1.2)

    def test_public_name(self):
        assert df.Prediction is Prediction
