"""What each item of a feature adds, over all draws whose features match the estimate's (graded features)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.posterior.draws import Draw, member_starts

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_INTERVAL = (0.1, 0.9)
_MOST_VALUES = 2**24


class Matched(NamedTuple):
    """Which feature of each draw stands for each feature of an estimate."""

    number: IntArray  # (draws, K)  the draw's feature, −1 where the draw has nothing to say
    sign: FloatArray  # (draws, K)  −1 where it is the draw feature's complement that matches


class ItemEffects(NamedTuple):
    """w of (item, feature) pairs: mean and 80 % interval over the draws in which the item belongs."""

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray


def item_effects(draws: Sequence[Draw], matched: Matched, items: IntArray, features: IntArray) -> ItemEffects:
    """Summarise the effects of items in features of the estimate; not a number where an item never belongs.

    At most `_MOST_VALUES` effects are held at a time.
    """
    out = np.full((3, items.size), np.nan)
    step = max(1, _MOST_VALUES // max(len(draws), 1))
    for first in range(0, items.size, step):
        part = slice(first, first + step)
        table = np.full((len(draws), items[part].size), np.nan)
        for row, draw in enumerate(draws):
            number = matched.number[row, features[part]]
            table[row] = membership_effects(draw, items[part], number) * matched.sign[row, features[part]]
        out[:, part] = _summarise_columns(table)
    return ItemEffects(*out)


def membership_effects(draw: Draw, items: IntArray, features: IntArray) -> FloatArray:
    """Return w of (item, feature) pairs of a graded draw; not a number outside the feature, or where it is −1."""
    word, bit = np.maximum(features, 0) // 64, (np.maximum(features, 0) % 64).astype(np.uint64)
    counts = np.bitwise_count(draw.item_words).astype(np.int64)
    before = np.cumsum(counts, axis=1) - counts + member_starts(draw.item_words)[:-1, None]
    own = draw.item_words[items, word]
    inside = (((own >> bit) & np.uint64(1)) == 1) & (features >= 0)
    lower_bits = own & ((np.uint64(1) << bit) - np.uint64(1))
    places = before[items, word] + np.bitwise_count(lower_bits)
    effects = np.full(items.size, np.nan)
    effects[inside] = draw.item_effect[places[inside]]
    return effects


def _summarise_columns(table: FloatArray) -> FloatArray:
    """Return mean and quantiles of the numbers in each column, (3, columns); not a number where there is none."""
    ordered = np.sort(table, axis=0)  # what is not a number comes last
    counts = (~np.isnan(ordered)).sum(axis=0)
    out = np.full((3, counts.size), np.nan)
    some = np.flatnonzero(counts)
    out[0, some] = np.nansum(table[:, some], axis=0) / counts[some]
    for row, share in enumerate(_INTERVAL, 1):
        place = share * (counts[some] - 1)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, counts[some] - 1)
        out[row, some] = ordered[low, some] + (place - low) * (ordered[high, some] - ordered[low, some])
    return out
