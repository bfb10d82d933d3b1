"""What the sampler carries from sweep to sweep, and the numbers it is told.

`State` is one draw of the model. `Model` holds the settings of the model as plain numbers, `Moves` (in
`doublefeature.config`) the choice of block updates. Features live in *slots*: slot k is bit k % 64 of word
k // 64 in every membership row, and `active` says which slots hold a feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Priors
from doublefeature.errors import SettingsError
from doublefeature.model.ordinal import level_cutpoints

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
ByteArray = NDArray[np.uint8]

NOISE, MASS, RATE, EFFECT_SD, ITEM_SD, USER_SD, GRADE_SD, SCALE_SD, USER_GRADE_SD, REMAINDER_SD = range(10)
"""Places in `State.hyper`."""
SCALES: FloatArray = np.exp(np.linspace(-0.8, 0.8, 9))
"""Multiples of the noise scale τ that a user's noise may be, when users have scales of their own."""
MIDDLE_SCALE = 4
ITEM_LOGIT_SD = 1.0
"""Prior standard deviation of the log odds of a feature's items, where traits shift them."""


class State(NamedTuple):
    """One draw: everything the next sweep needs, and nothing else."""

    user_words: WordArray  # (users, words)  A: which features each user belongs to
    item_words: WordArray  # (items, words)  B
    active: ByteArray  # (slots,)       1 where a slot holds a feature
    effect: FloatArray  # (slots,)       θ
    item_effect: FloatArray  # (0 or items, slots)  w, when every item has an effect of its own
    user_grade: FloatArray  # (0 or users, slots)  s, when users hold features more or less strongly
    item_rate: FloatArray  # (slots,)       p_k: prior probability that an item belongs
    item_offset: FloatArray  # (items,)       ρ
    user_offset: FloatArray  # (users,)       α
    user_scale: ByteArray  # (users,)       which of `Model.scales` multiplies the user's noise
    cutpoints: FloatArray  # (levels + 1,)  with infinite ends
    user_weights: FloatArray  # (slots, 0 or 1 + traits)  log odds of a feature's users, and how traits shift them
    item_weights: FloatArray  # (slots, 0 or 1 + traits)  the same of its items
    user_offset_weights: FloatArray  # (traits,)  how traits shift user offsets
    item_offset_weights: FloatArray  # (traits,)  how traits shift item offsets
    user_factor: FloatArray  # (users, rank)  u
    item_factor: FloatArray  # (items, rank)  v
    hyper: FloatArray  # (10,)          noise scale τ, mass λ, rate p, σ_θ, σ_ρ, σ_α, σ_w, σ_v, σ_s, σ_r


class Traits(NamedTuple):
    """What is known of users and items besides the ratings, each trait of mean 0."""

    users: FloatArray  # (users, traits) shift who belongs to a feature, and user offsets
    user_offsets: FloatArray  # (users, traits) shift user offsets besides
    items: FloatArray  # (items, traits) shift which items belong, and item offsets


class Model(NamedTuple):
    """The priors as numbers the kernels read. Hyperparameters that are not learnt stay at their start."""

    base: float  # b0
    noise_shape: float
    noise_rate: float
    learn_noise: bool
    learn_mass: bool
    mass_shape: float
    mass_rate: float
    learn_rate: bool
    rate_by_feature: bool
    item_buffet: bool  # items of features come from the Indian buffet process, given their number
    rate_in: float  # Beta(rate_in, rate_out) of p
    rate_out: float
    learn_effect_sd: bool
    learn_item_sd: bool
    learn_user_sd: bool
    learn_grade_sd: bool
    learn_scale_sd: bool
    learn_user_grade_sd: bool
    learn_remainder_sd: bool
    sd_shape: float
    effect_sd_rate: float
    item_sd_rate: float
    user_sd_rate: float
    grade_sd_rate: float
    scale_sd_rate: float
    user_grade_sd_rate: float
    remainder_sd_rate: float
    item_offsets: bool
    user_offsets: bool
    free_cutpoints: bool
    scales: FloatArray  # (scales,) factors a user's noise may have
    effect_values: FloatArray  # (0 or values,) the only effects allowed, when not empty
    item_offset_mean: FloatArray  # (items,) follows `State.item_offset_weights`
    user_offset_mean: FloatArray  # (users,) follows `State.user_offset_weights`
    user_traits: FloatArray  # (users, traits) what shifts users' log odds of belonging
    user_offset_traits: FloatArray  # (users, traits) what shifts their offsets
    item_traits: FloatArray  # (items, traits) what shifts items' log odds of belonging, and their offsets
    weight_sd: float  # spread of how traits shift log odds of belonging
    item_logit: float  # centre of a feature's log odds of items, where traits shift them
    offset_weight_sd: float  # spread of how traits shift offsets


