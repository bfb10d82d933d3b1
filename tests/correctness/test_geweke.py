import numpy as np
import pytest

from tests.correctness.geweke import ENGINES, geweke_z, start_scene
from tests.correctness.planted import MUTATIONS, PLANTED, mutant_z, planted_z


@pytest.mark.parametrize("engine", [e for e in ENGINES if e.quick], ids=lambda engine: engine.name)
def test_sweep_keeps_the_joint_distribution(engine):
    """The full tier (`make proofs`) runs all engines. Two threads and the table are held against one thread and the
    formula bit by bit elsewhere; engines of single parts of the default model are left to it as well."""
    assert np.abs(geweke_z(engine, 8_000, 3_000)).max() < 4


@pytest.mark.parametrize("engine", [e for e in ENGINES if not e.quick], ids=lambda engine: engine.name)
def test_engines_left_to_the_full_tier_can_start(engine):
    assert start_scene(engine, 2).state.active.size > 0


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bugs_are_seen(name):
    assert np.abs(mutant_z(MUTATIONS[name], 20_000, 5_000)).max() > 8


@pytest.mark.parametrize("planted", [one for one in PLANTED if one.quick], ids=lambda planted: planted.name)
def test_bugs_planted_in_parts_of_the_full_model_are_seen(planted):
    assert np.abs(planted_z(planted, 8_000, 1_500)).max() > 8


def test_bugs_are_planted_in_engines_that_exist():
    assert {planted.engine for planted in PLANTED} <= {engine.name for engine in ENGINES}
