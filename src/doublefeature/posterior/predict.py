r"""Scores and level probabilities of (user, item) pairs, averaged over draws and chains.

A code of 0 or more is a known user or item. The code −1 is a *stranger*, someone or something without ratings,
whose memberships and offset come from the prior given the draw:

    user:  P(member of feature k) = m_k / (m + 1) with m_k members among m users,   α ~ N(0, σ_α²)
    item:  P(member of feature k) = p_k,                                             ρ ~ N(0, σ_ρ²)

Offsets that are zero throughout a draw are not in the model, and strangers have none either. Features that a new
user would have alone, λ/(m + 1) of them in the prior mean, are left out. Code −1 − s is the s-th of the strangers
that belong to a draw; they are the same in every call, so an answer never depends on what else was asked.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import leaf
from doublefeature.errors import NotFittedError
from doublefeature.model.state import ITEM_SD, NOISE, USER_SD, words_of
from doublefeature.posterior.draws import Draw, Posterior

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
Codes = NDArray[np.int64]

STRANGERS = 32
"""Strangers that stand for the prior in each draw."""

_GROUPS = 2  # groups of strangers, independent of each other: two unknown items are two items
_SEED = 20_250_101
_BLOCK = 65_536
_SQRT_HALF = math.sqrt(0.5)
_BYTES = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.float64)  # (256, 8) the bits of every byte


def draw_scores(draw: Draw, base: float, users: Codes, items: Codes) -> FloatArray:
    """Return the score η = b0 + ρ_i + α_u + Σ_k A_uk B_ik θ_k of every pair in one draw."""
    user_words, user_offset = user_rows(draw, users)
    item_words, item_offset = item_rows(draw, items)
    scores: FloatArray = base + item_offset + user_offset
    shared = _bytes_of(user_words & item_words)
    for place, sums in enumerate(_byte_sums(draw.effect)):
        scores += sums.take(shared[:, place])
    return scores


def predict_levels(posterior: Posterior, users: Codes, items: Codes) -> FloatArray:
    """Return the probability of every level for every pair of codes, shape (pairs, levels)."""
    out = np.empty((users.size, n_levels_of(posterior)))
    strange = (users < 0) | (items < 0)
    for pairs, copies in ((np.flatnonzero(~strange), 1), (np.flatnonzero(strange), STRANGERS)):
        step = _BLOCK // copies
        for first in range(0, pairs.size, step):
            part = pairs[first : first + step]
            out[part] = _average_levels(posterior, spread(users[part], copies), spread(items[part], copies), copies)
    return out


def score_table(posterior: Posterior, users: Codes, items: Codes) -> FloatArray:
    """Return the scores of all pairs in every draw, shape (draws, pairs), for questions about several pairs at once.

    A stranger is one and the same stranger in all pairs of a draw.
    """
    n_levels_of(posterior)
    return np.stack([draw_scores(draw, posterior.base, users, items) for draw in posterior])


def levels_in_draw(draw: Draw, base: float, users: Codes, items: Codes) -> FloatArray:
    """Return the probability of every level for every pair in one draw."""
    out = np.zeros((users.size, draw.cutpoints.size - 1))
    add_level_probabilities(draw_scores(draw, base, users, items), float(draw.hyper[NOISE]), draw.cutpoints, 1, out)
    return out


def n_levels_of(posterior: Posterior) -> int:
    """Return the number of levels, or raise when there is no draw to answer from."""
    if not posterior.draws:
        raise NotFittedError("there are no draws to answer from. Fit with more sweeps than the warm-up.")
    return int(posterior.draws[0].cutpoints.size - 1)


def spread(codes: Codes, copies: int, group: int = 0) -> Codes:
    """Repeat every code, the stranger −1 as so many different strangers of a group."""
    repeated = np.repeat(codes, copies)
    others = -1 - np.tile(np.arange(copies), codes.size) - group * STRANGERS
    return np.where(repeated < 0, others, repeated)


def user_rows(draw: Draw, users: Codes) -> tuple[WordArray, FloatArray]:
    """Return memberships and offsets of users, strangers included."""
    if not (users < 0).any():
        return draw.user_words[users], draw.user_offset[users]
    n_users = draw.user_offset.size
    rates = member_counts(draw.user_words, draw.n_features) / (n_users + 1.0)
    sd = float(draw.hyper[USER_SD]) if draw.user_offset.any() else 0.0
    return _with_strangers((draw.user_words, draw.user_offset), users, _strangers(draw, 0, rates, sd))


def item_rows(draw: Draw, items: Codes) -> tuple[WordArray, FloatArray]:
    """Return memberships and offsets of items, strangers included."""
    if not (items < 0).any():
        return draw.item_words[items], draw.item_offset[items]
    sd = float(draw.hyper[ITEM_SD]) if draw.item_offset.any() else 0.0
    return _with_strangers((draw.item_words, draw.item_offset), items, _strangers(draw, 1, draw.item_rate, sd))


def member_counts(words: WordArray, n_features: int) -> FloatArray:
    """Return how many rows belong to each feature."""
    columns = _bytes_of(words).T[: -(-n_features // 8)]
    counts = [np.bincount(column, minlength=256) @ _BYTES for column in columns]
    return np.concatenate(counts)[:n_features] if counts else np.zeros(0)


@leaf
def add_level_probabilities(
    scores: FloatArray, scale: float, cutpoints: FloatArray, copies: int, out: FloatArray
) -> None:
    """Add the level probabilities of score j to row j // copies of a (pairs, levels) table.

    Every border between levels is known by its smaller tail, and differences are taken on the side where both
    tails are small, so that improbable levels keep their digits.
    """
    for j in range(scores.size):
        row = j // copies
        low_tail = 0.0
        low_is_right = False
        for level in range(out.shape[1]):
            border = (cutpoints[level + 1] - scores[j]) / scale
            high_tail = 0.5 * math.erfc(abs(border) * _SQRT_HALF)
            high_is_right = border > 0.0
            if low_is_right:
                out[row, level] += low_tail - high_tail
            elif high_is_right:
                out[row, level] += 1.0 - low_tail - high_tail
            else:
                out[row, level] += high_tail - low_tail
            low_tail = high_tail
            low_is_right = high_is_right


def _average_levels(posterior: Posterior, users: Codes, items: Codes, copies: int) -> FloatArray:
    out = np.zeros((users.size // copies, n_levels_of(posterior)))
    for draw in posterior:
        scores = draw_scores(draw, posterior.base, users, items)
        add_level_probabilities(scores, float(draw.hyper[NOISE]), draw.cutpoints, copies, out)
    out /= len(posterior) * copies
    return out


def _byte_sums(effect: FloatArray) -> FloatArray:
    """Return, for every eight features, the sum of effects for each of the 256 ways to share some of them."""
    padded = np.zeros(8 * -(-effect.size // 8))
    padded[: effect.size] = effect
    return padded.reshape(-1, 8) @ _BYTES.T


def _bytes_of(words: WordArray) -> NDArray[np.uint8]:
    """Return rows of words as rows of bytes, the byte of features 0 to 7 first."""
    little = np.ascontiguousarray(words.astype("<u8", copy=False))
    return little.view(np.uint8).reshape(words.shape[0], 8 * words.shape[1])


def _strangers(draw: Draw, side: int, rates: FloatArray, sd: float) -> tuple[WordArray, FloatArray]:
    """Draw strangers' memberships and offsets from the prior.

    Within a group each feature's uniforms fall one into each of `STRANGERS` equal parts of (0, 1), and offsets come
    in pairs of opposite sign: each stranger is a draw from the prior, and their average has less noise.
    """
    rng = np.random.default_rng([_SEED, side, draw.chain, draw.sweep])
    parts = np.tile(np.arange(STRANGERS)[:, None], (1, rates.size))
    members, offsets = [], []
    for _ in range(_GROUPS):
        uniforms = (rng.permuted(parts, axis=0) + rng.random(parts.shape)) / STRANGERS
        members.append(uniforms < rates)
        half = sd * rng.standard_normal(STRANGERS // 2)
        offsets += [half, -half]
    return words_of(np.concatenate(members), draw.user_words.shape[1]), np.concatenate(offsets)


def _with_strangers(
    known: tuple[WordArray, FloatArray], codes: Codes, strangers: tuple[WordArray, FloatArray]
) -> tuple[WordArray, FloatArray]:
    strange = codes < 0
    words = np.empty((codes.size, known[0].shape[1]), np.uint64)
    offset = np.empty(codes.size)
    for rows, source, places in (
        (~strange, known, codes[~strange]),
        (strange, strangers, -1 - codes[strange]),
    ):
        words[rows], offset[rows] = source[0][places], source[1][places]
    return words, offset
