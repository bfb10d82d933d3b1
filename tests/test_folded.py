"""Users and items folded into a fitted model, in raw ids."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import doublefeature as df
from doublefeature.errors import InputError, NotFittedError, RatingsError, SettingsError
from doublefeature.inference.fold_views import compile_fold
from doublefeature.inference.kept_tilts import FILE
from doublefeature.inference.new_covariates import item_covariates
from doublefeature.kernels.fold import fold_row
from doublefeature.model.state import members
from doublefeature.studies.recovery import Design, simulate

SCHEDULE = df.Schedule(sweeps=40, warmup=20, thin=2, chains=2, threads=1)


@pytest.fixture(scope="module")
def ratings():
    whole = simulate(Design(users=40, items=25, tau=0.5), seed=3)[0].split(0.4, seed=1)[0]
    users, items, levels = whole.triples()
    names = [f"u{u}" for u in users], [f"film {i}" for i in items]
    return df.Ratings.from_triples(*names, (levels + 1).tolist(), levels=whole.levels)


SWITCHES = {
    "paper": df.preset("paper"),
    "full": df.preset("full"),
    "remainder": df.Priors(remainder=2, user_offsets=True),
}


@pytest.fixture(scope="module", params=SWITCHES)
def model(request, ratings):
    return df.DoubleFeature(priors=SWITCHES[request.param], seed=1, schedule=SCHEDULE).fit(ratings)


GIVEN = {"film 3": 5, "film 7": 2, "film 1": 4, "film 20": 1, "film 11": 3}


class TestUser:
    def test_order_of_keys_and_threads_do_not_matter(self, model):
        folds = [partial(model.fold_in, dict(sorted(GIVEN.items(), reverse=turn))) for turn in (False, True, False)]
        with ThreadPoolExecutor(3) as pool:
            found = [job.result() for job in [pool.submit(fold) for fold in folds]]
        answers = [fold.predict(model.ratings_.items).proba.tobytes() for fold in found]
        assert answers[0] == answers[1] == answers[2]
        changed = model.fold_in(GIVEN | {"film 3": 4})
        assert changed.predict(model.ratings_.items).proba.tobytes() != answers[0]

    def test_a_loaded_model_gives_the_same_bytes(self, model, tmp_path):
        model.save(tmp_path / "model")
        again = df.load(tmp_path / "model")
        one, two = (which.fold_in(GIVEN).predict(model.ratings_.items).proba for which in (model, again))
        assert one.tobytes() == two.tobytes()
        compile_fold()
        assert len(fold_row.signatures) == 1

    def test_without_ratings_the_prior_answers(self, model):
        items = model.ratings_.items
        nobody = model.fold_in({})
        assert np.array_equal(nobody.predict(items).proba, model.predict([("nobody", item) for item in items]).proba)
        assert nobody.recommend(3) == model.recommend("nobody", 3)
        assert nobody.prefer("film 1", "film 2") == model.prefer("nobody", "film 1", "film 2")
        assert nobody.explain("film 1").to_dict()["score"] == model.explain("nobody", "film 1").to_dict()["score"]
        assert nobody.effective_draws == len(model.posterior_)
        assert not nobody.predict(items).known[:, 0].any()

    def test_records_are_those_of_known_users(self, model):
        folded = model.fold_in(GIVEN)
        found = folded.recommend(30, rank_by="lower", level=4, mass=0.5, deny=["film 2"])
        assert {row.item for row in found} == set(model.ratings_.items) - set(GIVEN) - {"film 2"}
        assert [row.item for row in folded.recommend(5, allow=["film 9", "film 3"])] == ["film 9"]
        row = folded.recommend(1)[0]
        proba = folded.predict([row.item])
        assert row.mean == pytest.approx(proba.mean[0], abs=1e-12)
        assert row.at_least == pytest.approx(proba.at_least(model.high_level)[0])
        assert type(row) is type(model.recommend("u1", 1)[0])
        narrow, wide = (folded.recommend(1, mass=mass)[0] for mass in (0.3, 0.95))
        assert wide.lower <= narrow.lower <= narrow.upper <= wide.upper

    def test_explanation_adds_up(self, model):
        answer = model.fold_in(GIVEN).explain("film 2")
        total = answer.base + answer.item_offset.mean + answer.user_offset.mean
        total += sum(part.contribution.mean for part in answer.features)
        total += answer.remainder.mean if answer.remainder is not None else 0.0
        assert total == pytest.approx(answer.score.mean)
        assert answer.item == "film 2"
        assert answer.proba == pytest.approx(model.fold_in(GIVEN).predict(["film 2"]).proba[0])

    def test_questions(self, model):
        folded = model.fold_in(GIVEN)
        asked = folded.next_question(30)
        assert {question.item for question in asked} == set(model.ratings_.items) - set(GIVEN)
        gains = [question.gain for question in asked]
        assert gains == sorted(gains, reverse=True)
        assert min(gains) >= 0.0
        assert asked[0].mean == pytest.approx(folded.predict([asked[0].item]).mean[0])
        assert asked[:2] == folded.next_question(2)
        assert len(model.fold_in({}).next_question()) == 1

    def test_doubt_falls_as_ratings_tell_more(self, model):
        items = list(model.ratings_.items)
        few = model.fold_in(dict.fromkeys(items[:2], 5))
        many = model.fold_in(dict.fromkeys(items[:20], 5))
        assert 0.0 < many.doubt < few.doubt < model.fold_in({}).doubt

    def test_ratings_move_the_answer(self, model):
        items = model.ratings_.items
        high, low = (model.fold_in(dict.fromkeys(items[:12], level)) for level in (5, 1))
        assert high.predict(items[12:]).mean.mean() > low.predict(items[12:]).mean.mean()

    def test_a_known_user_with_the_same_ratings(self, model):
        """Folded in with the ratings fitted on, a user is near what the fit says, and nearer than somebody else."""
        items = list(model.ratings_.items)
        fitted = {user: model.predict([(user, item) for item in items]).mean for user in ("u1", "u2", "u3", "u4")}
        gaps = []
        for user in fitted:
            folded = model.fold_in(model.ratings_.rated_items(user), user=user).predict(items).mean
            own = np.abs(folded - fitted[user]).mean()
            gaps.append(own < min(np.abs(folded - fitted[other]).mean() for other in fitted if other != user))
        assert sum(gaps) >= 3

    def test_effective_draws(self, model):
        found = model.fold_in(GIVEN).effective_draws
        assert 1.0 <= found <= len(model.posterior_)


@pytest.fixture(scope="module")
def paper(ratings):
    return df.DoubleFeature(preset="paper", seed=1, schedule=SCHEDULE).fit(ratings)


class TestKept:
    """What takes long to prepare is kept in the model folder, and never used for other draws."""

    def test_kept_and_read_again(self, told, tmp_path):
        model, _ = told
        model.save(tmp_path / "model")
        plain = model.fold_in(GIVEN).predict(model.ratings_.items).proba
        path = tmp_path / "model" / FILE
        for _ in range(2):
            again = df.load(tmp_path / "model").fold_in(GIVEN).predict(model.ratings_.items).proba
            assert again.tobytes() == plain.tobytes()
            assert path.is_file()
        kept = path.read_bytes()
        flipped = kept[:-2_000] + bytes([kept[-2_000] ^ 1]) + kept[-1_999:]
        for damaged in (kept[:-9], b"", flipped):
            path.write_bytes(damaged)
            found = df.load(tmp_path / "model").fold_in(GIVEN).predict(model.ratings_.items).proba
            assert found.tobytes() == plain.tobytes()

    def test_tilts_of_other_draws_are_not_used(self, told, ratings, tmp_path):
        model, _ = told
        model.save(tmp_path / "one")
        other = df.DoubleFeature(seed=2, schedule=SCHEDULE).fit(model.ratings_)
        other.save(tmp_path / "two")
        df.load(tmp_path / "one").fold_in(GIVEN)
        (tmp_path / "two" / FILE).write_bytes((tmp_path / "one" / FILE).read_bytes())
        found = df.load(tmp_path / "two").fold_in(GIVEN).predict(ratings.items).proba
        assert found.tobytes() == other.fold_in(GIVEN).predict(ratings.items).proba.tobytes()


class TestPrior:
    """What fold-in takes for the odds of belonging, against a count by hand."""

    @pytest.mark.parametrize("user", [None, "u5"])
    def test_odds(self, paper, user):
        folded = paper.fold_in(GIVEN, user=user)
        code = -1 if user is None else paper.ratings_.user_code(user)
        found = np.exp(paper.fold_base_.user_prior(folded.row).log_odds)
        borders = np.cumsum(paper.posterior_.n_features)[:-1]
        for draw, odds in zip(paper.posterior_, np.split(found, borders), strict=True):
            inside = members(draw.user_words, np.arange(draw.n_features))
            others = inside if user is None else np.delete(inside, code, axis=0)
            owners, size = others.sum(axis=0), others.shape[0]
            assert odds == pytest.approx(owners / (size + 1 - owners))

    def test_a_feature_of_the_user_alone_is_not_kept(self, paper):
        """Its items were chosen by the ratings that are replaced."""
        alone = 0
        for user in paper.ratings_.users:
            code = paper.ratings_.user_code(user)
            folded = paper.fold_in(GIVEN, user=user)
            for draw, own in zip(paper.posterior_, folded.posterior, strict=True):
                inside = members(draw.user_words, np.arange(draw.n_features))
                private = inside[code] & (inside.sum(axis=0) == 1)
                alone += int(private.sum())
                assert not (members(own.user_words, np.arange(draw.n_features))[0] & private).any()
            if alone > 3:
                return
        assert alone > 0


class TestItem:
    def test_ratings_move_offset_and_answer(self, model):
        users = model.ratings_.users
        high, low = (model.fold_in_item(dict.fromkeys(users[:20], level), item="new") for level in (5, 1))
        assert high.predict(users[20:]).mean.mean() > low.predict(users[20:]).mean.mean() + 0.5
        part = high.offset(0.5)
        assert part.lower < part.upper
        assert high.offset().mean > low.offset().mean
        assert high.predict(["u1"]).pairs == [("u1", "new")]
        assert high.predict(["u1", "nobody"]).known.tolist() == [[True, True], [False, True]]

    def test_without_ratings_the_prior_answers(self, model):
        empty = model.fold_in_item({})
        users = model.ratings_.users[:5]
        assert np.array_equal(
            empty.predict(users).proba, model.predict([(user, "no such film") for user in users]).proba
        )
        assert empty.offset().lower <= empty.offset().upper

    def test_a_known_item_again(self, model):
        ratings = model.ratings_
        gaps = []
        for item in ratings.items[:6]:
            raters = {user: ratings.rated_items(user).get(item) for user in ratings.users}
            given = {user: level for user, level in raters.items() if level is not None}
            again = model.fold_in_item(given).predict(ratings.users).mean
            gaps.append(np.abs(again - model.predict([(user, item) for user in ratings.users]).mean).mean())
        assert np.mean(gaps) < 0.35


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "problem", "text"),
        [
            ({"no such film": 5}, InputError, "no such film"),
            ({"film 1": 9}, SettingsError, "9 is none of the levels"),
            ([("film 1", 5)], RatingsError, "mapping"),
            ({"film 1": None}, SettingsError, "None is none"),
        ],
    )
    def test_one_line_each(self, model, given, problem, text):
        with pytest.raises(problem, match=text) as caught:
            model.fold_in(given)
        assert "\n" not in str(caught.value)

    def test_not_fitted(self):
        for ask in (lambda: df.DoubleFeature().fold_in({}), lambda: df.DoubleFeature().fold_in_item({})):
            with pytest.raises(NotFittedError):
                ask()

    def test_counts_and_covariates(self, model):
        with pytest.raises(SettingsError, match="at least 1"):
            model.fold_in({}).next_question(0)
        with pytest.raises(SettingsError, match="no item covariate 'genre'"):
            model.fold_in_item({}, covariates={"genre": "Drama"})


@pytest.fixture(scope="module")
def told(ratings):
    table = {item: {"kind": "a|b" if n % 2 else "b", "year": str(1990 + n)} for n, item in enumerate(ratings.items)}
    more = df.with_covariates(ratings, items=table, item_covariates=["kind", "year"])
    return df.DoubleFeature(seed=1, schedule=SCHEDULE).fit(more, items=table), table


class TestCovariates:
    def test_numbers_are_those_of_known_items(self, told):
        model, table = told
        for code, item in enumerate(model.ratings_.items):
            found = item_covariates(model.ratings_, model.items_, table[item])
            assert found == pytest.approx(model.ratings_.covariates.items[code], abs=1e-6)

    def test_an_item_of_which_only_columns_are_known(self, told):
        model, _ = told
        answer = model.fold_in_item({}, item="new", covariates={"kind": "a|b", "year": 1991})
        assert answer.predict(["u1"]).known.all()
        assert np.isfinite(answer.predict(model.ratings_.users).proba).all()
        with pytest.raises(SettingsError, match="'year' is a number"):
            model.fold_in_item({}, covariates={"year": "old"})
