"""Priors of a new feature: its effect, its item rate, its set of items."""

from __future__ import annotations

import math

from doublefeature._jit import leaf
from doublefeature.kernels.streams import Stream, below
from doublefeature.kernels.variates import beta_logit, normal
from doublefeature.model.state import EFFECT_SD, RATE, USER_GRADE_SD, Model, State

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
def clip_rate(rate: float) -> float:
    """Keep a rate strictly between 0 and 1."""
    return min(max(rate, 1e-300), 1.0 - 1e-16)


@leaf
def item_set_log_prior(size: int, n_items: int, state: State, model: Model) -> float:
    """Return the log prior of one set of so many items, with a feature's own rate integrated out."""
    if model.rate_by_feature:
        inside = model.rate_in + size
        outside = model.rate_out + n_items - size
        return log_beta(inside, outside) - log_beta(model.rate_in, model.rate_out)
    rate = state.hyper[RATE]
    return size * math.log(rate) + (n_items - size) * math.log1p(-rate)
