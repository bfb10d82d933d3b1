import numpy as np
import pytest

from tests.correctness.geweke import ENGINES, MUTATIONS, geweke_z, mutant_z


@pytest.mark.parametrize("engine", [e for e in ENGINES if e.cost == 1], ids=lambda engine: engine.name)
def test_sweep_keeps_the_joint_distribution(engine):
    """Two threads and the table cost too much here: draws are compared with those of one thread bit by bit
    (tests/kernels/test_invariance.py), table look-ups with the formula; the full tier runs both."""
    assert np.abs(geweke_z(engine, 30_000, 4_000)).max() < 4


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bugs_are_seen(name):
    assert np.abs(mutant_z(MUTATIONS[name], 40_000, 5_000)).max() > 8
