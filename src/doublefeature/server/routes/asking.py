"""Questions about a person: known to the service, or described by ratings sent along."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from doublefeature.server import answers
from doublefeature.server.bodies import StrictRoute
from doublefeature.server.models import Loaded
from doublefeature.server.paths import ItemId, UserId
from doublefeature.server.people import Person, as_id, item_in_address, known_item, stored_person
from doublefeature.server.problems import COMMON, NotFoundError, responses
from doublefeature.server.schemas import answers as out
from doublefeature.server.schemas.asked import (
    About,
    AskExplanation,
    AskItems,
    AskPairs,
    AskPreference,
    AskQuestions,
    AskRecommendations,
    RankBy,
)
from doublefeature.server.service import Service, Serving

_FEW = 50

router = APIRouter(tags=["asks"], route_class=StrictRoute, responses={**COMMON, **responses(409)})


@router.get("/users/{user:id}/recommendations", responses=responses(404))
async def recommend_to_user(
    service: Serving,
    user: UserId,
    n: Annotated[int, Query(ge=1, le=1000)] = 10,
    rank_by: RankBy = "mean",
    level: Annotated[str | None, Query(min_length=1, max_length=1000)] = None,
    quantile: Annotated[float, Query(ge=0.001, le=0.999, allow_inf_nan=False)] = 0.1,
    seed: Annotated[int, Query(ge=0, lt=2**32)] = 0,
) -> out.Recommendations:
    """Recommend items that a user has not rated, with a probability for every level."""
    asked = AskRecommendations(user=user, n=n, rank_by=rank_by, level=level, quantile=quantile, seed=seed)
    return await service.ask(
        asked,
        lambda loaded, person: answers.recommendations(loaded, _someone(person), asked),
        small=_is_small(asked),
        in_address=True,
    )


@router.post("/recommendations")
async def recommend(service: Serving, asked: AskRecommendations) -> out.Recommendations:
    """Recommend to a known user, to someone described by ratings, or to anybody."""
    return await service.ask(
        asked, lambda loaded, person: answers.recommendations(loaded, person, asked), small=_is_small(asked)
    )


@router.post("/predictions")
async def predict_pairs(service: Serving, asked: AskPairs) -> out.Predictions:
    """Predict ratings of (user, item) pairs; for unknown ids the prior answers, and the answer says so."""
    return await service.look(
        lambda loaded: answers.predictions_of_pairs(loaded, asked, _changed(service, loaded, asked))
    )


@router.post("/predictions/items")
async def predict_items(service: Serving, asked: AskItems) -> out.Predictions:
    """Predict how one person, known or described by ratings, would rate items."""
    return await service.ask(
        asked, lambda loaded, person: answers.predictions_for(loaded, person, asked.items, asked.mass)
    )


@router.post("/preferences")
async def prefer(service: Serving, asked: AskPreference) -> out.PreferenceAnswer:
    """Say how likely a person rates A above, level with, or below B."""
    return await service.ask(
        asked,
        lambda loaded, person: answers.preference(
            loaded, person, known_item(loaded, asked.a), known_item(loaded, asked.b)
        ),
    )


@router.get("/users/{user:id}/explanations/{item:id}", responses=responses(404))
async def explain_to_user(
    service: Serving,
    user: UserId,
    item: ItemId,
    mass: Annotated[float, Query(gt=0.0, lt=1.0, allow_inf_nan=False)] = 0.8,
) -> out.ExplanationAnswer:
    """Take the score of a user and an item apart: base, offsets, and each shared feature."""
    return await service.ask(
        About(user=user),
        lambda loaded, person: answers.explanation(loaded, _someone(person), item_in_address(loaded, item), mass),
        in_address=True,
    )


@router.post("/explanations")
async def explain(service: Serving, asked: AskExplanation) -> out.ExplanationAnswer:
    """Take the score apart for a person known or described by ratings."""
    return await service.ask(
        asked,
        lambda loaded, person: answers.explanation(loaded, person, known_item(loaded, asked.item), asked.mass),
    )


@router.get("/users/{user:id}/questions", responses=responses(404))
async def questions_to_user(service: Serving, user: UserId, n: Annotated[int, Query(ge=1, le=50)] = 1) -> out.Questions:
    """Name the items whose rating by the user would tell most about them."""
    return await service.ask(
        About(user=user), lambda loaded, person: answers.questions(loaded, _someone(person), n), in_address=True
    )


@router.post("/questions")
async def questions(service: Serving, asked: AskQuestions) -> out.Questions:
    """Name the items whose rating would tell most about a person known or described by ratings."""
    return await service.ask(asked, lambda loaded, person: answers.questions(loaded, person, asked.n))


def _is_small(asked: AskRecommendations) -> bool:
    """Whether few items are wanted and none have to be looked up."""
    return asked.n <= _FEW and asked.allow is None and asked.deny is None


def _someone(person: Person) -> Person:
    """Refuse users of whom neither the model nor the database has anything."""
    if not (person.known or person.ratings or person.stored):
        raise NotFoundError("this user is not known. Send ratings along with POST, or put some first.")
    return person


def _changed(service: Service, loaded: Loaded, asked: AskPairs) -> list[Person | None]:
    """Return, for each pair, the user if their ratings are other than what the model learnt from."""
    people: dict[object, Person | None] = {}
    found = []
    for pair in asked.pairs:
        user = as_id(loaded, pair.user, "user")
        if user not in people:
            person = stored_person(loaded, user, service.storage.changes(user))
            people[user] = person if person.changed else None
        found.append(people[user])
    return found
