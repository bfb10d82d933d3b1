"""The cached scores: built from the bits, changed by whole features, summed into a log likelihood."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import ONE, ZERO, effect_on, grade_on, has_bit, lowest_bit
from doublefeature.kernels.likelihood import (
    Likelihood,
    log_probability,
    pays_once,
    refresh,
    refresh_border,
    refresh_direct,
)
from doublefeature.kernels.scene import (
    Scene,
    Side,
    chunk_count,
    chunk_start,
    is_apart,
    longest_row,
    own_chunks,
    rating_count,
    scores_of,
)
from doublefeature.kernels.sharing import share_chunks
from doublefeature.model.state import Model, State

FloatArray = NDArray[np.float64]
Stages = tuple[bool, bool, bool]
"""Whether effects are filled in afresh, offsets added, the remainder added."""
Range = tuple[int, int]


@leaf
def shared_effects(state: State, user: int, item: int) -> float:
    """Return the sum of the effects of the features a pair shares."""
    total = 0.0
    for w in range(state.user_words.shape[1]):
        shared = state.user_words[user, w] & state.item_words[item, w]
        while shared != np.uint64(0):
            slot = 64 * w + np.int64(lowest_bit(shared))
            total += effect_on(state, item, slot) * grade_on(state, user, slot)
            shared &= shared - np.uint64(1)
    return total


@leaf
def remainder_of(state: State, user: int, item: int) -> float:
    """Return u · v of a pair: 0 without a remainder."""
    total = 0.0
    for d in range(state.user_factor.shape[1]):
        total += state.user_factor[user, d] * state.item_factor[item, d]
    return total


@leaf
def score_of(state: State, model: Model, user: int, item: int) -> float:
    """Return the score of a pair from scratch: shared effects, base and offsets, remainder, added in this order."""
    offsets = model.base + state.item_offset[item] + state.user_offset[user]
    return shared_effects(state, user, item) + offsets + remainder_of(state, user, item)


@leaf
def _fill_effects(side: Side, state: State, row: int, scores: FloatArray, words: NDArray[np.uint64]) -> None:
    """Fill the shared effects of a row's ratings, feature by feature: the sums of `shared_effects`, many at a time."""
    own = state.user_words if side.of_users else state.item_words
    others = state.item_words if side.of_users else state.user_words
    first = np.uint64(side.ptr[row])
    length = side.ptr[row + 1] - side.ptr[row]
    for j in range(length):
        scores[first + np.uint64(j)] = 0.0
    for w in range(own.shape[1]):
        word = own[row, w]
        if word == ZERO:
            continue
        for j in range(length):
            words[np.uint64(j)] = others[np.uint64(side.other[first + np.uint64(j)]), w]
        while word != ZERO:
            bit: np.uint64 = lowest_bit(word)
            effect = state.effect[np.uint64(64 * w) + bit]
            for j in range(length):
                inside = (words[np.uint64(j)] >> bit) & ONE
                scores[first + np.uint64(j)] += effect if inside != ZERO else 0.0
            word &= word - ONE


@leaf
def _rebuild_rows(
    side: Side, state: State, model: Model, scores: FloatArray, told: tuple, words: NDArray[np.uint64]
) -> None:
    low, high, with_effects, with_offsets, with_remainder = told
    graded = state.item_effect.shape[0] > 0
    with_remainder = with_remainder and state.user_factor.shape[1] > 0
    for row in range(low, high):
        if with_effects and not graded:
            _fill_effects(side, state, row, scores, words)
        for j in range(side.ptr[row], side.ptr[row + 1]):
            other = np.int64(side.other[j])
            user, item = (row, other) if side.of_users else (other, row)
            if with_effects and graded:
                scores[j] = shared_effects(state, user, item)
            if with_offsets:
                scores[j] += model.base + state.item_offset[item] + state.user_offset[user]
            if with_remainder:
                scores[j] += remainder_of(state, user, item)


@kernel
def _rebuild_chunk(side: Side, state: State, model: Model, scores: FloatArray, stages: Stages, chunk: int) -> None:
    low, high = chunk_start(side, chunk), chunk_start(side, chunk + 1)
    words = np.empty(longest_row(side, low, high), np.uint64)
    _rebuild_rows(side, state, model, scores, (low, high, stages[0], stages[1], stages[2]), words)


@threaded
def _rebuild_threads(side: Side, state: State, model: Model, scores: FloatArray, stages: Stages) -> None:
    low, high = own_chunks(side)
    for chunk in prange(low, high):
        _rebuild_chunk(side, state, model, scores, stages, chunk)


@kernel
def _rebuild(scene: Scene, side: Side, stages: Stages) -> None:
    scores = scores_of(scene, side)
    if scene.threads > 1:
        _rebuild_threads(side, scene.state, scene.model, scores, stages)
    else:
        low, high = own_chunks(side)
        for chunk in range(low, high):
            _rebuild_chunk(side, scene.state, scene.model, scores, stages, chunk)


