import time

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from doublefeature.errors import SettingsError
from doublefeature.posterior.assignment import assign


def is_optimal(cost, columns):
    rows = np.arange(cost.shape[0])
    best = cost[linear_sum_assignment(cost)].sum()
    return len(set(columns)) == rows.size and np.isclose(cost[rows, columns].sum(), best, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (5, 9), (1, 30), (40, 41), (60, 60)])
def test_is_as_cheap_as_scipy(shape, rng):
    for _ in range(20):
        cost = rng.normal(size=shape)
        assert is_optimal(cost, assign(cost))


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: np.zeros((8, 8)),
        lambda rng: np.full((6, 11), -3.5),
        lambda rng: rng.integers(0, 2, (20, 20)).astype(float),
        lambda rng: rng.integers(-1, 2, (15, 25)).astype(float),
        lambda rng: np.outer(rng.integers(0, 4, 12), rng.integers(0, 4, 12)).astype(float),
        lambda rng: np.minimum(rng.normal(size=(30, 40)), 0.0),
        lambda rng: rng.normal(size=(20, 20)) * 10.0 ** rng.integers(-6, 7, (20, 20)),
    ],
)
def test_ties_and_uneven_sizes(make, rng):
    for _ in range(20):
        cost = make(rng)
        assert is_optimal(cost, assign(cost))


def test_integers_and_other_memory_orders_are_taken(rng):
    cost = rng.integers(0, 9, (7, 5)).T
    assert is_optimal(cost, assign(cost))


def test_check_sees_a_greedy_rule(rng):
    cost = np.array([[1.0, 2.0], [1.1, 9.0]])
    assert not is_optimal(cost, np.array([0, 1]))
    assert assign(cost).tolist() == [1, 0]


def test_no_rows():
    assert assign(np.zeros((0, 4))).size == 0
    assert assign(np.zeros((0, 0))).size == 0


@pytest.mark.parametrize("cost", [np.zeros((3, 2)), np.zeros(4), np.array([[np.nan]]), np.array([[1.0, np.inf]])])
def test_refuses(cost):
    with pytest.raises(SettingsError, match="cost matrix"):
        assign(cost)


def test_fifty_features_take_well_under_five_milliseconds(rng):
    cost = rng.random((50, 50))
    assign(cost)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        assign(cost)
        times.append(time.perf_counter() - start)
    assert min(times) < 2e-3
