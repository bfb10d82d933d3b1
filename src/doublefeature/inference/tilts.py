r"""How traits shift memberships and offsets in a stored draw: drawn afresh, since draws do not keep the weights.

Given who belongs to a feature, its weights (a, d) depend on nothing else in the state, and given the offsets so do
theirs. Drawing them from these conditionals is therefore one more Gibbs step on the stored draw, not an estimate that
other parts of it could contradict. The conditional of (a, d) is taken as the normal at its mode: with log odds
$\psi_e = a + z_e d$ of row e, precision $\sum_e p_e (1 - p_e) \tilde z_e \tilde z_e' + P$ where P is the prior's.
That of offsets' weights is exactly normal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.model.state import ITEM_LOGIT_SD, ITEM_SD, USER_SD, Model, members
from doublefeature.posterior.draws import Draw

FloatArray = NDArray[np.float64]

_STEPS = 4
_LONGEST_STEP = 2.0
_DECIMALS = 6
_SEED = 20_250_102
_USERS, _ITEMS = range(2)


class Tilt(NamedTuple):
    """How traits of one side shift it in one draw."""

    weights: FloatArray  # (K, 1 + traits) log odds of belonging; (K, 0) without traits
    offset: FloatArray  # (traits,) of offsets


def user_tilt(draw: Draw, model: Model) -> Tilt:
    """Draw how traits shift users."""
    rng = np.random.default_rng([_SEED, _USERS, draw.chain, draw.sweep])
    inside = members(draw.user_words, np.arange(draw.n_features)).astype(np.float64)
    sd = float(draw.hyper[USER_SD])
    offset = _offset_weights(model.user_offset_traits, draw.user_offset, sd, model.offset_weight_sd, rng)
    return Tilt(_weights(model.user_traits, inside, None, model.weight_sd, rng), offset)


def item_tilt(draw: Draw, model: Model) -> Tilt:
    """Draw how traits shift items."""
    rng = np.random.default_rng([_SEED, _ITEMS, draw.chain, draw.sweep])
    inside = members(draw.item_words, np.arange(draw.n_features)).astype(np.float64)
    sd = float(draw.hyper[ITEM_SD])
    offset = _offset_weights(model.item_traits, draw.item_offset, sd, model.offset_weight_sd, rng)
    return Tilt(_weights(model.item_traits, inside, model.item_logit, model.weight_sd, rng), offset)


def _weights(
    traits: FloatArray, inside: FloatArray, centre: float | None, sd: float, rng: np.random.Generator
) -> FloatArray:
    """Draw every feature's weights given its members; a centre of the log odds, or none for the buffet's prior."""
    n_rows, n_features = inside.shape
    size = 1 + traits.shape[1]
    if size == 1 or n_features == 0:
        return np.zeros((n_features, 0 if size == 1 else size))
    rows = np.hstack([np.ones((n_rows, 1)), traits])
    first, second = np.tril_indices(size)
    products = rows[:, first] * rows[:, second]
    counts = inside.sum(axis=0)
    weights = np.zeros((n_features, size))
    weights[:, 0] = np.log((counts + 0.5) / (n_rows - counts + 1.0))
    precision = np.empty((n_features, size, size))
    for _ in range(_STEPS):
        chance = _sigmoid(rows @ weights.T)
        slope, firm = _prior_slopes(weights, centre, sd)
        slope += (inside - chance).T @ rows
        packed = (chance * (1.0 - chance)).T @ products
        precision[:, first, second] = precision[:, second, first] = packed
        precision[:, np.arange(size), np.arange(size)] += firm
        step = np.linalg.solve(precision, slope[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        weights += step * np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, 1e-300))
    factor = np.linalg.cholesky(precision)
    noise = rng.standard_normal((n_features, size, 1))
    return _rounded(weights + np.linalg.solve(factor.transpose(0, 2, 1), noise)[:, :, 0])


def _prior_slopes(weights: FloatArray, centre: float | None, sd: float) -> tuple[FloatArray, FloatArray]:
    """Return slope and precision of the log prior at these weights: −log(1 + eᵃ) of the buffet, or normal."""
    slope = -weights / sd**2
    firm = np.full(weights.shape, 1.0 / sd**2)
    if centre is None:
        rate = _sigmoid(weights[:, 0])
        slope[:, 0], firm[:, 0] = -rate, rate * (1.0 - rate)
    else:
        slope[:, 0], firm[:, 0] = (centre - weights[:, 0]) / ITEM_LOGIT_SD**2, 1.0 / ITEM_LOGIT_SD**2
    return slope, firm


def _offset_weights(
    traits: FloatArray, offset: FloatArray, sd: float, weight_sd: float, rng: np.random.Generator
) -> FloatArray:
    """Draw how traits shift offsets given the offsets and both spreads; not at all where the model has none."""
    size = traits.shape[1]
    if size == 0 or not offset.any():
        return np.zeros(size)
    precision = traits.T @ traits / sd**2 + np.eye(size) / weight_sd**2
    factor = np.linalg.cholesky(precision)
    mean = np.linalg.solve(precision, traits.T @ offset / sd**2)
    return _rounded(mean + np.linalg.solve(factor.T, rng.standard_normal(size)))


def _rounded(values: NDArray[np.floating[Any]]) -> FloatArray:
    """Round, so that weights are the same numbers whatever the linear algebra library and its threads."""
    return np.asarray(np.round(values, _DECIMALS) + 0.0, np.float64)


def _sigmoid(x: FloatArray) -> FloatArray:
    chance: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * x))
    return chance
