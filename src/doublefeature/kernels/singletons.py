r"""Features owned by one user, born and buried with the items integrated out (`renewal.py` renews them from the prior).

Given the rest, the features owned by user u alone are a Poisson process of their own, independent over users,
so users can be treated one by one or at once.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.bits import (
    ONE,
    ZERO,
    close_slot,
    count_members,
    lowest_bit,
    open_slot,
    set_bit,
    with_free_slot,
)
from doublefeature.kernels.likelihood import Likelihood, log_probability
from doublefeature.kernels.priors import (
    draw_rate,
    effect_log_prior,
)
from doublefeature.kernels.scene import (
    COLLAPSED_BIRTH,
    COLLAPSED_DEATH,
    Scene,
    Side,
    chunk_start,
    note,
    own_chunks,
    own_rows,
    with_state,
)
from doublefeature.kernels.scores import add_to_row
from doublefeature.kernels.sharing import share_listed, share_rows
from doublefeature.kernels.streams import (
    COLLAPSED_SINGLETONS,
    COLUMN,
    Stream,
    below,
    new_stream,
    seek,
    tick,
    uniform,
)
from doublefeature.kernels.variates import bernoulli_logit, normalise_logs, pick_by_logs
from doublefeature.model.state import EFFECT_SD, MASS, Model, State

FloatArray = NDArray[np.float64]
SlotArray = NDArray[np.int64]

GRID = 33
"""Cells of the proposal for a new effect."""
_REACH = 4.0
NOTHING, BORN, BIRTH_REFUSED, DEATH_REFUSED = -1, -2, -3, -4


@kernel
def private_words(state: State) -> NDArray[np.uint64]:
    """Return words with a bit for every feature that has exactly one user."""
    counts = count_members(state.user_words)
    words = np.zeros(state.user_words.shape[1], np.uint64)
    for slot in range(counts.size):
        if counts[slot] == 1:
            words[slot >> 6] |= ONE << np.uint64(slot & 63)
    return words


@kernel
def private_slots(state: State, private: NDArray[np.uint64], user: int) -> SlotArray:
    """Return the features owned by this user alone."""
    slots = np.empty(64 * private.size, np.int64)
    count = 0
    for w in range(private.size):
        word = state.user_words[user, w] & private[w]
        while word != ZERO:
            slots[count] = 64 * w + np.int64(lowest_bit(word))
            count += 1
            word &= word - ONE
    return slots[:count]


@leaf
def row_log_likelihood(scene: Scene, user: int) -> float:
    """Return the log likelihood of one user's ratings."""
    total = 0.0
    for j in range(scene.users.ptr[user], scene.users.ptr[user + 1]):
        scale = scene.state.user_scale[user]
        total += log_probability(scene.like, scale, scene.users.levels[j], scene.scores[j])
    return total


@leaf
def collapsed_gain(scene: Scene, user: int, effect: float, rate: float) -> float:
    """Return E(θ) = Σ log[1 − p + p exp(l(η + θ) − l(η))]: what a private feature gains, items integrated out."""
    scale = scene.state.user_scale[user]
    total = 0.0
    product = 1.0
    for j in range(scene.users.ptr[user], scene.users.ptr[user + 1]):
        level = scene.users.levels[j]
        gain = log_probability(scene.like, scale, level, scene.scores[j] + effect)
        gain -= log_probability(scene.like, scale, level, scene.scores[j])
        if gain > 200.0:
            total += gain + math.log(rate) + math.log1p((1.0 - rate) / rate * math.exp(-gain))
            continue
        product *= 1.0 - rate + rate * math.exp(gain)
        if not 1e-200 < product < 1e100:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@kernel
def _candidates(scene: Scene, user: int, rate: float) -> tuple[FloatArray, FloatArray]:
    """Return candidate effects for a private feature and the logarithms of their proposal weights."""
    values = scene.model.effect_values
    if values.size == 0:
        reach = _REACH * scene.state.hyper[EFFECT_SD]
        values = np.empty(GRID)
        for g in range(GRID):
            values[g] = (g + 0.5) * (2.0 * reach / GRID) - reach
    weights = np.empty(values.size)
    for g in range(values.size):
        weights[g] = effect_log_prior(values[g], scene.state, scene.model)
        weights[g] += collapsed_gain(scene, user, values[g], rate)
    normalise_logs(weights)
    return values, weights


