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
from doublefeature.kernels.likelihood import Likelihood, log_probability
from doublefeature.kernels.memberships import scan_order
from doublefeature.kernels.priors import effect_log_prior
from doublefeature.kernels.scene import (
    ITEM_COMPLEMENT,
    OFFSET_FLIP,
    USER_COMPLEMENT,
    Scene,
    Side,
    chunk_count,
    chunk_start,
    note,
    place_of,
)
from doublefeature.kernels.streams import COMPLEMENTS, OFFSET_FLIPS, ORDER, Stream, new_stream, seek, tick, uniform
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
def offset_shift(items: Side, state: State, like: Likelihood, item: int, slot: int) -> float:
    """Return how far the item's offset falls when the item enters the feature (and rises when it leaves)."""
    length = items.ptr[item + 1] - items.ptr[item]
    members = 0
    for j in range(items.ptr[item], items.ptr[item + 1]):
        members += np.int64(has_bit(state.user_words, np.int64(items.other[j]), slot))
    pull = (like.noise[0] / state.hyper[ITEM_SD]) ** 2
    return effect_on(state, item, slot) * members / (length + pull)


@leaf
def offset_flip_log_ratio(
    items: Side, state: State, model: Model, like: Likelihood, scores: FloatArray, pair: tuple[int, int]
) -> tuple[float, float]:
    """Return the log acceptance ratio of flipping (item, slot) with the offset, and the offset's move."""
    item, slot = pair
    sign = -1.0 if has_bit(state.item_words, item, slot) else 1.0
    move = -sign * offset_shift(items, state, like, item, slot)
    effect = sign * effect_on(state, item, slot)
    here = state.item_offset[item] - model.item_offset_mean[item]
    ratio = (here * here - (here + move) * (here + move)) / (2.0 * state.hyper[ITEM_SD] ** 2)
    rate = state.item_rate[slot]
    ratio += sign * (math.log(rate) - math.log1p(-rate))
    for j in range(items.ptr[item], items.ptr[item + 1]):
        place = place_of(items, j)
        user = np.int64(items.other[j])
        moved = scores[place] + move
        if has_bit(state.user_words, user, slot):
            moved += effect
        scale = state.user_scale[user]
        ratio += log_probability(like, scale, items.levels[place], moved)
        ratio -= log_probability(like, scale, items.levels[place], scores[place])
    return ratio, move


@leaf
def _apply_offset_flip(
    items: Side, state: State, scores: FloatArray, item: int, slot: int, move: float
) -> None:
    sign = -1.0 if has_bit(state.item_words, item, slot) else 1.0
    effect = sign * effect_on(state, item, slot)
    for j in range(items.ptr[item], items.ptr[item + 1]):
        place = place_of(items, j)
        scores[place] += move
        if has_bit(state.user_words, np.int64(items.other[j]), slot):
            scores[place] += effect
    state.item_words[item, slot >> 6] ^= ONE << np.uint64(slot & 63)
    state.item_offset[item] += move


@leaf
def _offset_flip_item(
    items: Side, state: State, model: Model, like: Likelihood, scores: FloatArray, item: int, told: tuple
) -> tuple[int, int]:
    """Try a random share of one item's features; return tries and acceptances."""
    order, share, stream = told
    tried = 0
    accepted = 0
    for slot in order:
        if uniform(stream) >= share:
            continue
        tried += 1
        ratio, move = offset_flip_log_ratio(items, state, model, like, scores, (item, slot))
        if math.log(uniform(stream)) < ratio:
            accepted += 1
            _apply_offset_flip(items, state, scores, item, slot, move)
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
    stream: Stream = new_stream()
    tried = 0
    accepted = 0
    for item in range(chunk_start(items, chunk), chunk_start(items, chunk + 1)):
        seek(stream, key, place, item)
        done = _offset_flip_item(items, state, model, like, scores, item, (order, share, stream))
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
    for chunk in prange(counts.shape[0]):
        done = _offset_flip_chunk(items, state, model, like, scores, told, chunk)
        counts[chunk, 0] = done[0]
        counts[chunk, 1] = done[1]


@kernel
def update_offset_flips(scene: Scene, share: float) -> None:
    """Flip a random share of the item memberships together with the item's offset."""
    told = (scan_order(scene.state.active, scene.key, tick(scene.sweep, ORDER, 3)), share, scene.key, tick(scene.sweep, OFFSET_FLIPS, 0))
    counts = np.zeros((chunk_count(scene.items), 2), np.int64)
    if scene.threads > 1:
        _offset_flip_threads(scene.items, scene.state, scene.model, scene.like, scene.scores, told, counts)
    else:
        for chunk in range(counts.shape[0]):
            done = _offset_flip_chunk(
                scene.items, scene.state, scene.model, scene.like, scene.scores, told, chunk
            )
            counts[chunk, 0] = done[0]
            counts[chunk, 1] = done[1]
    for chunk in range(counts.shape[0]):
        scene.tally[OFFSET_FLIP, 0] += counts[chunk, 0]
        scene.tally[OFFSET_FLIP, 1] += counts[chunk, 1]
