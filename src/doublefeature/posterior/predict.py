"""Level probabilities of (user, item) pairs, averaged over draws and chains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doublefeature.model.ordinal import level_probabilities
from doublefeature.model.state import NOISE
from doublefeature.posterior.draws import Draw, Posterior

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

_BLOCK = 65_536


def draw_scores(draw: Draw, base: float, users: Codes, items: Codes) -> FloatArray:
    """Return the score η of every pair in one draw."""
    scores: FloatArray = base + draw.item_offset[items] + draw.user_offset[users]
    for slot in range(draw.n_features):
        word, bit = slot // 64, np.uint64(slot % 64)
        in_both = draw.user_words[users, word] & draw.item_words[items, word]
        scores += draw.effect[slot] * ((in_both >> bit) & np.uint64(1)).astype(np.float64)
    return scores


def predict_levels(posterior: Posterior, users: Codes, items: Codes) -> FloatArray:
    """Return the probability of every level for every pair of codes, shape (pairs, levels)."""
    n_levels = posterior.draws[0].cutpoints.size - 1
    out = np.zeros((users.size, n_levels))
    for first in range(0, users.size, _BLOCK):
        part = slice(first, first + _BLOCK)
        for draw in posterior:
            scores = draw_scores(draw, posterior.base, users[part], items[part])
            out[part] += level_probabilities(scores, float(draw.hyper[NOISE]), draw.cutpoints)
    out /= max(len(posterior), 1)
    return out