def no_traits(n_users: int, n_items: int) -> Traits:
    """Return traits of which there are none."""
    return Traits(np.zeros((n_users, 0)), np.zeros((n_users, 0)), np.zeros((n_items, 0)))


def build_model(priors: Priors, n_users: int, n_items: int, n_levels: int, traits: Traits | None = None) -> Model:
    """Return the numbers the kernels read for these priors and sizes, and for traits if there are any."""
    priors = priors.on_scale(n_levels)
    learnt = frozenset(priors.learn)
    traits = traits or no_traits(n_users, n_items)
    variance_scale = priors.sd_shape - 1.0
    return Model(
        base=float(priors.base if priors.base is not None else n_levels / 2),
        noise_shape=priors.noise_shape,
        noise_rate=priors.noise_rate,
        learn_noise=priors.noise_scale is None,
        learn_mass="mass" in learnt,
        mass_shape=priors.mass_shape,
        mass_rate=priors.mass_shape / priors.mass,
        learn_rate="item_rate" in learnt,
        rate_by_feature=priors.item_rate_by_feature,
        item_buffet=priors.item_prior == "ibp",
        rate_in=priors.item_rate_weight * priors.item_rate,
        rate_out=priors.item_rate_weight * (1.0 - priors.item_rate),
        learn_effect_sd="effect_sd" in learnt,
        learn_item_sd="item_offset_sd" in learnt,
        learn_user_sd="user_offset_sd" in learnt,
        learn_grade_sd="grade_sd" in learnt,
        learn_scale_sd="user_scale_sd" in learnt,
        learn_user_grade_sd="user_grade_sd" in learnt,
        learn_remainder_sd="remainder_sd" in learnt,
        sd_shape=priors.sd_shape,
        effect_sd_rate=variance_scale * priors.effect_sd**2,
        item_sd_rate=variance_scale * priors.item_offset_sd**2,
        user_sd_rate=variance_scale * priors.user_offset_sd**2,
        grade_sd_rate=variance_scale * priors.grade_sd**2,
        scale_sd_rate=variance_scale * priors.user_scale_sd**2,
        user_grade_sd_rate=variance_scale * priors.user_grade_sd**2,
        remainder_sd_rate=variance_scale * priors.remainder_sd**2,
        item_offsets=priors.item_offsets,
        user_offsets=priors.user_offsets,
        free_cutpoints=priors.free_cutpoints,
        scales=scales_of(priors),
        effect_values=np.array(priors.effect_values, dtype=np.float64),
        item_offset_mean=np.zeros(n_items),
        user_offset_mean=np.zeros(n_users),
        user_traits=np.ascontiguousarray(traits.users),
        user_offset_traits=np.hstack([traits.users, traits.user_offsets]),
        item_traits=np.ascontiguousarray(traits.items),
        weight_sd=priors.choice_sd,
        item_logit=float(np.log(priors.item_rate) - np.log1p(-priors.item_rate)),
        offset_weight_sd=priors.trait_offset_sd,
    )


def scales_of(priors: Priors) -> FloatArray:
    """Return the multiples of τ that a user's noise may be: only 1 when users have no scales of their own."""
    return SCALES.copy() if priors.user_scales else np.ones(1)


def empty_state(priors: Priors, n_users: int, n_items: int, n_levels: int) -> State:
    """Return the state with no features, offsets at zero and hyperparameters at their prior centre."""
    priors = priors.on_scale(n_levels)
    noise = priors.noise_scale
    if noise is None:
        noise = (priors.noise_rate / (priors.noise_shape - 1.0)) ** 0.5 if priors.noise_shape > 1.0 else 1.0
    hyper = (
        noise,
        priors.mass,
        priors.item_rate,
        priors.effect_sd,
        priors.item_offset_sd,
        priors.user_offset_sd,
        priors.grade_sd,
        priors.user_scale_sd,
        priors.user_grade_sd,
        priors.remainder_sd,
    )
    return State(
        user_words=np.zeros((n_users, 1), np.uint64),
        item_words=np.zeros((n_items, 1), np.uint64),
        active=np.zeros(64, np.uint8),
        effect=np.zeros(64),
        item_effect=np.zeros((n_items if priors.graded else 0, 64)),
        user_grade=np.zeros((n_users if priors.user_grades else 0, 64)),
        item_rate=np.zeros(64),
        item_offset=np.zeros(n_items),
        user_offset=np.zeros(n_users),
        user_scale=np.full(n_users, MIDDLE_SCALE if priors.user_scales else 0, np.uint8),
        cutpoints=level_cutpoints(n_levels),
        user_weights=np.zeros((64, 0)),
        item_weights=np.zeros((64, 0)),
        user_offset_weights=np.zeros(0),
        item_offset_weights=np.zeros(0),
        user_factor=np.zeros((n_users, priors.remainder)),
        item_factor=np.zeros((n_items, priors.remainder)),
        hyper=np.array(hyper, dtype=np.float64),
    )