@leaf
def _draw_candidate(values: FloatArray, weights: FloatArray, discrete: bool, stream: Stream) -> float:
    """Return an effect from the proposal: one of the values, or uniform in the cell around one."""
    cell = pick_by_logs(stream, weights)
    if discrete:
        return values[cell]
    return values[cell] + (uniform(stream) - 0.5) * (values[1] - values[0])


@leaf
def _candidate_log_density(effect: float, values: FloatArray, weights: FloatArray, discrete: bool) -> float:
    """Return the log density of the proposal at an effect; −∞ off the grid."""
    if discrete:
        for g in range(values.size):
            if values[g] == effect:
                return weights[g]
        return -math.inf
    width = values[1] - values[0]
    place = (effect - values[0]) / width + 0.5
    if not 0.0 <= place < values.size:
        return -math.inf
    return weights[int(place)] - math.log(width)


@leaf
def birth_log_weight(
    scene: Scene, user: int, effect: float, rate: float, candidates: tuple[FloatArray, FloatArray]
) -> float:
    """Return log of intensity × gain over proposal density for a private feature absent from the scores."""
    values, weights = candidates
    proposal = _candidate_log_density(effect, values, weights, scene.model.effect_values.size > 0)
    if proposal == -math.inf:
        return math.inf
    weight = math.log(scene.state.hyper[MASS] / scene.state.user_words.shape[0])
    weight += effect_log_prior(effect, scene.state, scene.model)
    return weight + collapsed_gain(scene, user, effect, rate) - proposal


@kernel
def _decide(scene: Scene, user: int, private: NDArray[np.uint64], stream: Stream) -> tuple[int, float, float]:
    """Try a birth or a death for one user; return (slot to close, −1 or BORN), effect and rate of the born."""
    owned = private_slots(scene.state, private, user)
    if uniform(stream) < 0.5:
        rate = draw_rate(stream, scene.state, scene.model)
        candidates = _candidates(scene, user, rate)
        discrete = scene.model.effect_values.size > 0
        effect = _draw_candidate(candidates[0], candidates[1], discrete, stream)
        weight = birth_log_weight(scene, user, effect, rate, candidates)
        born = math.log(uniform(stream)) < weight - math.log(owned.size + 1.0)
        return (BORN if born else BIRTH_REFUSED), effect, rate
    if owned.size == 0:
        return NOTHING, 0.0, 0.0
    slot = owned[below(stream, owned.size)]
    effect = scene.state.effect[slot]
    rate = scene.state.item_rate[slot]
    add_to_row(scene, user, slot, -1.0)
    weight = birth_log_weight(scene, user, effect, rate, _candidates(scene, user, rate))
    if math.log(uniform(stream)) < math.log(owned.size) - weight:
        return slot, effect, rate
    add_to_row(scene, user, slot, 1.0)
    return DEATH_REFUSED, 0.0, 0.0


@leaf
def _mark_chosen(users: Side, key: np.uint64, place: np.uint64, told: tuple, stream: Stream) -> int:
    """List the users of a chunk who get a try; return how many they are."""
    share, chunk, chosen = told
    count = 0
    for user in range(chunk_start(users, chunk), chunk_start(users, chunk + 1)):
        seek(stream, key, place, user)
        if uniform(stream) < share:
            chosen[count] = user
            count += 1
    return count


@kernel
def _decide_chunk(
    scene: Scene, private: NDArray[np.uint64], share: float, chunk: int, outcome: SlotArray, born: FloatArray
) -> None:
    stream = new_stream()
    place = tick(scene.sweep, COLLAPSED_SINGLETONS, 0)
    chosen = np.empty(chunk_start(scene.users, chunk + 1) - chunk_start(scene.users, chunk), np.int64)
    for user in chosen[: _mark_chosen(scene.users, scene.key, place, (share, chunk, chosen), stream)]:
        seek(stream, scene.key, tick(scene.sweep, COLLAPSED_SINGLETONS, 1), user)
        outcome[user], born[user, 0], born[user, 1] = _decide(scene, user, private, stream)


