"""An item that was folded in: what the model answers about it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from doublefeature.answers import STRANGER, Fitted, user_code
from doublefeature.folded import coded
from doublefeature.inference.folding import NewRow
from doublefeature.inference.new_covariates import item_covariates
from doublefeature.levels import Level
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.explain import Part, part_of
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.prediction import Prediction
from doublefeature.posterior.strangers import STRANGERS, item_rows


@dataclass(frozen=True, eq=False)
class FoldedItem:
    """An item that was folded in. Without ratings and covariates the prior answers."""

    item: Hashable
    ratings: Mapping[Hashable, Level]
    model: Fitted
    posterior: Posterior
    code: int

    def predict(self, users: Iterable[Hashable]) -> Prediction:
        """Return the probability of every level for users; for unknown ones the prior answers."""
        asked = list(users)
        codes = np.array([user_code(self.model.ratings_, user) for user in asked], np.int64)
        table = predict_levels(self.posterior, codes, np.full(codes.size, self.code))
        known = np.stack([codes >= 0, np.full(codes.size, self.code >= 0)], axis=1)
        return Prediction([(user, self.item) for user in asked], tuple(self.model.ratings_.levels), table, known)

    def offset(self, mass: float = 0.8) -> Part:
        """Return the item's offset: its mean over draws, and the interval that holds this share of them."""
        codes = np.array([self.code]) if self.code >= 0 else -1 - np.arange(STRANGERS)
        return part_of(np.concatenate([item_rows(draw, codes).offset for draw in self.posterior]), mass)


def fold_item(
    model: Fitted,
    ratings: Mapping[Hashable, Level],
    item: Hashable | None,
    covariates: Mapping[str, str | float] | None,
) -> FoldedItem:
    """Fold in a new item with these ratings, raw user ids to levels, and columns."""
    codes, levels = coded(ratings, model.ratings_.user_code, model.ratings_.levels)
    told = item_covariates(model.ratings_, model.items_, covariates or {})
    posterior, code = model.posterior_, STRANGER
    if codes.size or told.any():
        posterior, code = model.fold_base_.fold_item(NewRow(codes, levels, told)), 0
    return FoldedItem(item, dict(ratings), model, posterior, code)
