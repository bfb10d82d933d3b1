r"""Moves that trade between features and offsets, which the likelihood cannot tell apart.

*Complement*: members and non-members of a feature change places, its effect changes sign, and the offsets on the
other side take up the difference; no score changes. *Offset flip*: an item enters or leaves a feature while its
offset moves against it, so that its mean score stays about where it is.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import ONE, count_members, effect_on, has_bit
from doublefeature.kernels.likelihood import Likelihood, log_at
from doublefeature.kernels.memberships import Row, load_row, new_row
from doublefeature.kernels.orders import scan_order
from doublefeature.kernels.priors import effect_log_prior
from doublefeature.kernels.scene import (
    ITEM_COMPLEMENT,
    OFFSET_FLIP,
    USER_COMPLEMENT,
    Scene,
    Side,
    chunk_count,
    chunk_start,
    longest_row,
    note,
    own_chunks,
    place_of,
    scores_of,
)
from doublefeature.kernels.sharing import share_chunks, share_rows
from doublefeature.kernels.streams import COMPLEMENTS, OFFSET_FLIPS, ORDER, new_stream, seek, tick, uniform
from doublefeature.model.state import ITEM_SD, USER_SD, Model, State

FloatArray = NDArray[np.float64]


@leaf
def _offsets_log_ratio(
    words: NDArray[np.uint64], slot: int, shift: float, offset: FloatArray, mean: FloatArray, sd: float
) -> float:
    """Return the change of the log prior of offsets when those of a feature's rows move by `shift`."""
    total = 0.0
    for row in range(offset.size):
        if has_bit(words, row, slot):
            here = offset[row] - mean[row]
            total += here * here - (here + shift) * (here + shift)
    return total / (2.0 * sd * sd)


@leaf
def user_complement_log_ratio(scene: Scene, slot: int, n_members: int) -> float:
    """Return the log acceptance ratio of the users' complement of a feature."""
    state = scene.state
    n_users = state.user_words.shape[0]
    if n_members == n_users:
        return -math.inf
    effect = state.effect[slot]
    ratio = math.log(n_members) - math.log(n_users - n_members)
    ratio += effect_log_prior(-effect, state, scene.model) - effect_log_prior(effect, state, scene.model)
    return ratio + _offsets_log_ratio(
        state.item_words, slot, effect, state.item_offset, scene.model.item_offset_mean, state.hyper[ITEM_SD]
    )


@leaf
def item_complement_log_ratio(scene: Scene, slot: int, n_members: int) -> float:
    """Return the log acceptance ratio of the items' complement of a feature."""
    state = scene.state
    n_items = state.item_words.shape[0]
    effect = state.effect[slot]
    if scene.model.item_buffet:
        if n_members == n_items:
            return -math.inf
        ratio = math.log(n_members) - math.log(n_items - n_members)
    else:
        rate = state.item_rate[slot]
        ratio = (n_items - 2 * n_members) * (math.log(rate) - math.log1p(-rate))
    ratio += effect_log_prior(-effect, state, scene.model) - effect_log_prior(effect, state, scene.model)
    return ratio + _offsets_log_ratio(
        state.user_words, slot, effect, state.user_offset, scene.model.user_offset_mean, state.hyper[USER_SD]
    )


@leaf
def complement(
    own: NDArray[np.uint64], others: NDArray[np.uint64], state: State, slot: int, other_offset: FloatArray
) -> None:
    """Swap members and non-members on one side and let the other side's offsets take up the effect."""
    for row in range(own.shape[0]):
        own[row, slot >> 6] ^= ONE << np.uint64(slot & 63)
    for row in range(others.shape[0]):
        if has_bit(others, row, slot):
            other_offset[row] += state.effect[slot]
    state.effect[slot] = -state.effect[slot]


@kernel
def update_complements(scene: Scene) -> None:
    """Try the complement of every feature, on each side whose other side has offsets."""
    state = scene.state
    user_counts = count_members(state.user_words)
    item_counts = count_members(state.item_words)
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, COMPLEMENTS, 0), 0)
    for slot in scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 2)):
        if scene.model.item_offsets:
            ratio = user_complement_log_ratio(scene, slot, user_counts[slot])
            accepted = math.log(uniform(stream)) < ratio
            note(scene.tally, USER_COMPLEMENT, accepted)
            if accepted:
                complement(state.user_words, state.item_words, state, slot, state.item_offset)
        if scene.model.user_offsets:
            ratio = item_complement_log_ratio(scene, slot, item_counts[slot])
            accepted = math.log(uniform(stream)) < ratio
            note(scene.tally, ITEM_COMPLEMENT, accepted)
            if accepted:
                complement(state.item_words, state.user_words, state, slot, state.user_offset)


