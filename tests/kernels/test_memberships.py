"""Membership scans: what they look up, and the bound that lets them stop early."""

from __future__ import annotations

import numpy as np
import pytest

from doublefeature._jit import kernel
from doublefeature.kernels.bits import count_bits, has_bit, transpose_block
from doublefeature.kernels.memberships import (
    _SLACK,
    _gain_bound,
    flip_log_odds,
    load_row,
    mark_touched,
    new_row,
)
from doublefeature.kernels.scene import Scene, longest_row
from tests.correctness.cases import DIRECT, TABLE, random_case


@kernel
def gains_and_bounds(scene: Scene, of_users: bool, n_slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and bound of every flip, shaped (rows, slots)."""
    side = scene.users if of_users else scene.items
    own = scene.state.user_words if of_users else scene.state.item_words
    others = scene.state.item_words if of_users else scene.state.user_words
    n_rows = side.ptr.size - 1
    gains, bounds = np.zeros((n_rows, n_slots)), np.zeros((n_rows, n_slots))
    local = new_row(longest_row(side, 0, n_rows), others.shape[1])
    for row in range(n_rows):
        load_row(side, scene.state, scene.like, scene.scores, row, local)
        mark_touched(side, others, row, local.touched, local.scratch)
        for slot in range(n_slots):
            sign = -1.0 if has_bit(own, row, slot) else 1.0
            gains[row, slot] = flip_log_odds(side, scene.state, scene.like, row, slot, local)
            bounds[row, slot] = _gain_bound(side, scene.state, row, slot, sign, local)
    return gains, bounds


@kernel
def bits_in(word: np.uint64) -> int:
    return count_bits(word)


def excess(table_from: int, of_users: bool, turn: float = 1.0) -> float:
    """Return by how much any gain exceeds its bound, over random states; `turn` spoils the bound."""
    rng = np.random.default_rng(5)
    worst = -np.inf
    for _ in range(60):
        case = random_case(rng, table_from)
        if case.parameters.n_features:
            gains, bounds = gains_and_bounds(case.scene, of_users, case.parameters.n_features)
            worst = max(worst, float((gains - turn * bounds).max()))
    return worst


@pytest.mark.parametrize("of_users", [True, False])
def test_tangents_bound_every_gain(of_users):
    assert excess(DIRECT, of_users) < 1e-9


@pytest.mark.parametrize("of_users", [True, False])
def test_slack_covers_rounded_tangents(of_users):
    assert excess(TABLE, of_users) < 0.01 * _SLACK


def test_wrong_tangents_are_seen():
    assert excess(DIRECT, True, turn=-1.0) > 1.0


def test_transposed_bits():
    rng = np.random.default_rng(1)
    bits = rng.integers(2, size=(64, 64), dtype=np.uint64)
    weights = np.uint64(1) << np.arange(64, dtype=np.uint64)
    block = (bits * weights).sum(axis=1, dtype=np.uint64)
    transpose_block(block)
    assert (block == (bits.T * weights).sum(axis=1, dtype=np.uint64)).all()


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1, 0x5555555555555555])
def test_counted_bits(word):
    assert bits_in(np.uint64(word)) == word.bit_count()
