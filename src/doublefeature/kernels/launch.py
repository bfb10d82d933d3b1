r"""Launch states: a rough whole feature found from the scores alone, to propose a real one around.

Nothing here needs a density: a launch may look at the data and at the scores without the feature in any way it
likes, because births draw one and deaths draw a fresh one from the same law. A launch starts from the raters of
a random item whom the model misjudges in the same direction, takes the items on which they agree, and refines
effect, users and items in turn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.likelihood import Likelihood, log_probability, slopes
from doublefeature.kernels.scene import Scene, Side, chunk_count, chunk_start, place_of
from doublefeature.kernels.streams import (
    FEATURE_MOVES,
    LAUNCH_ITEMS,
    LAUNCH_USERS,
    Stream,
    below,
    new_stream,
    seek,
    tick,
    uniform,
)
from doublefeature.kernels.variates import bernoulli_logit
from doublefeature.model.state import EFFECT_SD, RATE, Model, State

FloatArray = NDArray[np.float64]
Mask = NDArray[np.uint8]

ROUNDS = 2
STEPS = 8
"""Steps of the random stream one launch may use."""
_NEWTON_STEPS = 2
_LONGEST_STEP = 2.0


class Launch(NamedTuple):
    """A rough feature. `found` is False when the start led nowhere."""

    users: Mask
    items: Mask
    effect: float  # most likely effect given users and items
    effect_sd: float  # spread around it
    item_log_odds: float  # prior log odds of an item
    found: bool


@leaf
def count_marked(mask: Mask) -> int:
    """Return how many rows are marked."""
    count = 0
    for row in range(mask.size):
        if mask[row] != 0:
            count += 1
    return count


@leaf
def _gain_chunk(
    side: Side,
    user_scale: Mask,
    like: Likelihood,
    scores: FloatArray,
    others: Mask,
    effect: float,
    chunk: int,
    out: FloatArray,
) -> None:
    for row in range(chunk_start(side, chunk), chunk_start(side, chunk + 1)):
        total = 0.0
        for j in range(side.ptr[row], side.ptr[row + 1]):
            other = np.uint64(side.other[j])
            if others[other] == 0:
                continue
            place = np.uint64(place_of(side, j))
            scale = user_scale[row] if side.of_users else user_scale[other]
            level = side.levels[place]
            total += log_probability(like, scale, level, scores[place] + effect)
            total -= log_probability(like, scale, level, scores[place])
        out[row] = total


@threaded
def _gain_threads(
    side: Side,
    user_scale: Mask,
    like: Likelihood,
    scores: FloatArray,
    others: Mask,
    effect: float,
    out: FloatArray,
) -> None:
    for chunk in prange(chunk_count(side)):
        _gain_chunk(side, user_scale, like, scores, others, effect, chunk, out)


@kernel
def row_gains(scene: Scene, side: Side, others: Mask, effect: float) -> FloatArray:
    """Return, per row, what its log likelihood gains when it joins a feature with these others and effect."""
    out = np.zeros(side.ptr.size - 1)
    scale = scene.state.user_scale
    if scene.threads > 1:
        _gain_threads(side, scale, scene.like, scene.scores, others, effect, out)
    else:
        for chunk in range(chunk_count(side)):
            _gain_chunk(side, scale, scene.like, scene.scores, others, effect, chunk, out)
    return out


@leaf
def _slope_chunk(
    side: Side,
    user_scale: Mask,
    like: Likelihood,
    scores: FloatArray,
    masks: tuple[Mask, Mask],
    effect: float,
    chunk: int,
    out: FloatArray,
) -> None:
    rows, others = masks
    for row in range(chunk_start(side, chunk), chunk_start(side, chunk + 1)):
        if rows[row] == 0:
            continue
        for j in range(side.ptr[row], side.ptr[row + 1]):
            other = np.uint64(side.other[j])
            if others[other] == 0:
                continue
            place = np.uint64(place_of(side, j))
            scale = user_scale[row] if side.of_users else user_scale[other]
            first, second = slopes(like, scale, side.levels[place], scores[place] + effect)
            out[row, 0] += first
            out[row, 1] += second
            out[row, 2] += first * first


@threaded
def _slope_threads(
    side: Side,
    user_scale: Mask,
    like: Likelihood,
    scores: FloatArray,
    masks: tuple[Mask, Mask],
    effect: float,
    out: FloatArray,
) -> None:
    for chunk in prange(chunk_count(side)):
        _slope_chunk(side, user_scale, like, scores, masks, effect, chunk, out)


@kernel
def item_slopes(scene: Scene, items: Mask, users: Mask, effect: float) -> FloatArray:
    """Return, for the marked items, sums of first, second and squared first derivatives over the marked users."""
    side = scene.items
    out = np.zeros((side.ptr.size - 1, 3))
    scale = scene.state.user_scale
    if scene.threads > 1:
        _slope_threads(side, scale, scene.like, scene.scores, (items, users), effect, out)
    else:
        for chunk in range(chunk_count(side)):
            _slope_chunk(side, scale, scene.like, scene.scores, (items, users), effect, chunk, out)
    return out


@leaf
def newton_step(effect: float, slope: float, curvature: float, sd: float) -> tuple[float, float]:
    """Return the next effect towards the posterior mode, and the spread the curvature suggests."""
    precision = 1.0 / (sd * sd) + max(-curvature, 0.0)
    step = (slope - effect / (sd * sd)) / precision
    return effect + min(max(step, -_LONGEST_STEP), _LONGEST_STEP), 1.0 / math.sqrt(precision)


@kernel
def _refine_effect(scene: Scene, users: Mask, items: Mask, effect: float, steps: int) -> tuple[float, float]:
    sd = scene.state.hyper[EFFECT_SD]
    spread = sd
    for _ in range(steps):
        sums = item_slopes(scene, items, users, effect)
        slope = 0.0
        curvature = 0.0
        for item in range(items.size):
            slope += sums[item, 0]
            curvature += sums[item, 1]
        effect, spread = newton_step(effect, slope, curvature, sd)
    return effect, spread


@leaf
def _redraw(mask: Mask, gains: FloatArray, log_odds: float, stream: Stream) -> int:
    """Draw memberships given gains and prior log odds; return how many belong."""
    count = 0
    for row in range(mask.size):
        mask[row] = bernoulli_logit(stream, log_odds + gains[row])
        count += np.int64(mask[row])
    return count


@leaf
def _mark_misjudged(scene: Scene, item: int, sign: float, users: Mask) -> int:
    """Mark the raters of an item whose score should move in this direction; return how many they are."""
    items = scene.items
    count = 0
    for j in range(items.ptr[item], items.ptr[item + 1]):
        place = place_of(items, j)
        user = np.int64(items.other[j])
        first, _ = slopes(scene.like, scene.state.user_scale[user], items.levels[place], scene.scores[place])
        users[user] = first * sign > 0.0
        count += np.int64(users[user])
    return count


@kernel
def _start(scene: Scene, step: int, users: Mask, items: Mask, n_wanted: int) -> float:
    """Mark raters of a random item misjudged one way and the items they agree on; return the direction.

    Returns 0 when nobody is marked.
    """
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, FEATURE_MOVES, step), 1)
    seed_item = below(stream, items.size)
    sign = 1.0 if uniform(stream) < 0.5 else -1.0
    if _mark_misjudged(scene, seed_item, sign, users) == 0:
        return 0.0
    items[:] = 1
    sums = item_slopes(scene, items, users, 0.0)
    for item in range(items.size):
        sums[item, 1] = sign * sums[item, 0] / math.sqrt(sums[item, 2] + 1e-12)
    bar = max(_bar_for(sums[:, 1], n_wanted), 0.5)
    for item in range(items.size):
        items[item] = sums[item, 1] >= bar
    items[seed_item] = 1
    return sign


@leaf
def _bar_for(values: FloatArray, wanted: int) -> float:
    """Return a bar that about `wanted` of the values reach, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        count = 0
        for value in values:
            count += value >= middle
        if count > wanted:
            low = middle
        else:
            high = middle
    return high


