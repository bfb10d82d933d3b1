"""A few hundred fuzzed requests; `python -m tests.server` sends ten thousand."""

from __future__ import annotations

from tests.server.fuzz import fuzz


def test_fuzzed_requests_are_answered_as_described(number_folder, tmp_path):
    found = fuzz(number_folder, 10, tmp_path, phases="examples,fuzzing")
    assert found.passed, found.told[-6000:]
    assert found.server_errors == 0
    assert found.requests >= 100
