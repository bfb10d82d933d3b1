import numba
import numpy as np
import pytest

from tests.correctness.geweke import ENGINES, MUTATIONS, geweke_z, mutant_z


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_sweep_keeps_the_joint_distribution(engine):
    numba.set_num_threads(min(engine.threads, numba.config.NUMBA_NUM_THREADS))
    assert np.abs(geweke_z(engine, 30_000 // engine.cost, 4_000)).max() < 4


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bugs_are_seen(name):
    assert np.abs(mutant_z(MUTATIONS[name], 40_000, 5_000)).max() > 8
