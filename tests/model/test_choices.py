"""Components of who rated what."""

import numpy as np
import pytest

from doublefeature.config import preset
from doublefeature.model.choices import choice_components, choices_in, traits_of
from doublefeature.ratings import Ratings


def two_camps(n_users: int = 40, n_items: int = 30) -> Ratings:
    """Ratings where each half of the users rates its own half of the items, and one user and one item have none."""
    rng = np.random.default_rng(1)
    own = (np.arange(n_users)[:, None] % 2) == (np.arange(n_items) % 2)
    rated = rng.random((n_users, n_items)) < np.where(own, 0.7, 0.1)
    rated[5], rated[:, 7] = False, False
    users, items = np.nonzero(rated)
    levels = rng.integers(5, size=users.size)
    return Ratings.from_codes(users, items, levels, users=range(n_users), items=range(n_items), levels="1..5")


def test_the_first_component_tells_the_camps_apart() -> None:
    of_users, of_items = choice_components(choices_in(two_camps().arrays), 3)
    assert of_users.shape == (40, 4)
    assert of_items.shape == (30, 4)
    for components, unrated in ((of_users, 5), (of_items, 7)):
        rows = np.delete(np.arange(components.shape[0]), unrated)
        camp = np.where(rows % 2, 1.0, -1.0)
        assert abs(np.corrcoef(components[rows, 0], camp)[0, 1]) > 0.9
        assert np.allclose(components[rows].mean(axis=0), 0.0, atol=1e-5)
        assert np.allclose(components[rows].std(axis=0), 1.0, atol=1e-5)


def test_those_without_ratings_are_like_those_who_are_rated_about() -> None:
    arrays = two_camps().arrays
    of_users, of_items = choice_components(choices_in(arrays), 3)
    by_user = [of_users[user] for user in arrays.user_codes.tolist()]
    by_item = [of_items[item] for item in arrays.item_codes.tolist()]
    assert of_users[5] == pytest.approx(np.mean(by_user, axis=0), abs=2e-6)
    assert of_items[7] == pytest.approx(np.mean(by_item, axis=0), abs=2e-6)


def test_what_chance_may_have_made_does_not_count() -> None:
    camps = choices_in(two_camps().arrays)
    kept = choice_components(camps, 6, least=1.1)
    for components, same in zip(kept, choice_components(camps, 6), strict=True):
        assert np.array_equal(components[:, [0, 6]], same[:, [0, 6]])
        assert not components[:, 1:6].any()
    rng = np.random.default_rng(2)
    users, items = np.nonzero(rng.random((300, 40)) < 0.9)
    everything = Ratings.from_codes(users, items, users % 5, users=range(300), items=range(40), levels="1..5")
    for components in choice_components(choices_in(everything.arrays), 6, least=1.1):
        assert not components[:, :6].any()
        assert components[:, 6].any()


def test_levels_play_no_part() -> None:
    one = two_camps()
    users, items, levels = one.triples()
    other = Ratings.from_codes(users, items, 4 - levels, users=range(40), items=range(30), levels="1..5")
    for a, b in zip(
        choice_components(choices_in(one.arrays), 2), choice_components(choices_in(other.arrays), 2), strict=True
    ):
        assert np.array_equal(a, b)


def test_more_components_than_the_data_have() -> None:
    few = Ratings.from_codes(
        np.array([0, 1]), np.array([0, 0]), np.array([1, 2]), users=range(2), items=range(1), levels="1..5"
    )
    of_users, of_items = choice_components(choices_in(few.arrays), 8)
    assert of_users.shape == (2, 9)
    assert of_items.shape == (1, 9)
    assert np.isfinite(of_users).all()
    assert not of_items.any()


def test_presets() -> None:
    arrays = two_camps().arrays
    assert traits_of(arrays, preset("paper")).users.shape == (40, 0)
    assert traits_of(arrays, preset("full")).items.shape == (30, preset("full").choices + 1)
