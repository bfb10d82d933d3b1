"""Answers about the model: features, items, users, and how far to trust it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from doublefeature.server.schemas.answers import Row
from doublefeature.server.schemas.base import Answer, Id, Level, Part


class LevelCount(Row):
    """How often a level was given."""

    level: Level
    count: int


class ItemRow(Row):
    """An item in a list."""

    item: Id
    title: str
    n_ratings: int
    mean: float | None


class ItemList(Answer):
    """Items found."""

    total: int
    items: list[ItemRow]


class UserRow(Row):
    """A user in a list."""

    user: Id
    n_ratings: int
    mean: float | None


class UserList(Answer):
    """Users found."""

    total: int
    users: list[UserRow]


class Membership(Row):
    """A feature someone or something belongs to."""

    feature: int
    probability: float
    effect: float | None = Field(
        description="What the feature adds: of an item, to the item itself, None if not known; of a user, on average."
    )


class SimilarRow(Row):
    """An item like another."""

    item: Id
    title: str
    correlation: float
    covariance: float


class Similar(Answer):
    """Items like another, nearest first."""

    item: Id
    items: list[SimilarRow]


class ItemDetail(Answer):
    """All that is known of an item."""

    item: Id
    title: str
    columns: dict[str, str]
    n_ratings: int
    counts: list[LevelCount]
    predicted: list[float] = Field(description="Probability of every level, averaged over users.")
    offset: Part
    features: list[Membership]


class SimilarUser(Row):
    """A user like another."""

    user: Id
    correlation: float


class SimilarUsers(Answer):
    """Users like another, nearest first."""

    user: Id
    users: list[SimilarUser]


class UserDetail(Answer):
    """All that is known of a user."""

    user: Id
    in_model: bool
    n_ratings: int
    n_changes: int
    counts: list[LevelCount]
    offset: Part | None
    features: list[Membership]


class FeatureItem(Row):
    """A leading item of a feature."""

    item: Id
    title: str
    probability: float
    effect: float | None


class FeatureRow(Row):
    """One feature: some users, some items, an effect."""

    number: int
    effect: Part
    n_users: int
    n_items: int
    n_ratings: int | None
    recurrence: float = Field(description="Share of draws in which it is found.")
    recurrence_by_chain: dict[str, float]
    leading: list[FeatureItem]


class FeatureList(Answer):
    """All features, the largest first."""

    features: list[FeatureRow]


class FeatureUser(Row):
    """A user of a feature."""

    user: Id
    probability: float


class FeatureDetail(Answer):
    """One feature with its members."""

    feature: FeatureRow
    items: list[FeatureItem]
    users: list[FeatureUser]


class Blocks(Answer):
    """The users × items picture: which features each row and column belongs to, in an order that keeps blocks whole."""

    features: list[int]
    users: list[list[int]]
    items: list[list[int]]
    n_users: int
    n_items: int


class ModelInfo(Answer):
    """What is being served."""

    folder: str
    library: str
    preset: str
    users: int
    items: int
    ratings: int
    levels: list[Level]
    high_level: Level
    draws: int
    chains: int
    finished: bool
    features: int
    titled: bool
    user_example: Id | None
    alarm: str | None = Field(description="Why the last new model was refused; None when all is well.")
    priors: dict[str, Any]
    schedule: dict[str, Any]


class Card(Answer):
    """The model's card."""

    markdown: str


class TraceRow(Row):
    """One chain, sweep by sweep, thinned."""

    chain: int
    sweeps: list[int]
    log_likelihood: list[float]
    n_features: list[int]
    noise_scale: list[float]


class QuantityRow(Row):
    """How far the chains agree on one number."""

    name: str
    mean: float | None
    sd: float | None
    rhat: float | None
    ess: float | None


class Diagnosis(Answer):
    """Do the chains agree?"""

    level: str
    reasons: list[str]
    advice: list[str]
    warmup: int
    quantities: list[QuantityRow]
    traces: list[TraceRow]


class CalibrationBin(Row):
    """Predictions of about the same probability, and how often they came true."""

    n: int
    predicted: float
    observed: float
    lower: float
    upper: float


class Quality(Answer):
    """How good predictions of held-out ratings are; `n` is 0 and the rest empty when none were held out."""

    n: int
    exact: float | None
    within_one: float | None
    rmse: float | None
    coverage_80: float | None
    calibration_error: float | None
    bins: list[CalibrationBin]


class Health(Row):
    """Whether the service can answer."""

    status: str
    model: str | None
    alarm: str | None = None
