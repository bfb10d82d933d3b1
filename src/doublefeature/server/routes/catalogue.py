"""Features, items and users, to look at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from doublefeature.server import catalogue
from doublefeature.server.bodies import StrictRoute
from doublefeature.server.paths import ItemId, UserId
from doublefeature.server.people import stored_person, user_in_address
from doublefeature.server.problems import COMMON, responses
from doublefeature.server.schemas import catalogue as out
from doublefeature.server.service import Serving

router = APIRouter(tags=["catalogue"], route_class=StrictRoute, responses={**COMMON, **responses(404, 409)})

Search = Annotated[str, Query(max_length=200, description="Part of a title or id.")]
Limit = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0, le=10_000_000)]


@router.get("/features")
async def list_features(service: Serving) -> out.FeatureList:
    """List the features, the largest first."""
    return await service.look(catalogue.features)


@router.get("/features/blocks")
async def feature_blocks(service: Serving) -> out.Blocks:
    """Return the users × items picture of the leading features."""
    return await service.look(catalogue.blocks)


@router.get("/features/{number}")
async def feature_detail(service: Serving, number: Annotated[int, Path(ge=0, lt=2**31)]) -> out.FeatureDetail:
    """Return one feature with its items and users."""
    return await service.look(lambda loaded: catalogue.feature(loaded, number))


@router.get("/items")
async def search_items(service: Serving, search: Search = "", limit: Limit = 20, offset: Offset = 0) -> out.ItemList:
    """Find items by title or id; those rated most come first."""
    return await service.look(lambda loaded: catalogue.find_items(loaded, search, limit, offset))


@router.get("/items/{item:id}")
async def item_detail(service: Serving, item: ItemId) -> out.ItemDetail:
    """Return what is known of an item."""
    return await service.look(lambda loaded: catalogue.item(loaded, item))


@router.get("/items/{item:id}/similar")
async def similar_items(service: Serving, item: ItemId, n: Annotated[int, Query(ge=1, le=100)] = 10) -> out.Similar:
    """List items that the same people like."""
    return await service.look(lambda loaded: catalogue.similar(loaded, item, n))


@router.get("/users")
async def search_users(service: Serving, search: Search = "", limit: Limit = 20, offset: Offset = 0) -> out.UserList:
    """Find users of the model by id."""
    return await service.look(lambda loaded: catalogue.find_users(loaded, search, limit, offset))


@router.get("/users/{user:id}")
async def user_detail(service: Serving, user: UserId) -> out.UserDetail:
    """Return what is known of a user."""

    def work() -> out.UserDetail:
        loaded = service.holder.current
        who = user_in_address(loaded, user)
        changes = service.storage.changes(who)
        return catalogue.user(loaded, stored_person(loaded, who, changes), len(changes))

    return await service.workers.run(work)


@router.get("/users/{user:id}/similar")
async def similar_people(
    service: Serving, user: UserId, n: Annotated[int, Query(ge=1, le=100)] = 8
) -> out.SimilarUsers:
    """List users of the model who like the same items."""
    return await service.look(lambda loaded: catalogue.users_like(loaded, user, n))
