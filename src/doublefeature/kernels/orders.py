"""Random orders: of features in a scan, and of rows, which make the Indian buffet process one of independent rows.

Rows are put in a random order. The first member of a feature and the rows before it are left alone; given the feature's
rate, the rows after it are independent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel
from doublefeature.kernels.bits import (
    ONE,
    ZERO,
    active_slots,
    count_members,
    lowest_bit,
)
from doublefeature.kernels.priors import clip_rate
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.streams import (
    USER_RATES,
    new_stream,
    random_bits,
    seek,
    shuffle,
    tick,
)
from doublefeature.kernels.variates import beta_logit

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
SlotArray = NDArray[np.int64]


@kernel
def scan_order(active: NDArray[np.uint8], key: np.uint64, place: np.uint64) -> SlotArray:
    """Return the features in a fresh, uniformly random order."""
    order = active_slots(active)
    stream = new_stream()
    seek(stream, key, place, 0)
    shuffle(stream, order)
    return order


@kernel
def random_keys(n_rows: int, key: np.uint64, place: np.uint64) -> WordArray:
    """Return a random key per row: their order is a uniformly random order of the rows."""
    keys = np.empty(n_rows, np.uint64)
    stream = new_stream()
    for row in range(n_rows):
        seek(stream, key, place, row)
        keys[row] = random_bits(stream)
    return keys


@kernel
def first_keys(words: WordArray, keys: WordArray) -> WordArray:
    """Return the smallest key among the members of every feature."""
    first = np.empty(64 * words.shape[1], np.uint64)
    first[:] = ~ZERO
    for row in range(words.shape[0]):
        for w in range(words.shape[1]):
            word = words[row, w]
            while word != ZERO:
                slot = 64 * w + np.int64(lowest_bit(word))
                first[slot] = min(first[slot], keys[row])
                word &= word - ONE
    return first


class ItemPrior(NamedTuple):
    """What a scan over items is told of their prior."""

    log_odds: FloatArray  # (slots,)
    keys: WordArray  # (items,) an item may change feature k only if its key
    first: WordArray  # (slots,) is above this


@kernel
def item_prior(scene: Scene) -> ItemPrior:
    """Return items' prior log odds. Of the buffet process: given rates drawn now, as for users, and a random order."""
    state = scene.state
    n_items = state.item_words.shape[0]
    if scene.model.item_buffet:
        counts = count_members(state.item_words)
        stream = new_stream()
        seek(stream, scene.key, tick(scene.sweep, USER_RATES, 2), 0)
        for slot in active_slots(state.active):
            logit = beta_logit(stream, float(counts[slot]), float(n_items - counts[slot] + 1))
            state.item_rate[slot] = clip_rate(1.0 / (1.0 + math.exp(-logit)))
    log_odds = np.zeros(state.active.size)
    for slot in active_slots(state.active):
        log_odds[slot] = math.log(state.item_rate[slot]) - math.log1p(-state.item_rate[slot])
    if scene.model.item_buffet:
        keys = random_keys(n_items, scene.key, tick(scene.sweep, USER_RATES, 3))
        return ItemPrior(log_odds, keys, first_keys(state.item_words, keys))
    return ItemPrior(log_odds, np.ones(n_items, np.uint64), np.zeros(state.active.size, np.uint64))
