"""Priors of a new feature: its effect, its item rate, its set of items."""

from __future__ import annotations

import math

from doublefeature._jit import leaf
from doublefeature.kernels.bits import has_bit, set_bit
from doublefeature.kernels.streams import Stream, below, uniform
from doublefeature.kernels.variates import beta_logit, normal
from doublefeature.model.state import EFFECT_SD, GRADE_SD, RATE, USER_GRADE_SD, Model, State

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@leaf
def normal_log_density(x: float, mean: float, sd: float) -> float:
    """Return the log density of a normal distribution."""
    z = (x - mean) / sd
    return -0.5 * z * z - math.log(sd) - _LOG_SQRT_2PI


@leaf
def log_beta(a: float, b: float) -> float:
    """Return the logarithm of the beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@leaf
def draw_effect(stream: Stream, state: State, model: Model) -> float:
    """Return an effect from its prior."""
    if model.effect_values.size > 0:
        return model.effect_values[below(stream, model.effect_values.size)]
    return state.hyper[EFFECT_SD] * normal(stream)


@leaf
def draw_grade(state: State, stream: Stream) -> float:
    """Return from its prior how strongly a user holds a feature."""
    return 1.0 + state.hyper[USER_GRADE_SD] * normal(stream)


@leaf
def effect_log_prior(effect: float, state: State, model: Model) -> float:
    """Return the log prior of an effect (−∞ for one that is not among the allowed values)."""
    if model.effect_values.size > 0:
        for value in model.effect_values:
            if value == effect:
                return -math.log(model.effect_values.size)
        return -math.inf
    return normal_log_density(effect, 0.0, state.hyper[EFFECT_SD])


@leaf
def draw_rate(stream: Stream, state: State, model: Model) -> float:
    """Return the item rate of a new feature: the common one, or its own from the Beta prior."""
    if not model.rate_by_feature:
        return state.hyper[RATE]
    return clip_rate(1.0 / (1.0 + math.exp(-beta_logit(stream, model.rate_in, model.rate_out))))


@leaf
def draw_items(stream: Stream, state: State, model: Model, rate: float, slot: int) -> None:
    """Fill the items of a new feature from their prior: each with the rate, or a set of the buffet process."""
    n_items = state.item_words.shape[0]
    left = n_items
    if model.item_buffet:
        left = 1
        mass = uniform(stream) * harmonic(n_items) - 1.0
        while mass > 0.0 and left < n_items:
            left += 1
            mass -= 1.0 / left
    for item in range(n_items):
        chance = left / (n_items - item) if model.item_buffet else rate
        if uniform(stream) < chance:
            set_bit(state.item_words, item, slot)
            left -= 1


@leaf
def draw_item_effects(stream: Stream, state: State, slot: int) -> None:
    """Fill the effects of a new graded feature's items from their prior."""
    for item in range(state.item_effect.shape[0]):
        if has_bit(state.item_words, item, slot):
            state.item_effect[item, slot] = state.effect[slot] + state.hyper[GRADE_SD] * normal(stream)


@leaf
def harmonic(n: int) -> float:
    """Return 1 + 1/2 + … + 1/n."""
    total = 0.0
    for j in range(1, n + 1):
        total += 1.0 / j
    return total


@leaf
def clip_rate(rate: float) -> float:
    """Keep a rate strictly between 0 and 1."""
    return min(max(rate, 1e-300), 1.0 - 1e-16)


@leaf
def item_set_log_prior(size: int, n_items: int, state: State, model: Model) -> float:
    """Return the log prior of one set of so many items, with a feature's own rate integrated out."""
    if model.item_buffet:
        if size == 0:
            return -math.inf
        total = math.lgamma(size) + math.lgamma(n_items - size + 1.0) - math.lgamma(n_items + 1.0)
        return total - math.log(harmonic(n_items))
    if model.rate_by_feature:
        inside = model.rate_in + size
        outside = model.rate_out + n_items - size
        return log_beta(inside, outside) - log_beta(model.rate_in, model.rate_out)
    rate = state.hyper[RATE]
    return size * math.log(rate) + (n_items - size) * math.log1p(-rate)
