"""Ratings and users: list, put, take back, forget."""

from __future__ import annotations

from collections.abc import Hashable

from fastapi import APIRouter

from doublefeature.posterior.forgetting import forget
from doublefeature.server.bodies import StrictRoute
from doublefeature.server.models import Loaded
from doublefeature.server.paths import ItemId, UserId
from doublefeature.server.people import History, as_id, as_level, fitted_ratings, is_usable, user_in_address
from doublefeature.server.problems import COMMON, NotFoundError, responses
from doublefeature.server.schemas import answers as out
from doublefeature.server.schemas.asked import NewRating
from doublefeature.server.service import Service, Serving

router = APIRouter(tags=["ratings"], route_class=StrictRoute, responses={**COMMON, **responses(404, 409)})


@router.get("/users/{user:id}/ratings")
async def list_ratings(service: Serving, user: UserId) -> out.UserRatings:
    """List a user's ratings as they are now: those of the fit, changed by what was sent since."""
    return await service.workers.run(lambda: _list(service, user))


@router.put("/users/{user:id}/ratings/{item:id}")
async def put_rating(service: Serving, user: UserId, item: ItemId, body: NewRating) -> out.Stored:
    """Keep a rating. The answer comes when it is on the disk; from then on answers use it."""

    def work() -> out.Stored:
        loaded = service.holder.current
        who, what, rating = as_id(loaded, user, "user"), as_id(loaded, item, "item"), as_level(loaded, body.rating)
        service.storage.put(who, what, rating)
        used = is_usable(loaded, what, rating)
        return out.Stored(model=loaded.version, user=who, item=what, rating=rating, used=used)

    return await service.keepers.run(work)


@router.delete("/users/{user:id}/ratings/{item:id}")
async def delete_rating(service: Serving, user: UserId, item: ItemId) -> out.Stored:
    """Take a rating back; the next fit will not see it either."""

    def work() -> out.Stored:
        loaded = service.holder.current
        who, what = as_id(loaded, user, "user"), as_id(loaded, item, "item")
        if what not in _ratings_now(service, loaded, who):
            raise NotFoundError("there is no such rating.")
        service.storage.put(who, what, None)
        used = loaded.model.knows_item(what)
        return out.Stored(model=loaded.version, user=who, item=what, rating=None, used=used)

    return await service.keepers.run(work)


@router.delete("/users/{user:id}")
async def forget_user(service: Serving, user: UserId) -> out.Forgotten:
    """Remove a user from the database and from every stored draw of the model; this cannot be undone."""
    return await service.keepers.run(lambda: _forget(service, user))


def _forget(service: Service, user: str) -> out.Forgotten:
    with service.forgetting:
        loaded = service.holder.current
        who = user_in_address(loaded, user)
        known = loaded.model.knows_user(who)
        if not known and not service.storage.changes(who):
            raise NotFoundError("this user is not known.")
        removed = service.storage.forget(who)  # first: what is left undone after it can be done by asking again
        if known:
            forget(loaded.path, who)
            loaded = service.holder.swap()
    return out.Forgotten(model=loaded.version, ratings_removed=removed, was_in_model=known)


def _list(service: Service, user: str) -> out.UserRatings:
    loaded = service.holder.current
    who = user_in_address(loaded, user)
    changes = service.storage.changes(who)
    if not loaded.model.knows_user(who) and not changes:
        raise NotFoundError("this user is not known.")
    rows = [
        out.RatingRow.model_validate(
            {
                "item": item,
                "title": loaded.model.title(item),
                "rating": rating,
                "known_item": loaded.model.knows_item(item),
                "changed": item in changes,
            }
        )
        for item, rating in sorted(_ratings_now(service, loaded, who).items(), key=lambda pair: str(pair[0]))
    ]
    return out.UserRatings(model=loaded.version, user=who, ratings=rows)


def _ratings_now(service: Service, loaded: Loaded, user: Hashable) -> History:
    """Return all ratings of a user, those the model cannot use included."""
    changes = service.storage.changes(user)
    fitted = fitted_ratings(loaded, user) if loaded.model.knows_user(user) else {}
    return {item: rating for item, rating in {**fitted, **changes}.items() if rating is not None}
