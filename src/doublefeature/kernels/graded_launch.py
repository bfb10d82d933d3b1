r"""Launch states of graded features: a mode of the feature's weight, its users summed over.

A user belongs with probability γ_u = σ(logit π + D_u), where D_u is what the user's log likelihood gains. Slope and
curvature of Σ_u log(1 − π + π exp D_u) in the effect of an item are

    Σ γ l′    and    Σ γ l″ + γ (1 − γ) l′²,

so a few steps of Newton's method per item, with π and the set of items following, climb to a mode. The normal at
the mode is what whole graded features are proposed from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf, threaded
from doublefeature.kernels.launch import Mask, count_marked, find_start, typical_rate, user_gains
from doublefeature.kernels.likelihood import Likelihood, curve_of, log_at, slopes_at
from doublefeature.kernels.logistic import (
    fill_logits,
    newton_weights,
    prior_of_items,
    prior_of_users,
    row_logit,
    soft_plus,
)
from doublefeature.kernels.scene import PARTS, Scene, Side, own_parts, part_start
from doublefeature.kernels.sharing import add_parts
from doublefeature.model.state import EFFECT_SD, GRADE_SD

FloatArray = NDArray[np.float64]

_ROUNDS = 8
_LONGEST_STEP = 1.0
_SLOPE, _CURVATURE, _GAIN = range(3)


class GradedLaunch(NamedTuple):
    """A rough graded feature, item by item. `found` is False when the start led nowhere."""

    items: Mask
    mean: FloatArray  # (items,) most likely effect
    sd: FloatArray  # (items,) spread around it
    gain: FloatArray  # (items,) log odds of belonging above those of the prior
    n_users: float  # expected number of users
    user_weights: FloatArray  # (1 + traits,) log odds of users, and how traits shift them
    user_factor: FloatArray  # (1 + traits, 1 + traits) Cholesky factor of their precision
    item_weights: FloatArray  # (1 + traits,) the same of items
    item_factor: FloatArray
    found: bool


@leaf
def _soft_sums_rows(
    users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple, part: int
) -> None:
    """Add up slopes, curvatures and gains of every item, in user order."""
    items, shift, grade, log_odds, sums = told
    for user in range(part_start(users, part), part_start(users, part + 1)):
        for j in range(users.ptr[user], users.ptr[user + 1]):
            item = np.uint64(users.other[j])
            curve = curve_of(like, user_scale[user], users.levels[j])
            moved = scores[j] + grade[user] * shift[item]
            change = log_at(like, curve, moved) - log_at(like, curve, scores[j])
            outside = log_odds[user] - change if items[item] != 0 else log_odds[user]
            inside = outside + change
            gamma = 1.0 / (1.0 + math.exp(-inside))
            first, second = slopes_at(like, curve, moved)
            first *= grade[user]
            second *= grade[user] * grade[user]
            sums[part, item, _SLOPE] += gamma * first
            sums[part, item, _CURVATURE] += gamma * (second + (1.0 - gamma) * first * first)
            sums[part, item, _GAIN] += soft_plus(inside) - soft_plus(outside)


@threaded
def _soft_sums_threads(users: Side, user_scale: Mask, like: Likelihood, scores: FloatArray, told: tuple) -> None:
    low, high = own_parts(users)
    for part in prange(low, high):
        _soft_sums_rows(users, user_scale, like, scores, told, part)


@kernel
def soft_sums(scene: Scene, items: Mask, shift: FloatArray, grade: FloatArray, log_odds: FloatArray) -> FloatArray:
    """Return slope, curvature and gain of every item, given users' log odds of belonging to the feature as it is."""
    sums = np.zeros((PARTS, items.size, 3))
    told = (items, shift, grade, log_odds, sums)
    scale = scene.state.user_scale
    if scene.threads > 1:
        _soft_sums_threads(scene.users, scale, scene.like, scene.scores, told)
    else:
        low, high = own_parts(scene.users)
        for part in range(low, high):
            _soft_sums_rows(scene.users, scale, scene.like, scene.scores, told, part)
    add_parts(scene.users, sums)
    return sums[0]


