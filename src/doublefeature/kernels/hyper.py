"""Hyperparameters, all conjugate: mass λ, item rates p, standard deviations of effects and offsets."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.bits import active_slots, count_members, has_bit
from doublefeature.kernels.priors import clip_rate, harmonic
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.streams import HYPER, Stream, new_stream, seek, tick
from doublefeature.kernels.variates import beta_logit, gamma, log_gamma_draw
from doublefeature.model.state import (
    EFFECT_SD,
    GRADE_SD,
    ITEM_SD,
    MASS,
    RATE,
    REMAINDER_SD,
    USER_GRADE_SD,
    USER_SD,
    State,
)

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
SlotArray = NDArray[np.int64]


@leaf
def _draw_sd(stream: Stream, shape: float, rate: float, squares: tuple[float, int]) -> float:
    """Return a standard deviation whose square is inverse gamma, given a sum of squared deviations."""
    total, count = squares
    return math.exp(0.5 * (math.log(rate + 0.5 * total) - log_gamma_draw(stream, shape + 0.5 * count)))


@leaf
def _squares(values: FloatArray, mean: FloatArray) -> tuple[float, int]:
    total = 0.0
    for j in range(values.size):
        total += (values[j] - mean[j]) ** 2
    return total, values.size


@leaf
def _squares_inside(words: WordArray, values: FloatArray, centre: FloatArray, slots: SlotArray) -> tuple[float, int]:
    """Return the sum of squared distances of memberships' values from their features' centres, and how many."""
    total = 0.0
    count = 0
    for row in range(values.shape[0]):
        for slot in slots:
            if has_bit(words, row, slot):
                total += (values[row, slot] - centre[slot]) ** 2
                count += 1
    return total, count


@leaf
def _factor_squares(state: State) -> tuple[float, int]:
    """Return the sum of squares of the remainder's factors, and how many they are."""
    total = 0.0
    for factors in (state.user_factor, state.item_factor):
        for row in range(factors.shape[0]):
            for d in range(factors.shape[1]):
                total += factors[row, d] ** 2
    return total, state.user_factor.size + state.item_factor.size


@leaf
def _draw_rate(stream: Stream, inside: float, outside: float) -> float:
    return clip_rate(1.0 / (1.0 + math.exp(-beta_logit(stream, inside, outside))))


@kernel
def _update_rates(scene: Scene, slots: SlotArray, stream: Stream) -> None:
    """Draw the common item rate, or every feature's own."""
    state = scene.state
    model = scene.model
    n_items = state.item_words.shape[0]
    counts = count_members(state.item_words)
    if model.rate_by_feature or model.item_buffet:
        first, second = (0.0, 1.0) if model.item_buffet else (model.rate_in, model.rate_out)
        for slot in slots:
            state.item_rate[slot] = _draw_rate(stream, first + counts[slot], second + n_items - counts[slot])
    else:
        inside = 0.0
        for slot in slots:
            inside += counts[slot]
        outside = model.rate_out + n_items * slots.size - inside
        state.hyper[RATE] = _draw_rate(stream, model.rate_in + inside, outside)
        for slot in slots:
            state.item_rate[slot] = state.hyper[RATE]


@kernel
def update_hyper(scene: Scene) -> None:
    """Draw every hyperparameter the model learns."""
    state = scene.state
    model = scene.model
    slots = active_slots(state.active)
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, HYPER, 0), 0)
    if model.learn_mass:
        rate = model.mass_rate + harmonic(state.user_words.shape[0])
        state.hyper[MASS] = gamma(stream, model.mass_shape + slots.size, rate)
    if model.learn_rate or model.rate_by_feature or model.item_buffet:
        _update_rates(scene, slots, stream)
    if model.learn_effect_sd:
        total = 0.0
        for slot in slots:
            total += state.effect[slot] ** 2
        squares = (total, slots.size)
        state.hyper[EFFECT_SD] = _draw_sd(stream, model.sd_shape, model.effect_sd_rate, squares)
    if model.learn_item_sd:
        squares = _squares(state.item_offset, model.item_offset_mean)
        state.hyper[ITEM_SD] = _draw_sd(stream, model.sd_shape, model.item_sd_rate, squares)
    if model.learn_user_sd:
        squares = _squares(state.user_offset, model.user_offset_mean)
        state.hyper[USER_SD] = _draw_sd(stream, model.sd_shape, model.user_sd_rate, squares)
    if model.learn_user_grade_sd:
        squares = _squares_inside(state.user_words, state.user_grade, np.ones(state.active.size), slots)
        state.hyper[USER_GRADE_SD] = _draw_sd(stream, model.sd_shape, model.user_grade_sd_rate, squares)
    if model.learn_remainder_sd:
        squares = _factor_squares(state)
        state.hyper[REMAINDER_SD] = _draw_sd(stream, model.sd_shape, model.remainder_sd_rate, squares)
    if model.learn_grade_sd:
        squares = _squares_inside(state.item_words, state.item_effect, state.effect, slots)
        state.hyper[GRADE_SD] = _draw_sd(stream, model.sd_shape, model.grade_sd_rate, squares)