def copy_state(state: State) -> State:
    """Return a state that shares no memory with this one."""
    return State(*(np.ascontiguousarray(field).copy() for field in state))  # type: ignore[arg-type]


def members(words: WordArray, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the (rows, features) membership matrix of the given slots."""
    bits = words[:, slots // 64] >> (slots % 64).astype(np.uint64)
    return (bits & np.uint64(1)).astype(bool)


def words_of(matrix: NDArray[np.bool_], n_words: int) -> WordArray:
    """Return membership words for a (rows, features) matrix whose features take slots 0, 1, ….

    The inverse of `members` for the first slots.
    """
    words = np.zeros((matrix.shape[0], n_words), np.uint64)
    for k in range(matrix.shape[1]):
        words[:, k // 64] |= matrix[:, k].astype(np.uint64) << np.uint64(k % 64)
    return words


def state_from_parts(
    start: State,
    user_members: NDArray[np.bool_],
    item_members: NDArray[np.bool_],
    effect: FloatArray,
    item_rate: FloatArray | None = None,
    item_effect: FloatArray | None = None,
    user_grade: FloatArray | None = None,
    user_weights: FloatArray | None = None,
    item_weights: FloatArray | None = None,
) -> State:
    """Return `start` with these features, in slots 0, 1, …, in place of its own.

    `item_effect`, (items, features), makes them graded, `user_grade`, (users, features), on both sides.
    """
    n_features = effect.size
    n_words = max(1, -(-n_features // 64))
    padded = np.zeros(64 * n_words)
    padded[:n_features] = effect
    rates = np.full(64 * n_words, start.hyper[RATE])
    if item_rate is not None:
        rates[:n_features] = item_rate
    active = np.zeros(64 * n_words, np.uint8)
    active[:n_features] = 1
    return copy_state(start)._replace(
        user_words=words_of(user_members, n_words),
        item_words=words_of(item_members, n_words),
        active=active,
        effect=padded,
        item_effect=_spread(item_members, item_effect, 64 * n_words),
        user_grade=_spread(user_members, user_grade, 64 * n_words),
        user_weights=_padded(user_weights, 64 * n_words),
        item_weights=_padded(item_weights, 64 * n_words),
        item_rate=rates,
    )


def _spread(inside: NDArray[np.bool_], values: FloatArray | None, n_slots: int) -> FloatArray:
    """Return (rows, slots) values of memberships, 0 elsewhere; without values, no rows."""
    out = np.zeros((0 if values is None else inside.shape[0], n_slots))
    if values is not None:
        out[:, : inside.shape[1]] = np.where(inside, values, 0.0)
    return out


def _padded(rows: FloatArray | None, length: int) -> FloatArray:
    """Return rows with zeros below them up to a length; without rows, rows of nothing."""
    if rows is None:
        return np.zeros((length, 0))
    out = np.zeros((length, rows.shape[1]))
    out[: rows.shape[0]] = rows
    return out


def check_state(state: State) -> None:
    """Raise `SettingsError` unless every invariant of a state holds."""
    slots = state.active.size
    n_words = state.user_words.shape[1]
    if slots != 64 * n_words or state.item_words.shape[1] != n_words:
        raise SettingsError(f"a state with {slots} slots needs {slots // 64} words, not {n_words}")
    on = np.flatnonzero(state.active)
    idle = np.setdiff1d(np.arange(slots), on)
    for name, words in (("users", state.user_words), ("items", state.item_words)):
        if members(words, idle).any():
            raise SettingsError(f"{name} belong to a feature that does not exist")
    if on.size and not members(state.user_words, on).any(axis=0).all():
        raise SettingsError("a feature has no users")
    for name in (
        "effect",
        "item_effect",
        "user_grade",
        "item_rate",
        "item_offset",
        "user_offset",
        "hyper",
        "user_factor",
        "item_factor",
    ):
        if not np.isfinite(getattr(state, name)).all():
            raise SettingsError(f"{name} holds a number that is not finite")
    if not (np.diff(state.cutpoints) > 0).all() or (state.hyper <= 0).any():
        raise SettingsError("cutpoints must rise and scales, mass and rate must be positive")