@leaf
def offset_flip(
    items: Side, state: State, model: Model, like: Likelihood, item: int, slot: int, local: Row
) -> tuple[float, float, float]:
    """Judge a flip of (item, slot) that moves the item's offset against it; `local` holds the item's row.

    Returns the log acceptance ratio, the offset's move and the effect the scores of members would gain. The
    move depends on neither the membership nor the offset, so the flip is its own reverse.
    """
    first = items.ptr[item]
    length = items.ptr[item + 1] - first
    inside = 0
    for j in range(length):
        inside += np.int64(has_bit(state.user_words, np.int64(items.other[first + j]), slot))
    sign = -1.0 if has_bit(state.item_words, item, slot) else 1.0
    effect = sign * effect_on(state, item, slot)
    sd = state.hyper[ITEM_SD]
    move = -effect * inside / (length + (like.noise[0] / sd) ** 2)
    here = state.item_offset[item] - model.item_offset_mean[item]
    ratio = (here * here - (here + move) * (here + move)) / (2.0 * sd * sd)
    ratio += sign * (math.log(state.item_rate[slot]) - math.log1p(-state.item_rate[slot]))
    for j in range(length):
        moved = local.score[j] + move
        if has_bit(state.user_words, np.int64(items.other[first + j]), slot):
            moved += effect
        local.proposed[j] = log_at(like, local.curve[j], moved)
        ratio += local.proposed[j] - local.value[j]
    return ratio, move, effect


@leaf
def _apply_offset_flip(
    items: Side, state: State, item: int, slot: int, local: Row, changes: tuple[float, float]
) -> None:
    move, effect = changes
    first = items.ptr[item]
    for j in range(items.ptr[item + 1] - first):
        local.score[j] += move
        if has_bit(state.user_words, np.int64(items.other[first + j]), slot):
            local.score[j] += effect
        local.value[j] = local.proposed[j]
    state.item_words[item, slot >> 6] ^= ONE << np.uint64(slot & 63)
    state.item_offset[item] += move


@leaf
def _offset_flip_item(
    items: Side, state: State, model: Model, like: Likelihood, scores: FloatArray, item: int, told: tuple
) -> tuple[int, int]:
    """Try a random share of one item's features; return tries and acceptances."""
    order, share, local = told
    tried = 0
    accepted = 0
    for slot in order:
        if uniform(local.stream) >= share:
            continue
        if tried == 0:
            load_row(items, state, like, scores, item, local)
        tried += 1
        ratio, move, effect = offset_flip(items, state, model, like, item, slot, local)
        if math.log(uniform(local.stream)) < ratio:
            accepted += 1
            _apply_offset_flip(items, state, item, slot, local, (move, effect))
    if accepted > 0:
        for j in range(items.ptr[item], items.ptr[item + 1]):
            scores[place_of(items, j)] = local.score[j - items.ptr[item]]
    return tried, accepted


@kernel
def _offset_flip_chunk(
    items: Side,
    state: State,
    model: Model,
    like: Likelihood,
    scores: FloatArray,
    told: tuple,
    chunk: int,
) -> tuple[int, int]:
    order, share, key, place = told
    low, high = chunk_start(items, chunk), chunk_start(items, chunk + 1)
    local = new_row(longest_row(items, low, high), state.user_words.shape[1])
    tried = 0
    accepted = 0
    for item in range(low, high):
        seek(local.stream, key, place, item)
        done = _offset_flip_item(items, state, model, like, scores, item, (order, share, local))
        tried += done[0]
        accepted += done[1]
    return tried, accepted


@threaded
def _offset_flip_threads(
    items: Side,
    state: State,
    model: Model,
    like: Likelihood,
    scores: FloatArray,
    told: tuple,
    counts: NDArray[np.int64],
) -> None:
    low, high = own_chunks(items)
    for chunk in prange(low, high):
        done = _offset_flip_chunk(items, state, model, like, scores, told, chunk)
        counts[chunk, 0] = done[0]
        counts[chunk, 1] = done[1]


@kernel
def update_offset_flips(scene: Scene, share: float) -> None:
    """Flip a random share of the item memberships together with the item's offset."""
    told = (
        scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 3)),
        share,
        scene.key,
        tick(scene.sweep, OFFSET_FLIPS, 0),
    )
    items, state = scene.items, scene.state
    scores = scores_of(scene, items)
    counts = np.zeros((chunk_count(items), 2), np.int64)
    if scene.threads > 1:
        _offset_flip_threads(items, state, scene.model, scene.like, scores, told, counts)
    else:
        low, high = own_chunks(items)
        for chunk in range(low, high):
            done = _offset_flip_chunk(items, state, scene.model, scene.like, scores, told, chunk)
            counts[chunk, 0] = done[0]
            counts[chunk, 1] = done[1]
    share_rows(items, state.item_words)
    share_rows(items, state.item_offset)
    share_chunks(items, counts)
    for chunk in range(counts.shape[0]):
        scene.tally[OFFSET_FLIP, 0] += counts[chunk, 0]
        scene.tally[OFFSET_FLIP, 1] += counts[chunk, 1]
