"""What a draw says of users and items, and of *strangers*: those it has never seen.

A code of 0 or more is a known user or item. The code −1 is a *stranger*, someone or something without ratings,
whose memberships and offset come from the prior given the draw:

    user:  P(member of feature k) = m_k / (m + 1) with m_k members among m users, holding it with s_uk ~ N(1, σ_s²)
           where users have grades,                                                 α ~ N(0, σ_α²)
    item:  P(member of feature k) = p_k, graded with w_ik ~ N(θ_k, σ_w²),            ρ ~ N(0, σ_ρ²)

Where choices of items are part of the model, what is rated is not the average item: a strange item is then like the
item of a random rating, P(member of feature k) and the mean and spread of ρ being those over all ratings.

The factor of a user's noise, where users have their own, comes from the prior too: its logarithm is normal around 0 on
a grid.

Offsets that are zero throughout a draw are not in the model, and strangers have none either. Features that a new
user would have alone, λ/(m + 1) of them in the prior mean, are left out. Code −1 − s is the s-th of the strangers
that belong to a draw; they are the same in every call, so an answer never depends on what else was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.model.generative import scale_log_weights
from doublefeature.model.state import (
    GRADE_SD,
    ITEM_SD,
    NOISE,
    REMAINDER_SD,
    SCALE_SD,
    USER_GRADE_SD,
    USER_SD,
    members,
    words_of,
)
from doublefeature.posterior.draws import Codes, Draw, FloatArray, WordArray, member_starts, spread_effects

STRANGERS = 32
"""Strangers that stand for the prior in each draw."""

BYTES: FloatArray = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.float64)
"""(256, 8) the bits of every byte."""

_GROUPS = 2  # groups of strangers, independent of each other: two unknown items are two items
_SEED = 20_250_101
_USERS, _ITEMS, _EFFECTS, _SCALES, _GRADES, _USER_FACTORS, _ITEM_FACTORS = range(7)  # streams of random numbers


class UserRows(NamedTuple):
    """What scores need of users, strangers included, one row each."""

    words: WordArray  # (rows, words)
    offset: FloatArray  # (rows,)
    first: Codes  # (rows,) where a row's grades begin in `packed`, where users have them
    packed: FloatArray  # grades of memberships, features ascending in each row; empty without

    def grades(self, draw: Draw) -> FloatArray:
        """Return how strongly each row holds each feature of the draw, (rows, K): s, or 1; zero outside."""
        if draw.user_graded:
            return spread_effects(self.words, self.first, self.packed, draw.n_features)
        return members(self.words, np.arange(draw.n_features)).astype(np.float64)


class ItemRows(NamedTuple):
    """What scores need of items, strangers included, one row each."""

    words: WordArray  # (rows, words)
    offset: FloatArray  # (rows,)
    first: Codes  # (rows,) graded: where a row's effects begin in `packed`
    packed: FloatArray  # effects of memberships, features ascending in each row; empty when not graded

    def effects(self, draw: Draw) -> FloatArray:
        """Return what each feature of the draw adds for each row, (rows, K): w, or θ; zero outside."""
        if draw.graded:
            return spread_effects(self.words, self.first, self.packed, draw.n_features)
        effects: FloatArray = members(self.words, np.arange(draw.n_features)) * draw.effect
        return effects


def spread(codes: Codes, copies: int, group: int = 0) -> Codes:
    """Repeat every code, the stranger −1 as so many different strangers of a group."""
    repeated = np.repeat(codes, copies)
    others = -1 - np.tile(np.arange(copies), codes.size) - group * STRANGERS
    return np.where(repeated < 0, others, repeated)


def user_rows(draw: Draw, users: Codes) -> UserRows:
    """Return memberships, offsets and grades of users, strangers included."""
    n_users = draw.user_offset.size
    first = member_starts(draw.user_words)[:-1] if draw.user_graded else np.zeros(n_users, np.int64)
    if not (users < 0).any():
        return UserRows(draw.user_words[users], draw.user_offset[users], first[users], draw.user_grade)
    rates = member_counts(draw.user_words, draw.n_features) / (n_users + 1.0)
    sd = float(draw.hyper[USER_SD]) if draw.user_offset.any() else 0.0
    words, offset = _strangers(draw, _USERS, rates, 0.0, sd)
    packed, places = draw.user_grade, np.zeros(offset.size, np.int64)
    if draw.user_graded:
        places = packed.size + member_starts(words)[:-1]
        around_one = _around(np.ones(draw.n_features), float(draw.hyper[USER_GRADE_SD]), draw, words, _GRADES)
        packed = np.concatenate([packed, around_one])
    known, strangers = (draw.user_words, draw.user_offset, first), (words, offset, places)
    words, offset, first = _with_strangers(known, users, strangers)
    return UserRows(words, offset, first, packed)


def item_rows(draw: Draw, items: Codes) -> ItemRows:
    """Return memberships, offsets and effects of items, strangers included."""
    first = member_starts(draw.item_words)[:-1] if draw.graded else np.zeros(draw.item_offset.size, np.int64)
    if not (items < 0).any():
        return ItemRows(draw.item_words[items], draw.item_offset[items], first[items], draw.item_effect)
    words, offset = _strangers(draw, _ITEMS, *_item_chances(draw))
    packed, places = draw.item_effect, np.zeros(offset.size, np.int64)
    if draw.graded:
        places = packed.size + member_starts(words)[:-1]
        effects = _around(draw.effect, float(draw.hyper[GRADE_SD]), draw, words, _EFFECTS)
        packed = np.concatenate([packed, effects])
    known, strangers = (draw.item_words, draw.item_offset, first), (words, offset, places)
    words, offset, first = _with_strangers(known, items, strangers)
    return ItemRows(words, offset, first, packed)


def _item_chances(draw: Draw) -> tuple[FloatArray, float, float]:
    """Return how likely a strange item is in each feature, and mean and spread of its offset."""
    if not draw.item_shares.size:
        return draw.item_rate, 0.0, float(draw.hyper[ITEM_SD]) if draw.item_offset.any() else 0.0
    mean = float(draw.item_shares @ draw.item_offset)
    sd = float(np.sqrt(draw.item_shares @ (draw.item_offset - mean) ** 2))
    return member_counts(draw.item_words, draw.n_features, draw.item_shares), mean, sd


def remainder(draw: Draw, users: Codes, items: Codes) -> FloatArray:
    """Return u · v of pairs, 0 without a remainder; factors of strangers come from their prior."""
    if not draw.rank:
        return np.zeros(users.size)
    sides = []
    for factor, codes, stream in ((draw.user_factor, users, _USER_FACTORS), (draw.item_factor, items, _ITEM_FACTORS)):
        strangers = float(draw.hyper[REMAINDER_SD]) * _opposite_normals(draw, stream, draw.rank)
        (rows,) = _with_strangers((factor,), codes, (strangers,))
        sides.append(rows)
    products: FloatArray = (sides[0] * sides[1]).sum(axis=1)
    return products


def user_noise(draw: Draw, users: Codes, scales: FloatArray) -> FloatArray:
    """Return the noise scale of users, strangers included: τ times the factor in `scales` that is the user's."""
    strange = users < 0
    codes = np.zeros(users.size, np.int64)
    codes[~strange] = draw.user_scale[users[~strange]]
    if scales.size > 1 and strange.any():
        rng = np.random.default_rng([_SEED, _SCALES, draw.chain, draw.sweep])
        chances = np.exp(scale_log_weights(scales, float(draw.hyper[SCALE_SD])))
        uniforms = np.concatenate([_even_uniforms(rng, 1)[:, 0] for _ in range(_GROUPS)])
        drawn = np.searchsorted(np.cumsum(chances)[:-1], uniforms, side="right")
        codes[strange] = drawn[-1 - users[strange]]
    noise: FloatArray = draw.hyper[NOISE] * scales[codes]
    return noise


