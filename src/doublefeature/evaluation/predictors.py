"""A fitted model as a predictor in codes: of users it was fitted on, and of users it folds in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from doublefeature.evaluation.baselines import Codes, FloatArray, Predicted, Predictor
from doublefeature.evaluation.splits import Split
from doublefeature.inference.folding import NewRow
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings
from doublefeature.recommender import DoubleFeature

MODEL = "doublefeature"


@dataclass(frozen=True, eq=False)
class ModelPredictor:
    """A fitted model that speaks in codes."""

    model: DoubleFeature
    name: str = MODEL

    def predict(self, users: Codes, items: Codes) -> Predicted:
        """Return the level probabilities, averaged over draws and chains, and their means."""
        proba = predict_levels(self.model.posterior_, users, items)
        return Predicted(proba, proba @ level_values(self.model.ratings_.levels))

    def means(self, users: Codes) -> FloatArray:
        """Return the mean rating of every item."""
        n_items = self.model.ratings_.n_items
        every = np.arange(n_items)
        found = self.predict(np.repeat(users, n_items), np.tile(every, users.size))
        return found.mean.reshape(users.size, n_items)


@dataclass(frozen=True, eq=False)
class FoldingPredictor:
    """A fitted model that speaks in codes and folds in users it was not fitted on."""

    model: DoubleFeature
    given: Ratings  # of such users
    name: str = MODEL

    def predict(self, users: Codes, items: Codes) -> Predicted:
        """Return the level probabilities and their means; of users without given ratings as the model has them."""
        values = level_values(self.model.ratings_.levels)
        proba = np.empty((users.size, values.size))
        for user in np.unique(users).tolist():
            asked = np.flatnonzero(users == user)
            posterior, code = self._fold(user)
            proba[asked] = predict_levels(posterior, np.full(asked.size, code), items[asked])
        return Predicted(proba, proba @ values)

    def means(self, users: Codes) -> FloatArray:
        """Return the mean rating of every item."""
        every = np.arange(self.model.ratings_.n_items)
        return np.stack([self.predict(np.full(every.size, user), every).mean for user in users.tolist()])

    def _fold(self, user: int) -> tuple[Posterior, int]:
        part = slice(*self.given.arrays.user_ptr[user : user + 2])
        codes, levels = (column[part].astype(np.int64) for column in self.given.arrays[1:3])
        if not codes.size:
            return self.model.posterior_, user
        table = self.model.ratings_.covariates.users
        covariates = np.zeros(0) if table is None else table[user]
        base = self.model.fold_base_
        return base.posterior_of(base.fold_user(NewRow(codes, levels, covariates))), 0


def predictor_of(model: DoubleFeature, split: Split) -> Predictor:
    """Return the model as the predictor that a split asks for."""
    return ModelPredictor(model) if split.given is None else FoldingPredictor(model, split.given)