@leaf
def _climb(sums: FloatArray, prior: tuple[float, float], log_odds: FloatArray, launch: GradedLaunch) -> float:
    """Take a step for every item and choose the items anew; return the mean effect of those chosen."""
    centre, sd = prior
    weight = 1.0 / (sd * sd)
    total = 0.0
    count = 0
    for item in range(launch.items.size):
        z = (launch.mean[item] - centre) / sd
        launch.gain[item] = sums[item, _GAIN] + math.log(launch.sd[item] / sd) - 0.5 * z * z
        precision = weight + max(-sums[item, _CURVATURE], 0.0)
        step = (sums[item, _SLOPE] - (launch.mean[item] - centre) * weight) / precision
        launch.mean[item] += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
        launch.sd[item] = 1.0 / math.sqrt(precision)
        launch.items[item] = log_odds[item] + launch.gain[item] > 0.0
        if launch.items[item] != 0:
            total += launch.mean[item]
            count += 1
    return total / count if count > 0 else 0.0


@leaf
def _expect(log_odds: FloatArray, expected: FloatArray) -> float:
    """Fill probabilities from log odds; return their sum."""
    total = 0.0
    for row in range(log_odds.size):
        expected[row] = 1.0 / (1.0 + math.exp(-log_odds[row]))
        total += expected[row]
    return total


@kernel
def graded_launch(scene: Scene, step: int, grade: FloatArray) -> GradedLaunch:
    """Climb from a random start to a rough graded feature; `step` names the random numbers to use.

    `grade` is how strongly each user would hold it.
    """
    state, model = scene.state, scene.model
    n_users, n_items = state.user_words.shape[0], state.item_words.shape[0]
    users = np.zeros(n_users, np.uint8)
    items = np.zeros(n_items, np.uint8)
    rate = typical_rate(state, model)
    sign = find_start(scene, step, users, items, max(1, int(rate * n_items)))
    sd = math.sqrt(state.hyper[EFFECT_SD] ** 2 + state.hyper[GRADE_SD] ** 2)
    user_weights = np.zeros(model.user_traits.shape[1] + 1)
    item_weights = np.zeros(model.item_traits.shape[1] + 1)
    item_weights[0] = math.log(rate) - math.log1p(-rate)
    launch = GradedLaunch(
        items,
        np.full(n_items, 0.5 * sign * sd),
        np.full(n_items, sd),
        np.zeros(n_items),
        0.0,
        user_weights,
        np.zeros((user_weights.size, user_weights.size)),
        item_weights,
        np.zeros((item_weights.size, item_weights.size)),
        False,
    )
    if sign == 0.0:
        return launch
    n_in = float(count_marked(users))
    centre = 0.0
    spread = sd
    expected = np.zeros(n_users)
    expected_items = np.zeros(n_items)
    item_log_odds = np.zeros(n_items)
    user_factor, item_factor = launch.user_factor, launch.item_factor
    user_weights[0] = math.log((n_in + 0.5) / (n_users - n_in + 0.5))
    for _ in range(_ROUNDS):
        log_odds = user_gains(scene, items, launch.mean, grade)
        for user in range(n_users):
            log_odds[user] += row_logit(model.user_traits, user_weights, user)
        n_in = _expect(log_odds, expected)
        if state.user_weights.shape[1] > 0:
            user_factor = newton_weights(model.user_traits, expected, user_weights, prior_of_users(model), 1)
        else:
            user_weights[0] = math.log((n_in + 0.5) / (n_users - n_in + 0.5))
        sums = soft_sums(scene, items, launch.mean, grade, log_odds)
        fill_logits(model.item_traits, item_weights, item_log_odds)
        centre = _climb(sums, (centre, spread), item_log_odds, launch)
        spread = state.hyper[GRADE_SD]
        if state.item_weights.shape[1] > 0:
            _expect(item_log_odds + launch.gain, expected_items)
            item_factor = newton_weights(model.item_traits, expected_items, item_weights, prior_of_items(model), 1)
        if count_marked(items) == 0:
            return launch
    return GradedLaunch(
        items,
        launch.mean,
        launch.sd,
        launch.gain,
        n_in,
        user_weights,
        user_factor,
        item_weights,
        item_factor,
        n_in > 0.5,
    )
