"""Questions and ratings as they are sent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from doublefeature.server.schemas.base import MOST_IDS, MOST_PAIRS, MOST_RATINGS, Asked, Id, Level

RankBy = Literal["mean", "lower", "at_least", "thompson"]
HowMany = Annotated[int, Field(strict=True, ge=1, le=1000)]
Mass = Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)]


class Rated(Asked):
    """One rating."""

    item: Id
    rating: Level


class NewRating(Asked):
    """A rating to keep."""

    rating: Level


class About(Asked):
    """Who is asked about.

    With `ratings`, someone who rated exactly these items so; `user` then names a known user whose ratings these are
    now. With `user` alone, that user as the service knows them. With neither, anybody.
    """

    user: Id | None = None
    ratings: list[Rated] | None = Field(default=None, max_length=MOST_RATINGS)


class AskRecommendations(About):
    """Which items next?"""

    n: HowMany = 10
    rank_by: RankBy = "mean"
    level: Level | None = Field(default=None, description="Level for at_least; default: three quarters up the scale.")
    quantile: float = Field(default=0.1, ge=0.001, le=0.999, allow_inf_nan=False, description="Quantile for lower.")
    allow: list[Id] | None = Field(default=None, max_length=MOST_IDS, description="The only items to choose from.")
    deny: list[Id] | None = Field(default=None, max_length=MOST_IDS, description="Items never to recommend.")
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 0


class Pair(Asked):
    """A user and an item."""

    user: Id
    item: Id


class AskPairs(Asked):
    """How would these users rate these items?"""

    pairs: list[Pair] = Field(min_length=1, max_length=MOST_PAIRS)
    mass: Mass = 0.8


class AskItems(About):
    """How would this person rate these items?"""

    items: list[Id] = Field(min_length=1, max_length=MOST_PAIRS)
    mass: Mass = 0.8


class AskPreference(About):
    """A or B?"""

    a: Id
    b: Id


class AskExplanation(About):
    """Why this prediction?"""

    item: Id
    mass: Mass = 0.8


class AskQuestions(About):
    """Whose ratings would tell most about this person?"""

    n: Annotated[int, Field(strict=True, ge=1, le=50)] = 1


class Reload(Asked):
    """Which model to serve from now on."""

    folder: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")] | None = Field(
        default=None, description="Name of a folder beside the one served; default: read that one again."
    )
