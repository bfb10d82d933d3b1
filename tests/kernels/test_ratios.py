"""Every ratio a kernel uses equals a difference of log densities; wrong formulas are seen to differ."""

from __future__ import annotations

from functools import cache, partial
from math import log

import pytest

from tests.correctness.cases import TABLE
from tests.correctness.conditionals import noise, worst_hyper_z
from tests.correctness.ratios import CHECKS, births, complements, user_flips, worst_error, worst_ratio_error

N_STATES = 100


@cache
def _errors(table: bool) -> dict[str, float]:
    return worst_ratio_error(N_STATES // 4, 2, TABLE) if table else worst_ratio_error(N_STATES, 1)


@pytest.mark.parametrize("name", CHECKS)
def test_ratio_is_a_difference_of_log_densities(name):
    assert _errors(False)[name] < 1e-9


@pytest.mark.parametrize("name", CHECKS)
def test_ratio_holds_with_the_table(name):
    assert _errors(True)[name] < 1e-6


def test_hyperparameters_have_their_conjugate_conditionals():
    assert worst_hyper_z(n_states=12, n_draws=5_000, seed=3) < 5.0


@pytest.mark.parametrize(
    "wrong",
    [
        partial(user_flips, prior=lambda others, n_users: log(others) - log(n_users)),
        partial(user_flips, prior=lambda others, n_users: log(others) - log(n_users + 1 - others)),
        partial(births, among_items=True),
        partial(complements, sign=-1.0),
        partial(noise, jacobian=0.0),
    ],
    ids=["odds m/n", "odds m/(n+1−m)", "births λ/n", "complement's sign", "τ without Jacobian"],
)
def test_wrong_formula_is_rejected(wrong):
    assert worst_error(wrong, 10, seed=4) > 1e-3


def test_wrong_hyperparameter_law_is_rejected():
    assert worst_hyper_z(n_states=4, n_draws=5_000, seed=3, inflate=1.05) > 5.0
