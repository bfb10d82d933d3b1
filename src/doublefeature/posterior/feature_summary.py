"""What is said of one feature of an estimate: members, effect and how stable it is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doublefeature.posterior.item_effects import ItemEffects

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CLOSE = 0.3
"""A feature recurs in a draw when its partner's relative distance is below this."""


@dataclass(frozen=True, eq=False)
class FeatureSummary:
    """One feature of an estimate, seen over all draws.

    A draw's *partner* of the feature is the draw's feature matched with it. The feature *recurs* in a draw when the
    partner S', T' has an effect of the same sign and w |S xor S'| / (|S| + |S'|) + (1 − w) |T xor T'| / (|T| + |T'|)
    below `CLOSE`: users and items count alike (w = ½) whatever their numbers. Graded, members differ in how much they
    count, and the feature recurs where what the partner adds is like what it adds on average
    (`doublefeature.posterior.likeness`).
    """

    users: IntArray
    items: IntArray
    effect: float
    """Mean over the draws in which it recurs; if there are none, over its partners, or else the estimate's effect."""
    effect_sd: float
    effect_80: tuple[float, float]
    effect_95: tuple[float, float]
    recurrence: float
    """Share of draws in which it recurs."""
    recurrence_by_chain: dict[int, float]
    user_probability: FloatArray
    """For every user, the share of all draws whose partner has the user."""
    item_probability: FloatArray
    user_probability_matched: FloatArray
    """The same over the draws in which the feature recurs; zero if there are none."""
    item_probability_matched: FloatArray
    leading_items: IntArray
    """The items by probability, graded by size of their effect, then by number of raters."""
    n_ratings: int | None
    """Ratings given by its users to its items."""
    leading_effects: ItemEffects | None = None
    """Graded: what each of the leading items adds where it belongs, mean and 80 % interval."""

    def to_dict(self, users: Sequence[Hashable], items: Sequence[Hashable]) -> dict[str, Any]:
        """Return plain values, ready for JSON, with the raw ids of the given tables in place of codes."""
        return {
            "effect": self.effect,
            "effect_sd": self.effect_sd,
            "effect_80": list(self.effect_80),
            "effect_95": list(self.effect_95),
            "recurrence": self.recurrence,
            "recurrence_by_chain": {str(chain): share for chain, share in self.recurrence_by_chain.items()},
            "n_users": int(self.users.size),
            "n_items": int(self.items.size),
            "n_ratings": self.n_ratings,
            "items": self._items_to_dict(items),
            "users": _labelled(users, self.users, self.user_probability, self.user_probability_matched),
        }

    def _items_to_dict(self, items: Sequence[Hashable]) -> list[dict[str, Any]]:
        rows = _labelled(items, self.leading_items, self.item_probability, self.item_probability_matched)
        if self.leading_effects is not None:
            for row, mean, lower, upper in zip(rows, *map(np.ndarray.tolist, self.leading_effects), strict=True):
                row.update(effect=mean, effect_80=[lower, upper])
        return rows


def _labelled(
    labels: Sequence[Hashable], codes: IntArray, probability: FloatArray, matched: FloatArray
) -> list[dict[str, Any]]:
    return [
        {"id": labels[code], "probability": float(probability[code]), "probability_matched": float(matched[code])}
        for code in codes.tolist()
    ]
