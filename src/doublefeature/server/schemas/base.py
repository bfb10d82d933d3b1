"""What all requests and answers share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MOST_ID = 1000
"""Characters of an id."""
MOST_RATINGS = 5000
"""Ratings sent along with a question."""
MOST_IDS = 10_000
MOST_PAIRS = 1000

_Text = Annotated[str, Field(strict=True, min_length=1, max_length=MOST_ID)]
_Whole = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
_Decimal = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Id = Annotated[_Whole | _Text, Field(description="A user or an item, as in the ratings: a text or a whole number.")]
Level = Annotated[_Whole | _Decimal | _Text, Field(description="One of the model's levels.")]


class Asked(BaseModel):
    """A request's body: nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """An answer, wholly from the model that it names."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="Version of the model that answers.")


class Part(BaseModel):
    """A number's posterior mean and interval."""

    model_config = ConfigDict(extra="forbid")

    mean: float
    lower: float
    upper: float
