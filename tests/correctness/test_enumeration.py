import numpy as np
import pytest

from tests.correctness.enumeration import SETS, enumeration_z
from tests.correctness.wrong import CONTROL_NAME, SUBTLE, WRONG, wrong_z

QUICK = 200_000
SLOW_TO_SHOW = "only last singleton dropped"


@pytest.mark.parametrize("name", SETS)
def test_matches_the_exact_posterior(name):
    assert np.abs(enumeration_z(name, QUICK // 2)).max() < 4


@pytest.mark.parametrize("name", [name for name in WRONG if name not in (SUBTLE, SLOW_TO_SHOW)])
def test_wrong_samplers_are_rejected(name):
    """At fewer sweeps a z is smaller than the full tier's, which also rejects the defects that take long to show."""
    assert np.abs(wrong_z(name, QUICK)).max() > 4.5


def test_a_random_scan_order_passes_where_age_order_fails():
    assert np.abs(wrong_z(CONTROL_NAME, QUICK // 2)).max() < 4
