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

from doublefeature._jit import inlined, kernel, leaf, threaded
from doublefeature.kernels.likelihood import Likelihood, curve_of, log_at, slopes, slopes_at
from doublefeature.kernels.scene import (
    PARTS,
    Scene,
    Side,
    longest_row,
    own_parts,
    own_rows,
    part_start,
    rating_count,
    row_of_rating,
)
from doublefeature.kernels.sharing import add_parts, share_rows
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
_SLOPES = 3


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


@inlined
def _list_marked(users: Side, user: int, items: Mask, listed: NDArray[np.uint32]) -> np.uint64:
    """List a user's ratings of marked items, without a branch to mispredict; return how many they are."""
    count = np.uint64(0)
    for j in range(users.ptr[user], users.ptr[user + 1]):
        listed[count] = j
        count += np.uint64(items[np.uint64(users.other[j])])
    return count


@leaf
def _user_gains_rows(
    users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple, listed: NDArray[np.uint32]
) -> None:
    low, high, items, shift, grade, out = told
    for user in range(low, high):
        total = 0.0
        for n in range(_list_marked(users, user, items, listed)):
            j = listed[n]
            curve = curve_of(like, user_scale[user], users.levels[j])
            moved = scores[j] + grade[user] * shift[np.uint64(users.other[j])]
            total += log_at(like, curve, moved) - log_at(like, curve, scores[j])
        out[user] = total


@kernel
def _user_gains_part(
    users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple, part: int
) -> None:
    items, shift, grade, out = told
    low, high = part_start(users, part), part_start(users, part + 1)
    listed = np.empty(longest_row(users, low, high) + 1, np.uint32)
    _user_gains_rows(users, user_scale, like, scores, (low, high, items, shift, grade, out), listed)


@threaded
def _user_gains_threads(users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple) -> None:
    low, high = own_parts(users)
    for part in prange(low, high):
        _user_gains_part(users, user_scale, like, scores, told, part)


@kernel
def user_gains(scene: Scene, items: Mask, shift: FloatArray, grade: FloatArray) -> FloatArray:
    """Return, per user, what the log likelihood gains when they join a feature with these items and effects.

    `grade` is how strongly they would hold it.
    """
    out = np.zeros(scene.state.user_words.shape[0])
    told = (items, shift, grade, out)
    scale = scene.state.user_scale
    if scene.threads > 1:
        _user_gains_threads(scene.users, scale, scene.like, scene.scores, told)
    else:
        low, high = own_parts(scene.users)
        for part in range(low, high):
            _user_gains_part(scene.users, scale, scene.like, scene.scores, told, part)
    share_rows(scene.users, out)
    return out


@leaf
def _item_sums_rows(
    users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple, listed: NDArray[np.uint32]
) -> None:
    low, high, marked, items, shift, sums = told
    with_slopes = sums.shape[1] == _SLOPES
    for user in range(low, high):
        if marked[user] == 0:
            continue
        for n in range(_list_marked(users, user, items, listed)):
            j = listed[n]
            item = np.uint64(users.other[j])
            curve = curve_of(like, user_scale[user], users.levels[j])
            moved = scores[j] + shift[item]
            if with_slopes:
                first, second = slopes_at(like, curve, moved)
                sums[item, 0] += first
                sums[item, 1] += second
                sums[item, 2] += first * first
            else:
                sums[item, 0] += log_at(like, curve, moved) - log_at(like, curve, scores[j])


@kernel
def _item_sums_part(
    users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple, part: int
) -> None:
    marked, items, shift, sums = told
    low, high = part_start(users, part), part_start(users, part + 1)
    listed = np.empty(longest_row(users, low, high) + 1, np.uint32)
    _item_sums_rows(users, user_scale, like, scores, (low, high, marked, items, shift, sums[part]), listed)


@threaded
def _item_sums_threads(users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple) -> None:
    low, high = own_parts(users)
    for part in prange(low, high):
        _item_sums_part(users, user_scale, like, scores, told, part)


@kernel
def _item_sums(scene: Scene, users: Mask, items: Mask, shift: FloatArray, columns: int) -> FloatArray:
    """Return sums per marked item over marked users, gathered in user order: one of gains, or three of slopes."""
    sums = np.zeros((PARTS, items.size, columns))
    told = (users, items, shift, sums)
    scale = scene.state.user_scale
    if scene.threads > 1:
        _item_sums_threads(scene.users, scale, scene.like, scene.scores, told)
    else:
        low, high = own_parts(scene.users)
        for part in range(low, high):
            _item_sums_part(scene.users, scale, scene.like, scene.scores, told, part)
    add_parts(scene.users, sums)
    return sums[0]


@kernel
def item_gains(scene: Scene, users: Mask, shift: FloatArray) -> FloatArray:
    """Return, per item, what the log likelihood gains when it joins a feature with these users and its effect."""
    every = np.ones(scene.state.item_words.shape[0], np.uint8)
    return _item_sums(scene, users, every, shift, 1)[:, 0]


@kernel
def item_slopes(scene: Scene, users: Mask, items: Mask, shift: FloatArray) -> FloatArray:
    """Return, for the marked items, sums of first, second and squared first derivatives over the marked users."""
    return _item_sums(scene, users, items, shift, _SLOPES)


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
        sums = item_slopes(scene, users, items, np.full(items.size, effect))
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
def _find_rating(users: Side, user: int, item: int) -> int:
    """Return where a user's rating of an item stands, or −1: a user's items are in ascending order."""
    low, high = users.ptr[user], users.ptr[user + 1]
    while low < high:
        middle = (low + high) // 2
        if users.other[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low if low < users.ptr[user + 1] and users.other[low] == item else -1


@leaf
def _mark_misjudged(scene: Scene, item: int, sign: float, marked: Mask) -> None:
    """Mark the raters of an item whose score should move in this direction."""
    users = scene.users
    low, high = own_rows(users)
    for user in range(low, high):
        j = _find_rating(users, user, item)
        if j >= 0:
            first, _ = slopes(scene.like, scene.state.user_scale[user], users.levels[j], scene.scores[j])
            marked[user] = first * sign > 0.0


@kernel
def find_start(scene: Scene, step: int, users: Mask, items: Mask, n_wanted: int) -> float:
    """Mark raters of the item of a random rating misjudged one way and the items they agree on; return the direction.

    Returns 0 when nobody is marked.
    """
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, FEATURE_MOVES, step), 1)
    n_ratings = rating_count(scene.items)
    seed_item = row_of_rating(scene.items, below(stream, n_ratings)) if n_ratings > 0 else 0
    sign = 1.0 if uniform(stream) < 0.5 else -1.0
    _mark_misjudged(scene, seed_item, sign, users)
    share_rows(scene.users, users)
    if count_marked(users) == 0:
        return 0.0
    items[:] = 1
    sums = item_slopes(scene, users, items, np.zeros(items.size))
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
    rate = typical_rate(state, scene.model)
    log_odds = math.log(rate) - math.log1p(-rate)
    effect = find_start(scene, step, users, items, max(1, int(rate * n_items)))
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
        gains = user_gains(scene, items, np.full(n_items, effect), np.ones(n_users))
        seek(stream, scene.key, tick(scene.sweep, LAUNCH_USERS, step + r), 0)
        n_in = _redraw(users, gains, user_log_odds, stream)
        gains = item_gains(scene, users, np.full(n_items, effect))
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
def typical_rate(state: State, model: Model) -> float:
    """Return the item rate to expect of a new feature."""
    if model.rate_by_feature:
        return model.rate_in / (model.rate_in + model.rate_out)
    return state.hyper[RATE]