@kernel
def launch(scene: Scene, step: int) -> Launch:
    """Find a rough feature in the scores; `step` names the random numbers to use."""
    state = scene.state
    n_users = state.user_words.shape[0]
    n_items = state.item_words.shape[0]
    users = np.zeros(n_users, np.uint8)
    items = np.zeros(n_items, np.uint8)
    rate = _typical_rate(state, scene.model)
    log_odds = math.log(rate) - math.log1p(-rate)
    effect = _start(scene, step, users, items, max(1, int(rate * n_items)))
    found = effect != 0.0
    effect *= 0.5 * state.hyper[EFFECT_SD]
    n_in = 1
    n_items_in = 1
    stream = new_stream()
    for r in range(ROUNDS):
        if not found:
            break
        effect, _ = _refine_effect(scene, users, items, effect, _NEWTON_STEPS if r == 0 else 1)
        n_in = count_marked(users)
        user_log_odds = math.log((n_in + 0.5) / (n_users - n_in + 0.5))
        gains = row_gains(scene, scene.users, items, effect)
        seek(stream, scene.key, tick(scene.sweep, LAUNCH_USERS, step + r), 0)
        n_in = _redraw(users, gains, user_log_odds, stream)
        gains = row_gains(scene, scene.items, users, effect)
        seek(stream, scene.key, tick(scene.sweep, LAUNCH_ITEMS, step + r), 0)
        n_items_in = _redraw(items, gains, log_odds, stream)
        found = n_in > 0 and n_items_in > 0
    if not found:
        return Launch(users, items, 0.0, 1.0, log_odds, False)
    if scene.model.rate_by_feature:
        total = scene.model.rate_in + scene.model.rate_out + n_items
        rate = (scene.model.rate_in + n_items_in) / total
        log_odds = math.log(rate) - math.log1p(-rate)
    effect, spread = _refine_effect(scene, users, items, effect, _NEWTON_STEPS)
    return Launch(users, items, effect, spread, log_odds, True)


@leaf
def _typical_rate(state: State, model: Model) -> float:
    if model.rate_by_feature:
        return model.rate_in / (model.rate_in + model.rate_out)
    return state.hyper[RATE]
