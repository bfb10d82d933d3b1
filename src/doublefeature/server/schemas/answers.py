"""Answers about people: recommendations, predictions, preferences, explanations, questions, ratings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from doublefeature.server.schemas.asked import RankBy
from doublefeature.server.schemas.base import Answer, Id, Level, Part

Source = Literal["posterior", "fold-in", "prior"]


class Row(BaseModel):
    """One line of an answer."""

    model_config = ConfigDict(extra="forbid")


class Personal(Answer):
    """An answer about a person."""

    user: Id | None
    source: Source = Field(
        description="posterior: learnt with the model; fold-in: from ratings since then or sent along; prior: anybody."
    )
    n_ratings: int = Field(description="Ratings of this person that the answer rests on.")


class RecommendedItem(Row):
    """An item with what is predicted for it."""

    item: Id
    title: str
    mean: float
    sd: float
    lower: Level = Field(description="Ends of the shortest run of levels that holds 80 %.")
    upper: Level
    at_least: float = Field(description="Probability of `level` or more.")
    proba: list[float] = Field(description="Probability of every level.")


class Recommendations(Personal):
    """Items a person has not rated, best first."""

    rank_by: RankBy
    level: Level
    levels: list[Level]
    items: list[RecommendedItem]


class PredictedPair(Row):
    """What is predicted for a user and an item."""

    user: Id | None
    item: Id
    known_user: bool = Field(description="False: nothing is known of the user, and the prior answers.")
    known_item: bool
    mean: float
    median: Level
    mode: Level
    sd: float
    lower: Level
    upper: Level
    proba: list[float]


class Predictions(Answer):
    """What is predicted for pairs, in the order asked."""

    levels: list[Level]
    mass: float
    pairs: list[PredictedPair]


class PreferenceAnswer(Personal):
    """How likely A is rated above, level with and below B."""

    a: Id
    b: Id
    above: float
    level: float
    below: float
    difference: float


class ExplainedFeature(Row):
    """What one feature, or all others together, add."""

    feature: int | None = Field(description="Number of the feature; None: all others together.")
    shared: float = Field(description="Probability that person and item both belong.")
    contribution: Part
    effect: float | None
    in_estimate: bool


class ExplanationAnswer(Personal):
    """A score taken apart: base + offsets + features + remainder."""

    item: Id
    title: str
    base: float
    item_offset: Part
    user_offset: Part
    remainder: Part | None
    features: list[ExplainedFeature]
    score: Part
    levels: list[Level]
    proba: list[float]
    mass: float


class QuestionRow(Row):
    """An item whose rating would tell much."""

    item: Id
    title: str
    gain: float = Field(description="Expected information about the person, in nats.")
    mean: float


class Questions(Personal):
    """What to ask next, the most telling first."""

    items: list[QuestionRow]
    doubt: float = Field(
        description="How far expected ratings still depend on what is not known of the person: a standard deviation, "
        "in levels, averaged over all items."
    )


class RatingRow(Row):
    """One rating of a user."""

    item: Id
    title: str
    rating: Level
    known_item: bool = Field(description="False: kept for the next fit, not used before.")
    changed: bool = Field(description="Whether it was sent to the service after the model was fitted.")


class UserRatings(Answer):
    """A user's ratings as they are now."""

    user: Id
    ratings: list[RatingRow]


class Stored(Answer):
    """A rating is on the disk."""

    user: Id
    item: Id
    rating: Level | None
    used: bool = Field(description="Whether answers take it into account from now on; the next fit always does.")


class Forgotten(Answer):
    """A user is gone from the database and the model."""

    ratings_removed: int
    was_in_model: bool
