"""Bit sets: rows of 64-bit words, one bit per slot."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from doublefeature._jit import inlined, kernel, leaf
from doublefeature.model.state import State

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]

ONE = np.uint64(1)
ZERO = np.uint64(0)


@intrinsic
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """Return the position of the lowest set bit of a word that is not zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@intrinsic
def count_bits(typing_context: Any, word: Any) -> Any:
    """Return how many bits of a word are set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@leaf
def has_bit(words: WordArray, row: int, slot: int) -> bool:
    """Whether a row belongs to the feature in a slot."""
    return ((words[row, slot >> 6] >> np.uint64(slot & 63)) & ONE) != ZERO


@leaf
def set_bit(words: WordArray, row: int, slot: int) -> None:
    """Put a row into the feature in a slot."""
    words[row, slot >> 6] |= ONE << np.uint64(slot & 63)


@leaf
def clear_slot(words: WordArray, slot: int) -> None:
    """Take every row out of the feature in a slot."""
    mask = ~(ONE << np.uint64(slot & 63))
    for row in range(words.shape[0]):
        words[row, slot >> 6] &= mask


@inlined
def _swap_halves(block: WordArray, width: int, mask: np.uint64) -> None:
    """Exchange the off-diagonal quarters of every 2·width square along the diagonal."""
    shift = np.uint64(width)
    for base in range(0, 64, 2 * width):
        for row in range(base, base + width):
            upper, lower = block[np.uint64(row)], block[np.uint64(row + width)]
            swap = ((upper >> shift) ^ lower) & mask
            block[np.uint64(row)] = upper ^ (swap << shift)
            block[np.uint64(row + width)] = lower ^ swap


@leaf
def transpose_block(block: WordArray) -> None:
    """Transpose a 64 × 64 bit matrix, one word per row, in place (bit j of row i goes to bit i of row j)."""
    _swap_halves(block, 32, np.uint64(0x00000000FFFFFFFF))
    _swap_halves(block, 16, np.uint64(0x0000FFFF0000FFFF))
    _swap_halves(block, 8, np.uint64(0x00FF00FF00FF00FF))
    _swap_halves(block, 4, np.uint64(0x0F0F0F0F0F0F0F0F))
    _swap_halves(block, 2, np.uint64(0x3333333333333333))
    _swap_halves(block, 1, np.uint64(0x5555555555555555))


@kernel
def count_members(words: WordArray) -> NDArray[np.int64]:
    """Return the number of members of every slot."""
    counts = np.zeros(64 * words.shape[1], np.int64)
    for row in range(words.shape[0]):
        for w in range(words.shape[1]):
            word = words[row, w]
            while word != ZERO:
                counts[64 * w + np.int64(lowest_bit(word))] += 1
                word &= word - ONE
    return counts


@kernel
def members_of(words: WordArray, slot: int) -> NDArray[np.uint8]:
    """Return a byte per row: 1 where the row belongs to the feature in a slot."""
    out = np.empty(words.shape[0], np.uint8)
    for row in range(words.shape[0]):
        out[row] = has_bit(words, row, slot)
    return out


@kernel
def active_slots(active: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the slots that hold a feature."""
    slots = np.empty(active.size, np.int64)
    count = 0
    for slot in range(active.size):
        if active[slot] != 0:
            slots[count] = slot
            count += 1
    return slots[:count]


@kernel
def _wider(words: WordArray) -> WordArray:
    out = np.zeros((words.shape[0], 2 * words.shape[1]), np.uint64)
    for row in range(words.shape[0]):
        for w in range(words.shape[1]):
            out[row, w] = words[row, w]
    return out


@kernel
def _wider_rows(rows: FloatArray) -> FloatArray:
    out = np.zeros((rows.shape[0], 2 * rows.shape[1]))
    for row in range(rows.shape[0]):
        for slot in range(rows.shape[1]):
            out[row, slot] = rows[row, slot]
    return out


@leaf
def _copy_column(rows: FloatArray, source: int, target: int) -> None:
    """Copy a slot's column to another slot; from slot −1 come zeros."""
    for row in range(rows.shape[0]):
        rows[row, target] = rows[row, source] if source >= 0 else 0.0


@leaf
def _copy_row(source: FloatArray, row: int, target: FloatArray, target_row: int) -> None:
    for t in range(source.shape[1]):
        target[target_row, t] = source[row, t]


@leaf
def _clear_row(rows: FloatArray, row: int) -> None:
    for t in range(rows.shape[1]):
        rows[row, t] = 0.0