@threaded
def _decide_threads(
    users: Side,
    state: State,
    model: Model,
    like: Likelihood,
    scores: FloatArray,
    clock: tuple[np.uint64, int, float],
    results: tuple[NDArray[np.uint64], SlotArray, FloatArray],
) -> None:
    key, sweep, share = clock
    private, outcome, born = results
    tally = np.zeros((1, 2), np.int64)
    low, high = own_chunks(users)
    for chunk in prange(low, high):
        scene = Scene(users, users, state, model, like, scores, scores, tally, key, sweep, 1)
        _decide_chunk(scene, private, share, chunk, outcome, born)


@kernel
def update_collapsed_singletons(scene: Scene, share: float) -> State:
    """Try a birth or a death of a private feature for a random share of the users.

    The effect is proposed from its conditional on a grid, with the items integrated out; an accepted birth
    then draws its items given the effect.
    """
    n_users = scene.state.user_words.shape[0]
    private = private_words(scene.state)
    outcome = np.empty(n_users, np.int64)
    outcome[:] = NOTHING
    born = np.zeros((n_users, 2))
    if scene.threads > 1:
        clock = (scene.key, scene.sweep, share)
        results = (private, outcome, born)
        _decide_threads(scene.users, scene.state, scene.model, scene.like, scene.scores, clock, results)
    else:
        low, high = own_chunks(scene.users)
        for chunk in range(low, high):
            _decide_chunk(scene, private, share, chunk, outcome, born)
    share_rows(scene.users, outcome)
    share_rows(scene.users, born)
    columns = _born_columns(scene, np.flatnonzero(outcome == BORN), born)
    n_born = 0
    for user in np.flatnonzero(outcome != NOTHING):
        if outcome[user] == BORN or outcome[user] == BIRTH_REFUSED:
            note(scene.tally, COLLAPSED_BIRTH, outcome[user] == BORN)
        else:
            note(scene.tally, COLLAPSED_DEATH, outcome[user] != DEATH_REFUSED)
        if outcome[user] == BORN:
            scene = with_state(scene, with_free_slot(scene.state))
            _open_with_items(scene, user, born[user, 0], born[user, 1], columns[n_born])
            n_born += 1
        elif outcome[user] >= 0:
            close_slot(scene.state, outcome[user])
    return scene.state


@kernel
def _born_columns(scene: Scene, users: SlotArray, born: FloatArray) -> NDArray[np.uint8]:
    """Return (users, items) the items of the private features born to these users."""
    columns = np.zeros((users.size, scene.state.item_words.shape[0]), np.uint8)
    stream = new_stream()
    low, high = own_rows(scene.users)
    for n in range(users.size):
        if low <= users[n] < high:
            seek(stream, scene.key, tick(scene.sweep, COLUMN, 0), users[n])
            _draw_column(scene, users[n], born[users[n], 0], born[users[n], 1], columns[n], stream)
    share_listed(scene.users, users, columns)
    return columns


@leaf
def _draw_column(
    scene: Scene, user: int, effect: float, rate: float, column: NDArray[np.uint8], stream: Stream
) -> None:
    """Draw the items of a private feature given its effect."""
    log_odds = math.log(rate) - math.log1p(-rate)
    j = scene.users.ptr[user]
    end = scene.users.ptr[user + 1]
    scale = scene.state.user_scale[user]
    for item in range(column.size):
        gain = 0.0
        if j < end and scene.users.other[j] == item:
            level = scene.users.levels[j]
            gain = log_probability(scene.like, scale, level, scene.scores[j] + effect)
            gain -= log_probability(scene.like, scale, level, scene.scores[j])
            j += 1
        column[item] = bernoulli_logit(stream, log_odds + gain)


@leaf
def _open_with_items(scene: Scene, user: int, effect: float, rate: float, column: NDArray[np.uint8]) -> None:
    """Open a private feature with these items."""
    slot = open_slot(scene.state, effect, rate)
    set_bit(scene.state.user_words, user, slot)
    for item in range(column.size):
        if column[item] != 0:
            set_bit(scene.state.item_words, item, slot)
    add_to_row(scene, user, slot, 1.0)
