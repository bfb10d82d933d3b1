"""Switches of the full model are recovered from simulated ratings; a wrong truth is not."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from doublefeature.config import Schedule
from doublefeature.model.parameters import Parameters
from tests.correctness.switches import BY_NAME, SWITCHES, Trial, gain, run

SCHEDULE = Schedule(sweeps=300, warmup=150, thin=3, chains=2, threads=1)
QUICK = ("free cutpoints", "user columns", "user scales")


@cache
def trial(name: str) -> Trial:
    return run(BY_NAME[name], 1, SCHEDULE)


def misses(name: str, spoil: Callable[[Parameters], Parameters] = lambda truth: truth) -> list[str]:
    """Names of the figures that do not hold, against the truth or a spoilt one."""
    found = trial(name)
    figures = BY_NAME[name].measure(found._replace(truth=spoil(found.truth)))
    return [name for name, figure in figures.items() if not figure.holds]


def test_names_are_unlike() -> None:
    assert len(BY_NAME) == len(SWITCHES)


@pytest.mark.parametrize("name", QUICK)
def test_a_switch_is_recovered(name: str) -> None:
    assert misses(name) == []


def test_scales_of_other_users_are_seen() -> None:
    """The planted bug: every scale is there, but belongs to another user."""

    def permuted(truth: Parameters) -> Parameters:
        return replace(truth, user_scale=np.random.default_rng(0).permutation(truth.user_scale))

    found = misses("user scales", permuted)
    assert len(found) == 3
    assert all(figure.startswith("log τ_u") for figure in found)


def test_a_slope_of_the_wrong_sign_is_seen() -> None:
    """The planted bug: users' columns shift their offsets the other way."""

    def flipped(truth: Parameters) -> Parameters:
        return replace(truth, user_offset_weights=-truth.user_offset_weights)

    assert misses("user columns", flipped) == ["slopes z"]


def test_cutpoints_counted_from_the_other_end_are_seen() -> None:
    """The planted bug: the scale of levels is upside down."""

    def reversed_scale(truth: Parameters) -> Parameters:
        return replace(truth, cutpoints=5.0 - truth.cutpoints[::-1])

    assert misses("free cutpoints", reversed_scale) == ["cutpoints z"]


def test_a_gain_of_the_wrong_model_is_seen() -> None:
    """The planted bug: the fits with the switch and without it are mistaken for each other."""
    found = trial("user scales")
    (figure,) = gain(found._replace(on=found.off, off=found.on)).values()
    assert figure.value < -2.0
    assert not figure.holds