@kernel
def rebuild_scores(scene: Scene) -> None:
    """Fill the scores of all ratings from the state, as users' blocks see them."""
    _rebuild(scene, scene.users, (True, True, True))


@kernel
def rebuild_item_scores(scene: Scene) -> None:
    """Fill the scores of all ratings from the state, as items' blocks see them.

    Blocks change scores step by step, which leaves dust in the last bits. Scores are rebuilt wherever the order of a
    sweep goes from one side to the other, so that neither sees the other's dust, whether they share an array or not.
    """
    _rebuild(scene, scene.items if is_apart(scene.items) else scene.users, (True, True, True))


@kernel
def rebuild_all_scores(scene: Scene) -> None:
    """Fill the scores of all ratings from the state, on both sides."""
    rebuild_scores(scene)
    if is_apart(scene.items):
        rebuild_item_scores(scene)


@kernel
def rebuild_but_remainder(scene: Scene) -> None:
    """Fill users' scores from features and offsets only."""
    _rebuild(scene, scene.users, (True, True, False))


@kernel
def rebuild_effects(scene: Scene) -> None:
    """First part of `rebuild_but_remainder`: leave the shared effects alone in the scores."""
    _rebuild(scene, scene.users, (True, False, False))


@kernel
def add_offsets(scene: Scene) -> None:
    """Second part of `rebuild_but_remainder`: add base and offsets to the shared effects."""
    _rebuild(scene, scene.users, (False, True, False))


@leaf
def _sum_chunk(
    users: Side, user_scale: NDArray[np.uint8], like: Likelihood, scores: FloatArray, levels: Range, chunk: int
) -> float:
    total = 0.0
    for user in range(chunk_start(users, chunk), chunk_start(users, chunk + 1)):
        scale = user_scale[user]
        for j in range(users.ptr[user], users.ptr[user + 1]):
            if levels[0] <= users.levels[j] < levels[1]:
                total += log_probability(like, scale, users.levels[j], scores[j])
    return total


@threaded
def _sum_threads(
    users: Side,
    user_scale: NDArray[np.uint8],
    like: Likelihood,
    scores: FloatArray,
    levels: Range,
    parts: FloatArray,
) -> None:
    low, high = own_chunks(users)
    for chunk in prange(low, high):
        parts[chunk] = _sum_chunk(users, user_scale, like, scores, levels, chunk)


@kernel
def _log_likelihood_of(
    users: Side, state: State, like: Likelihood, scores: FloatArray, levels: Range, threads: int
) -> float:
    """Return the log likelihood of the ratings of some levels, from the first up to before the second."""
    parts = np.zeros(chunk_count(users))
    if threads > 1:
        _sum_threads(users, state.user_scale, like, scores, levels, parts)
    else:
        low, high = own_chunks(users)
        for chunk in range(low, high):
            parts[chunk] = _sum_chunk(users, state.user_scale, like, scores, levels, chunk)
    share_chunks(users, parts)
    total = 0.0
    for part in parts:
        total += part
    return total


@kernel
def log_likelihood(users: Side, state: State, like: Likelihood, scores: FloatArray, threads: int) -> float:
    """Return the log likelihood of all ratings, summed in an order that does not depend on threads and workers."""
    return _log_likelihood_of(users, state, like, scores, (0, state.cutpoints.size), threads)


@kernel
def try_noise(scene: Scene) -> float:
    """Return the log likelihood at a noise scale that is only tried; `refresh` has to follow the last try."""
    if pays_once(scene.like, rating_count(scene.users)):
        refresh(scene.like, scene.state, scene.model)
    else:
        refresh_direct(scene.like, scene.state, scene.model)
    return log_likelihood(scene.users, scene.state, scene.like, scene.scores, scene.threads)


@kernel
def try_cutpoint(scene: Scene, place: int) -> float:
    """Return what depends on one cutpoint of the log likelihood: the ratings of the two levels it lies between.

    `refresh` has to follow the last try.
    """
    with_table = pays_once(scene.like, rating_count(scene.users))
    refresh_border(scene.like, scene.state, scene.model, place, with_table)
    levels = (place - 1, place + 1)
    return _log_likelihood_of(scene.users, scene.state, scene.like, scene.scores, levels, scene.threads)


@leaf
def add_to_row(scene: Scene, user: int, slot: int, sign: float) -> None:
    """Add a feature's effect to one user's scores (sign 1), or take it away (sign −1)."""
    step = sign * grade_on(scene.state, user, slot)
    for j in range(scene.users.ptr[user], scene.users.ptr[user + 1]):
        item = np.int64(scene.users.other[j])
        if has_bit(scene.state.item_words, item, slot):
            scene.scores[j] += step * effect_on(scene.state, item, slot)


@leaf
def add_feature(scene: Scene, slot: int, sign: float) -> None:
    """Add a feature's effect to the scores of all its pairs (sign 1), or take it away (sign −1)."""
    for user in range(scene.state.user_words.shape[0]):
        if has_bit(scene.state.user_words, user, slot):
            add_to_row(scene, user, slot, sign)
