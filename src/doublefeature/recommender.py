"""The estimator most people use."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Moves, Priors, Schedule, check_seed, preset
from doublefeature.errors import NotFittedError
from doublefeature.inference.chain import sample
from doublefeature.inference.progress import ProgressCallback
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.predict import predict_levels
from doublefeature.ratings import Ratings
from doublefeature.readers import read_ratings

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Predicted levels of (user, item) pairs."""

    pairs: list[tuple[Hashable, Hashable]]
    levels: tuple[Any, ...]
    proba: FloatArray  # (pairs, levels) probability of every level

    @property
    def mode(self) -> list[Any]:
        """The most probable level of each pair."""
        return [self.levels[position] for position in self.proba.argmax(axis=1)]

    @property
    def mean(self) -> FloatArray:
        """Mean rating of each pair; text levels count as 1, 2, …."""
        return self.proba @ self._values

    @property
    def sd(self) -> FloatArray:
        """Standard deviation of the rating of each pair."""
        spread: FloatArray = np.sqrt(np.maximum(self.proba @ self._values**2 - self.mean**2, 0.0))
        return spread

    @property
    def _values(self) -> FloatArray:
        if isinstance(self.levels[0], str):
            return np.arange(1.0, len(self.levels) + 1.0)
        return np.array(self.levels, dtype=np.float64)


class DoubleFeature:
    """Predict ordinal ratings through overlapping features of users and items.

    Parameters
    ----------
    preset
        Name of the model; `paper` is the model of Lin and Müller.
    priors, schedule, moves
        What the model is, how long it runs, how a sweep goes. `priors` replaces the preset's.
    seed
        Fixes every random number; the draws do not depend on threads.

    Examples
    --------
    >>> import doublefeature as df
    >>> model = df.DoubleFeature(seed=1).fit("ratings.csv")      # doctest: +SKIP
    >>> model.predict([("u17", "Alien")]).proba                  # doctest: +SKIP
    """

    ratings_: Ratings
    posterior_: Posterior

    def __init__(
        self,
        *,
        preset: str = "paper",
        priors: Priors | None = None,
        schedule: Schedule | None = None,
        moves: Moves | None = None,
        seed: int = 0,
    ) -> None:
        self.preset = preset
        self.priors = priors
        self.schedule = schedule
        self.moves = moves
        self.seed = seed

    def fit(self, ratings: Any, *, progress: ProgressCallback | None = None) -> Self:
        """Sample the posterior given ratings: a `Ratings`, a path, or a data frame."""
        seed = check_seed(self.seed)
        priors = self.priors or preset(self.preset)
        data = ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
        self.posterior_ = sample(data, priors, self.schedule, self.moves, seed=seed, progress=progress)
        self.ratings_ = data
        return self

    def predict(self, pairs: Iterable[tuple[Hashable, Hashable]]) -> Prediction:
        """Return the probability of every level for pairs of raw ids."""
        if not hasattr(self, "posterior_"):
            raise NotFittedError("this model has not been fitted. Call fit(ratings) first.")
        asked = list(pairs)
        users = np.array([self.ratings_.user_code(user) for user, _ in asked], dtype=np.int64)
        items = np.array([self.ratings_.item_code(item) for _, item in asked], dtype=np.int64)
        table = predict_levels(self.posterior_, users, items)
        return Prediction(asked, tuple(self.ratings_.levels), table)
