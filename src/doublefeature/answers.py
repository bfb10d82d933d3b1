"""What a model answers, in raw ids, and the making of it from codes: for known users and for folded-in ones alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from doublefeature.item_table import ItemTable
from doublefeature.levels import Level, level_position
from doublefeature.posterior import ranking
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.features import Allocation
from doublefeature.posterior.predict import Codes, FloatArray
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

if TYPE_CHECKING:
    from doublefeature.inference.folding import FoldBase

STRANGER = -1
"""The code of a user or item that is not in the training data."""


class Recommendation(NamedTuple):
    """One item for one user."""

    item: Hashable
    title: str
    mean: float
    sd: float
    lower: Level  # ends of the shortest run of levels that holds the mass asked for, 80 % unless told
    upper: Level
    at_least: float  # probability of the level asked for, or a higher one
    proba: tuple[float, ...]


class RankedItem(NamedTuple):
    """One item of an overall ranking, with the interval of what it is ranked by."""

    item: Hashable
    title: str
    mean: float
    lower: float
    upper: float


class SimilarItem(NamedTuple):
    """One item like another: how their scores go together over users."""

    item: Hashable
    title: str
    correlation: float
    covariance: float


class Question(NamedTuple):
    """An item worth asking a user about."""

    item: Hashable
    title: str
    gain: float  # nats that the rating is expected to tell about the user
    mean: float  # the rating expected


class Fitted(Protocol):
    """What answers need of a fitted model."""

    @property
    def ratings_(self) -> Ratings:
        """What it was fitted on."""

    @property
    def posterior_(self) -> Posterior:
        """Its draws."""

    @property
    def allocation_(self) -> Allocation:
        """The point estimate of its features."""

    @property
    def fold_base_(self) -> FoldBase:
        """The draws made ready to fold in."""

    @property
    def aligner_(self) -> Callable[[Draw], tuple[Codes, NDArray[np.bool_]]]:
        """What each feature of a draw is in the point estimate, and whether its users' complement is meant."""

    @property
    def items_(self) -> ItemTable:
        """Columns of items by raw id."""

    def title(self, item: Hashable) -> str:
        """Return an item's title, empty if none is known."""


class Wanted(NamedTuple):
    """Which items to recommend, in raw ids and levels: the arguments of `recommend`."""

    n: int
    rank_by: ranking.RankBy
    level: Level | None
    quantile: float
    mass: float
    allow: Iterable[Hashable] | None
    deny: Iterable[Hashable] | None
    seed: int


def recommend(
    model: Fitted, posterior: Posterior, user: int, seen: Codes, wanted: Wanted, table: FloatArray | None = None
) -> list[Recommendation]:
    """Return the best items for a user of the posterior (see `doublefeature.posterior.ranking.recommend`)."""
    ratings = model.ratings_
    found = ranking.recommend(
        posterior,
        user,
        seen=seen,
        values=level_values(ratings.levels),
        n=wanted.n,
        rank_by=wanted.rank_by,
        level=None if wanted.level is None else level_position(wanted.level, ratings.levels),
        quantile=wanted.quantile,
        mass=wanted.mass,
        allow=None if wanted.allow is None else [ratings.item_code(item) for item in wanted.allow],
        deny=None if wanted.deny is None else [ratings.item_code(item) for item in wanted.deny],
        seed=wanted.seed,
        table=table,
    )
    labels, levels = ratings.items, ratings.levels
    return [
        Recommendation(
            item=labels[item],
            title=model.title(labels[item]),
            mean=float(found.mean[k]),
            sd=float(found.sd[k]),
            lower=levels[found.lower[k]],
            upper=levels[found.upper[k]],
            at_least=float(found.at_least[k]),
            proba=tuple(found.proba[k].tolist()),
        )
        for k, item in enumerate(found.items.tolist())
    ]


def prefer(model: Fitted, posterior: Posterior, user: int, item_a: Hashable, item_b: Hashable) -> ranking.Preference:
    """Return how likely a user of the posterior rates A above, level with, and below B."""
    if item_a == item_b:
        return ranking.Preference(above=0.0, level=1.0, below=0.0, difference=0.0)
    codes = item_code(model.ratings_, item_a), item_code(model.ratings_, item_b)
    return ranking.prefer(posterior, user, *codes, level_values(model.ratings_.levels))


def user_code(ratings: Ratings, user: Hashable) -> int:
    """Return a user's code, or that of a stranger."""
    return ratings.user_code(user) if ratings.has_user(user) else STRANGER


def item_code(ratings: Ratings, item: Hashable) -> int:
    """Return an item's code, or that of a stranger."""
    return ratings.item_code(item) if ratings.has_item(item) else STRANGER
