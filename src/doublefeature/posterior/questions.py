r"""Which rating would tell most about a user.

Given a draw, a user is known up to what fold-in leaves open: memberships, strengths, offset, scale. With S copies of
the user drawn independently given the same draw, the rating of an item tells

$$I = H\Big(\frac1S \sum_s p_s\Big) - \frac1S \sum_s H(p_s)$$

nats about which copy is right, $p_s$ the level probabilities. Between draws items differ as well, which a rating would
also tell about; that is left out by averaging I over draws instead of mixing them. S copies show the share
(S − 1)/S of what all would: I is a variance to leading order, and is divided by that share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.predict import Codes, FloatArray, levels_in_draw

_BLOCK = 65_536


class Open(NamedTuple):
    """What is still open about a user, by item."""

    gain: FloatArray  # nats that a rating of the item would tell
    spread: FloatArray  # standard deviation of the expected rating over what the user may be


def what_is_open(posterior: Posterior, users: Codes, items: Codes, values: FloatArray) -> Open:
    """Return what is open about a user of whom `users` are independent copies; `values` are the levels as numbers.

    The spread is that within draws, as the gain is: what differs between draws is not about the user.
    """
    gain, variance = np.zeros(items.size), np.zeros(items.size)
    step = max(1, _BLOCK // users.size)
    for first in range(0, items.size, step):
        part = slice(first, first + step)
        asked = items[part]
        pairs = np.repeat(users, asked.size), np.tile(asked, users.size)
        for draw in posterior:
            flat = levels_in_draw(draw, posterior.base, *pairs, posterior.scales)
            proba = flat.reshape(users.size, asked.size, -1)
            gain[part] += _gain(proba)
            variance[part] += (proba @ values).var(axis=0, ddof=1)
    return Open(gain / len(posterior), np.sqrt(variance / len(posterior)))


def _gain(proba: FloatArray) -> FloatArray:
    """Return the gain from (copies, items, levels) probabilities."""
    copies = proba.shape[0]
    told = _entropy(proba.mean(axis=0)) - _entropy(proba).mean(axis=0)
    gain: FloatArray = np.maximum(told, 0.0) * copies / (copies - 1)
    return gain


def _entropy(proba: FloatArray) -> FloatArray:
    logs = np.log(np.where(proba > 0.0, proba, 1.0))
    entropy: FloatArray = -(proba * logs).sum(axis=-1)
    return entropy