@kernel
def _grown(state: State) -> State:
    slots = state.active.size
    active = np.zeros(2 * slots, np.uint8)
    effect = np.zeros(2 * slots)
    item_rate = np.zeros(2 * slots)
    item_effect = _wider_rows(state.item_effect)
    user_grade = _wider_rows(state.user_grade)
    user_weights = np.zeros((2 * slots, state.user_weights.shape[1]))
    item_weights = np.zeros((2 * slots, state.item_weights.shape[1]))
    for slot in range(slots):
        active[slot] = state.active[slot]
        effect[slot] = state.effect[slot]
        item_rate[slot] = state.item_rate[slot]
        _copy_row(state.user_weights, slot, user_weights, slot)
        _copy_row(state.item_weights, slot, item_weights, slot)
    return State(
        _wider(state.user_words),
        _wider(state.item_words),
        active,
        effect,
        item_effect,
        user_grade,
        item_rate,
        state.item_offset,
        state.user_offset,
        state.user_scale,
        state.cutpoints,
        user_weights,
        item_weights,
        state.user_offset_weights,
        state.item_offset_weights,
        state.user_factor,
        state.item_factor,
        state.hyper,
    )


@kernel
def with_free_slots(state: State, count: int) -> State:
    """Return a state with at least so many free slots: the same one, or one with more words."""
    free = 0
    for slot in range(state.active.size):
        free += state.active[slot] == 0
    while free < count:
        free += state.active.size
        state = _grown(state)
    return state


@kernel
def with_free_slot(state: State) -> State:
    """Return a state with at least one free slot: the same one, or one with twice the words."""
    return with_free_slots(state, 1)


@leaf
def open_slot(state: State, effect: float, item_rate: float) -> int:
    """Take a free slot for a new feature without members and return it."""
    slot = 0
    while state.active[slot] != 0:
        slot += 1
    state.active[slot] = 1
    state.effect[slot] = effect
    state.item_rate[slot] = item_rate
    return slot


@leaf
def close_slot(state: State, slot: int) -> None:
    """Remove a feature with all its memberships."""
    state.active[slot] = 0
    state.effect[slot] = 0.0
    state.item_rate[slot] = 0.0
    _clear_row(state.user_weights, slot)
    _clear_row(state.item_weights, slot)
    _copy_column(state.item_effect, -1, slot)
    _copy_column(state.user_grade, -1, slot)
    clear_slot(state.user_words, slot)
    clear_slot(state.item_words, slot)


@leaf
def _pack_words(words: WordArray, active: NDArray[np.uint8]) -> None:
    """Move the bits of active slots to slots 0, 1, … in every row, in order."""
    for row in range(words.shape[0]):
        target = 0
        for slot in range(active.size):
            if active[slot] == 0:
                continue
            bit = (words[row, slot >> 6] >> np.uint64(slot & 63)) & ONE
            words[row, slot >> 6] &= ~(ONE << np.uint64(slot & 63))
            words[row, target >> 6] |= bit << np.uint64(target & 63)
            target += 1


@leaf
def pack_slots(state: State) -> None:
    """Close gaps between features, keeping their order, so that a state has one form only."""
    count = 0
    gaps = False
    for slot in range(state.active.size):
        if state.active[slot] != 0:
            gaps = gaps or slot != count
            count += 1
    if not gaps:
        return
    _pack_words(state.user_words, state.active)
    _pack_words(state.item_words, state.active)
    target = 0
    for slot in range(state.active.size):
        if state.active[slot] != 0:
            state.effect[target] = state.effect[slot]
            state.item_rate[target] = state.item_rate[slot]
            _copy_row(state.user_weights, slot, state.user_weights, target)
            _copy_row(state.item_weights, slot, state.item_weights, target)
            _copy_column(state.item_effect, slot, target)
            _copy_column(state.user_grade, slot, target)
            target += 1
    for slot in range(state.active.size):
        state.active[slot] = slot < count
        if slot >= count:
            state.effect[slot] = 0.0
            state.item_rate[slot] = 0.0
            _clear_row(state.user_weights, slot)
            _clear_row(state.item_weights, slot)
            _copy_column(state.item_effect, -1, slot)
            _copy_column(state.user_grade, -1, slot)


@leaf
def effect_on(state: State, item: int, slot: int) -> float:
    """Return what a feature adds to the score of a pair inside it: its own effect, or the item's."""
    if state.item_effect.shape[0] == 0:
        return state.effect[slot]
    return state.item_effect[item, slot]


@leaf
def grade_on(state: State, user: int, slot: int) -> float:
    """Return how strongly a user holds a feature: 1 unless users have grades of their own."""
    if state.user_grade.shape[0] == 0:
        return 1.0
    return state.user_grade[user, slot]
