"""Columns of users and items as numbers, and what a model makes of them."""

import numpy as np
import pytest

import doublefeature as df
from doublefeature.config import Schedule
from doublefeature.errors import SettingsError
from doublefeature.model.choices import traits_of

ITEMS = {
    item: {
        "title": f"Film {item} ({1980 + item})",
        "genres": "|".join(["Drama"] * (item % 2) + ["War"] * (item % 3 == 0)) if item != 7 else "NA",
        "code": str(item % 4),
        "odd": "x" if item == 3 else "y",
    }
    for item in range(24)
}


def ratings(n_users: int = 12, n_items: int = 24, seed: int = 0) -> df.Ratings:
    rng = np.random.default_rng(seed)
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    return df.Ratings.from_codes(
        users, items, rng.integers(5, size=users.size), users=range(n_users), items=range(n_items), levels="1..5"
    )


def encoded(*names: str) -> tuple[tuple[str, ...], np.ndarray]:
    found = df.with_covariates(ratings(), items=ITEMS, item_covariates=names).covariates
    assert found.items is not None
    return found.item_names, found.items


def test_numbers_are_standardised():
    names, values = encoded("code")
    assert names == ("code",)
    assert values.mean() == pytest.approx(0.0, abs=1e-8)
    assert values.std() == pytest.approx(1.0, abs=1e-8)


def test_a_year_is_taken_from_titles():
    names, values = encoded("year")
    assert names == ("year",)
    assert (np.diff(values[:, 0]) > 0).all()


def test_categories_between_bars_and_missing_cells():
    names, values = encoded("genres")
    assert names == ("genres: Drama", "genres: War")
    assert (values[7] == 0.0).all()
    dramas = np.array([item % 2 == 1 and item != 7 for item in range(24)])
    assert values[dramas, 0].min() > values[~dramas, 0].max()


def test_a_kind_can_be_asked_for():
    names, _ = encoded("code:category")
    assert names == ("code: 0", "code: 1", "code: 2", "code: 3")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("colour",), "no column 'colour'. It has title, genres, code, odd"),
        (("genres:number",), "which is not a number"),
        (("genres:shape",), "number or category"),
        (("code", "code"), "comes twice"),
    ],
)
def test_wrong_names_say_what_is_wrong(names, message):
    with pytest.raises(SettingsError, match=message):
        encoded(*names)


def test_a_rare_category_is_left_out():
    names, _ = encoded("odd")
    assert names == ("odd: y",)


def test_tables_must_be_given_and_fit():
    with pytest.raises(SettingsError, match="need a table of users"):
        df.with_covariates(ratings(), user_covariates=["age"])
    with pytest.raises(SettingsError, match="Are the ids the same"):
        df.with_covariates(ratings(), users={"nobody": {"age": "3"}}, user_covariates=["age"])


def test_names_as_one_text():
    assert encoded("genres", "year")[0] == (*encoded("genres")[0], "year")
    more = df.with_covariates(ratings(), items=ITEMS, item_covariates="genres, year")
    assert more.covariates.item_names == encoded("genres", "year")[0]
    with pytest.raises(SettingsError, match="name no column"):
        df.with_covariates(ratings(), items=ITEMS, item_covariates=" , ")


def test_items_nobody_rated_are_known_by_their_columns():
    known = ratings(n_items=20)
    more = df.with_covariates(known, items=ITEMS, item_covariates=["year"])
    assert list(more.items) == list(range(24))
    assert more.covariates.items.shape == (24, 1)
    assert np.array_equal(more.triples()[1], known.triples()[1])
    assert np.diff(more.arrays.item_ptr)[20:].tolist() == [0] * 4
    few = df.with_covariates(known, items=ITEMS, item_covariates=["year"], unrated=False)
    assert (few.n_items, more.n_items) == (20, 24)
    assert few.fingerprint != more.fingerprint
    assert df.with_covariates(known, users={0: {"age": "3"}, 99: {"age": "4"}}, user_covariates="age").users[-1] == 99


def test_covariates_change_the_fingerprint_and_follow_the_items_kept():
    plain, more = ratings(), df.with_covariates(ratings(), items=ITEMS, item_covariates=["year"])
    assert plain.fingerprint != more.fingerprint
    few = more.split(0.3, seed=1)[0].top_items(5)
    assert few.covariates.items is not None
    assert few.covariates.items.shape == (5, 1)
    positions = [more.items.index(item) for item in few.items]
    assert np.array_equal(few.covariates.items, more.covariates.items[positions])


def test_a_model_without_the_parts_refuses():
    more = df.with_covariates(ratings(), items=ITEMS, item_covariates=["year"])
    with pytest.raises(SettingsError, match="Use preset full"):
        traits_of(more.arrays, df.preset("paper"), more.covariates)


@pytest.mark.slow
def test_unseen_items_are_predicted_from_their_covariates():
    """Half of the variance of item offsets follows a column; the predictions for unseen items must follow it too."""
    rng = np.random.default_rng(4)
    n_users, n_items = 60, 80
    table = {item: {"heat": str(rng.normal())} for item in range(n_items)}
    heat = np.array([float(table[item]["heat"]) for item in range(n_items)])
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    scores = 2.5 + 0.8 * heat[items] + 0.7 * rng.standard_normal(users.size)
    levels = np.clip(np.ceil(scores), 1, 5).astype(int) - 1
    seen = items < 60
    data = df.Ratings.from_codes(
        users[seen], items[seen], levels[seen], users=range(n_users), items=range(n_items), levels="1..5"
    )
    more = df.with_covariates(data, items=table, item_covariates=["heat"])
    model = df.DoubleFeature(
        preset="full", schedule=Schedule(sweeps=80, warmup=40, thin=2, chains=1, threads=1), seed=1
    )
    mean = model.fit(more).predict([(0, item) for item in range(60, 80)]).mean
    assert np.corrcoef(mean, heat[60:])[0, 1] > 0.9