def member_counts(words: WordArray, n_features: int, weights: FloatArray | None = None) -> FloatArray:
    """Return how many rows belong to each feature, or what they weigh together."""
    columns = bytes_of(words).T[: -(-n_features // 8)]
    counts = [np.bincount(column, weights, minlength=256) @ BYTES for column in columns]
    return np.concatenate(counts)[:n_features] if counts else np.zeros(0)


def bytes_of(words: WordArray) -> NDArray[np.uint8]:
    """Return rows of words as rows of bytes, the byte of features 0 to 7 first."""
    little = np.ascontiguousarray(words.astype("<u8", copy=False))
    return little.view(np.uint8).reshape(words.shape[0], 8 * words.shape[1])


def _strangers(draw: Draw, side: int, rates: FloatArray, mean: float, sd: float) -> tuple[WordArray, FloatArray]:
    """Draw strangers' memberships and offsets.

    Within a group each feature's uniforms fall one into each of `STRANGERS` equal parts of (0, 1), and offsets come
    in pairs of opposite sign: each stranger is a draw from the prior, and their average has less noise.
    """
    rng = np.random.default_rng([_SEED, side, draw.chain, draw.sweep])
    inside, offsets = [], []
    for _ in range(_GROUPS):
        inside.append(_even_uniforms(rng, rates.size) < rates)
        half = sd * rng.standard_normal(STRANGERS // 2)
        offsets += [half, -half]
    return words_of(np.concatenate(inside), draw.user_words.shape[1]), mean + np.concatenate(offsets)


def _even_uniforms(rng: np.random.Generator, columns: int) -> FloatArray:
    """Return uniforms of `STRANGERS` rows, in every column one in each of as many equal parts of (0, 1)."""
    parts = np.tile(np.arange(STRANGERS)[:, None], (1, columns))
    uniforms: FloatArray = (rng.permuted(parts, axis=0) + rng.random(parts.shape)) / STRANGERS
    return uniforms


def _around(centre: FloatArray, sd: float, draw: Draw, words: WordArray, stream: int) -> FloatArray:
    """Draw a number around its feature's centre for every membership of strangers, half of them opposite to the others.

    Effects of strange items and grades of strange users.
    """
    values: FloatArray = centre + sd * _opposite_normals(draw, stream, draw.n_features)
    return values[members(words, np.arange(draw.n_features))]


def _opposite_normals(draw: Draw, stream: int, columns: int) -> FloatArray:
    """Return normals of all strangers, (strangers, columns), half of each group opposite to the others."""
    rng = np.random.default_rng([_SEED, stream, draw.chain, draw.sweep])
    half = rng.standard_normal((_GROUPS, STRANGERS // 2, columns))
    return np.concatenate([half, -half], axis=1).reshape(_GROUPS * STRANGERS, columns)


def _with_strangers(
    known: tuple[NDArray[Any], ...], codes: Codes, strangers: tuple[NDArray[Any], ...]
) -> Iterator[NDArray[Any]]:
    """Yield the rows of each of the arrays that the codes ask for, of strangers from the second."""
    strange = codes < 0
    for own, other in zip(known, strangers, strict=True):
        rows = np.empty((codes.size, *own.shape[1:]), own.dtype)
        rows[~strange] = own[codes[~strange]]
        rows[strange] = other[-1 - codes[strange]]
        yield rows
