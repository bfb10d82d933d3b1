"""Scores and level probabilities of (user, item) pairs, averaged over draws and chains.

Codes of users and items, strangers among them, are those of `doublefeature.posterior.strangers`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import leaf
from doublefeature.errors import NotFittedError
from doublefeature.model.level_sums import add_levels
from doublefeature.posterior.draws import ONE_SCALE, Draw, Posterior
from doublefeature.posterior.strangers import (
    BYTES,
    STRANGERS,
    bytes_of,
    item_rows,
    remainder,
    spread,
    user_noise,
    user_rows,
)

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
Codes = NDArray[np.int64]
Packed = tuple[WordArray, Codes, FloatArray]
"""Memberships of rows, where each row's numbers begin, and a number for every membership."""

_BLOCK = 65_536


def draw_scores(draw: Draw, base: float, users: Codes, items: Codes) -> FloatArray:
    """Return the score η = b0 + ρ_i + α_u + Σ_k A_uk B_ik θ_k of every pair in one draw.

    Graded, it is w_ik in place of θ_k, times s_uk where users have grades.
    """
    of_users, rows = user_rows(draw, users), item_rows(draw, items)
    scores: FloatArray = base + rows.offset + of_users.offset + remainder(draw, users, items)
    if draw.user_graded:
        add_graded_effects(
            (of_users.words, of_users.first, of_users.packed), (rows.words, rows.first, rows.packed), scores
        )
        return scores
    if draw.graded:
        add_shared_effects(of_users.words, rows.words, rows.first, rows.packed, scores)
        return scores
    shared = bytes_of(of_users.words & rows.words)
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


def predict_rows(posterior: Posterior, users: Codes) -> FloatArray:
    """Return the level probabilities of every item for known users, (users, items, levels).

    Three times faster than pair by pair; equal up to rounding, and the same whichever users are asked for together.
    """
    n_items = posterior.draws[0].item_offset.size
    out = np.zeros((users.size * n_items, n_levels_of(posterior)))
    for draw in posterior:
        scores = (posterior.base + draw.item_offset) + draw.user_offset[users, None]
        add_products(draw.user_loads(users), np.ascontiguousarray(draw.item_loads().T), scores)
        noise = np.repeat(user_noise(draw, users, posterior.scales), n_items)
        add_levels(scores.ravel(), noise, draw.cutpoints, 1, out)
    out /= len(posterior)
    return out.reshape(users.size, n_items, -1)


def score_table(posterior: Posterior, users: Codes, items: Codes) -> FloatArray:
    """Return the scores of all pairs in every draw, shape (draws, pairs), for questions about several pairs at once.

    A stranger is one and the same stranger in all pairs of a draw.
    """
    n_levels_of(posterior)
    return np.stack([draw_scores(draw, posterior.base, users, items) for draw in posterior])


def levels_in_draw(draw: Draw, base: float, users: Codes, items: Codes, scales: FloatArray = ONE_SCALE) -> FloatArray:
    """Return the probability of every level for every pair in one draw."""
    out = np.zeros((users.size, draw.cutpoints.size - 1))
    scores = draw_scores(draw, base, users, items)
    add_level_probabilities(scores, user_noise(draw, users, scales), draw.cutpoints, 1, out)
    return out


def n_levels_of(posterior: Posterior) -> int:
    """Return the number of levels, or raise when there is no draw to answer from."""
    if not posterior.draws:
        raise NotFittedError("there are no draws to answer from. Fit with more sweeps than the warm-up.")
    return int(posterior.draws[0].cutpoints.size - 1)


def add_level_probabilities(
    scores: FloatArray, noise: FloatArray | float, cutpoints: FloatArray, copies: int, out: FloatArray
) -> None:
    """Add the level probabilities of score j to row j // copies of a (pairs, levels) table."""
    add_levels(scores, np.ascontiguousarray(np.broadcast_to(noise, scores.shape)), cutpoints, copies, out)


@leaf
def add_shared_effects(
    user_words: WordArray, item_words: WordArray, first: Codes, packed: FloatArray, scores: FloatArray
) -> None:
    """Add to score j the effects of the item's memberships, packed from `first[j]` on, that the user shares."""
    for j in range(scores.size):
        place = first[j]
        total = 0.0
        for word in range(item_words.shape[1]):
            own, left = user_words[j, word], item_words[j, word]
            while left != np.uint64(0):
                rest = left & (left - np.uint64(1))
                effect = packed[place]
                total += effect if own & (left ^ rest) else 0.0
                place += 1
                left = rest
        scores[j] += total


@leaf
def add_products(user_loads: FloatArray, item_loads: FloatArray, scores: FloatArray) -> None:
    """Add user loads (users, K) times item loads (K, items) to scores (users, items), passing over zeros."""
    for user in range(scores.shape[0]):
        for k in range(user_loads.shape[1]):
            load = user_loads[user, k]
            if load != 0.0:
                for item in range(scores.shape[1]):
                    scores[user, item] += load * item_loads[k, item]


@leaf
def add_graded_effects(users: Packed, items: Packed, scores: FloatArray) -> None:
    """Add to score j the products of user's grade and item's effect in shared features, both packed by row."""
    user_words, user_first, grades = users
    item_words, item_first, effects = items
    for j in range(scores.size):
        user_place, item_place = user_first[j], item_first[j]
        total = 0.0
        for word in range(item_words.shape[1]):
            own, left = user_words[j, word], item_words[j, word]
            either = own | left
            while either != np.uint64(0):
                rest = either & (either - np.uint64(1))
                bit = either ^ rest
                in_user, in_item = own & bit != np.uint64(0), left & bit != np.uint64(0)
                if in_user and in_item:
                    total += grades[user_place] * effects[item_place]
                user_place += in_user
                item_place += in_item
                either = rest
        scores[j] += total


def _average_levels(posterior: Posterior, users: Codes, items: Codes, copies: int) -> FloatArray:
    out = np.zeros((users.size // copies, n_levels_of(posterior)))
    for draw in posterior:
        scores = draw_scores(draw, posterior.base, users, items)
        add_level_probabilities(scores, user_noise(draw, users, posterior.scales), draw.cutpoints, copies, out)
    out /= len(posterior) * copies
    return out


def _byte_sums(effect: FloatArray) -> FloatArray:
    """Return, for every eight features, the sum of effects for each of the 256 ways to share some of them."""
    padded = np.zeros(8 * -(-effect.size // 8))
    padded[: effect.size] = effect
    return padded.reshape(-1, 8) @ BYTES.T
