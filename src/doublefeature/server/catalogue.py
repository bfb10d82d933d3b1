"""Features, items and users of the model as answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from doublefeature.levels import Level
from doublefeature.posterior import explain
from doublefeature.posterior.arranging import arrange, spread_evenly, thin
from doublefeature.posterior.feature_summary import FeatureSummary
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.prediction import level_values
from doublefeature.posterior.similar import INTERVAL_MASS, similar_users
from doublefeature.ratings import RatingArrays
from doublefeature.server.models import Loaded
from doublefeature.server.people import Person, item_in_address, user_in_address
from doublefeature.server.problems import NotFoundError
from doublefeature.server.schemas import catalogue as out
from doublefeature.server.schemas.base import Part
from doublefeature.server.searching import Names

IN_PICTURE = 8
MOST_ROWS, MOST_COLUMNS = 160, 240
_LEADING = 6
_MOST_MEMBERS = 200
_DRAWS_COMPARED = 40
_MOST_ASKED = 300


def features(loaded: Loaded) -> out.FeatureList:
    """Return all features."""
    rows = [feature_row(loaded, k, one) for k, one in enumerate(loaded.model.features_)]
    return out.FeatureList(model=loaded.version, features=rows)


def feature(loaded: Loaded, number: int) -> out.FeatureDetail:
    """Return one feature with its members."""
    found = loaded.model.features_
    if number >= len(found):
        raise NotFoundError(f"there is no such feature: the model has {len(found)}, counted from 0.")
    one, users = found[number], loaded.users
    order = np.argsort(-one.user_probability[one.users], kind="stable")[:_MOST_MEMBERS]
    members = [
        out.FeatureUser(user=users[code], probability=float(one.user_probability[code]))
        for code in one.users[order].tolist()
    ]
    return out.FeatureDetail(
        model=loaded.version,
        feature=feature_row(loaded, number, one),
        items=_leading(loaded, one, _MOST_MEMBERS),
        users=members,
    )


def feature_row(loaded: Loaded, number: int, one: FeatureSummary) -> out.FeatureRow:
    """Return one feature."""
    low, high = one.effect_80
    return out.FeatureRow(
        number=number,
        effect=Part(mean=one.effect, lower=low, upper=high),
        n_users=int(one.users.size),
        n_items=int(one.items.size),
        n_ratings=one.n_ratings,
        recurrence=one.recurrence,
        recurrence_by_chain={str(chain): share for chain, share in one.recurrence_by_chain.items()},
        leading=_leading(loaded, one, _LEADING),
    )


def blocks(loaded: Loaded) -> out.Blocks:
    """Return the picture of the leading features of two users or more."""
    told = [k for k, one in enumerate(loaded.model.features_) if one.users.size > 1][:IN_PICTURE]
    allocation = loaded.model.allocation_
    users, items = allocation.user_members[:, told], allocation.item_members[:, told]
    rows = thin(arrange(users, items.sum(axis=0)), MOST_ROWS)
    columns = thin(arrange(items, users.sum(axis=0)), MOST_COLUMNS)
    return out.Blocks(
        model=loaded.version,
        features=told,
        users=[np.flatnonzero(users[row]).tolist() for row in rows.tolist()],
        items=[np.flatnonzero(items[column]).tolist() for column in columns.tolist()],
        n_users=users.shape[0],
        n_items=items.shape[0],
    )


def find_items(loaded: Loaded, search: str, limit: int, offset: int) -> out.ItemList:
    """Return items whose title or id holds all words of a text (see `doublefeature.server.searching`)."""
    ratings, items = loaded.model.ratings_, loaded.items
    names = loaded.fact("item names", lambda: Names(items, [loaded.model.title(item) for item in items]))
    found = names.find(search, np.diff(ratings.arrays.item_ptr))
    rows = [
        out.ItemRow(item=items[code], title=loaded.model.title(items[code]), n_ratings=n, mean=mean)
        for code, (n, mean) in _habits(loaded, found[offset : offset + limit], "item")
    ]
    return out.ItemList(model=loaded.version, total=len(found), items=rows)


def find_users(loaded: Loaded, search: str, limit: int, offset: int) -> out.UserList:
    """Return users whose id holds a text."""
    ratings = loaded.model.ratings_
    names = loaded.fact("user names", lambda: Names(loaded.users))
    found = names.find(search, np.diff(ratings.arrays.user_ptr))
    rows = [
        out.UserRow(user=loaded.users[code], n_ratings=n, mean=mean)
        for code, (n, mean) in _habits(loaded, found[offset : offset + limit], "user")
    ]
    return out.UserList(model=loaded.version, total=len(found), users=rows)


def item(loaded: Loaded, given: str) -> out.ItemDetail:
    """Return what is known of an item."""
    model = loaded.model
    label, code = _known_item(loaded, given)
    counts = np.bincount(_levels_given(loaded, code, "item"), minlength=model.ratings_.n_levels)
    return out.ItemDetail(
        model=loaded.version,
        item=label,
        title=model.title(label),
        columns=dict(model.items_.get(label, {})),
        n_ratings=int(counts.sum()),
        counts=_counts(loaded, counts),
        predicted=loaded.fact(("levels", code), lambda: _mean_levels(loaded, code)),
        offset=loaded.fact(
            ("offset", code), lambda: _told(explain.general_offset(model.posterior_, code, align=model.aligner_))
        ),
        features=_memberships(loaded, code, "item"),
    )


def similar(loaded: Loaded, given: str, n: int) -> out.Similar:
    """Return the items like one."""
    label, _ = _known_item(loaded, given)
    found = loaded.fact(("similar", label, n), lambda: loaded.model.similar_items(label, n))
    return out.Similar(model=loaded.version, item=label, items=[out.SimilarRow(**row._asdict()) for row in found])


def user(loaded: Loaded, person: Person, n_changes: int) -> out.UserDetail:
    """Return what is known of a user."""
    if person.user is None or not (person.known or n_changes):
        raise NotFoundError("this user is not known.")
    ratings = loaded.model.ratings_
    places = {level: place for place, level in enumerate(ratings.levels)}
    counts = np.bincount([places[level] for level in person.ratings.values()], minlength=ratings.n_levels)
    code = ratings.user_code(person.user) if person.known else None
    return out.UserDetail(
        model=loaded.version,
        user=person.user,
        in_model=person.known,
        n_ratings=len(person.ratings),
        n_changes=n_changes,
        counts=_counts(loaded, counts),
        offset=None if code is None else _user_offset(loaded, code),
        features=[] if code is None else _memberships(loaded, code, "user"),
    )


def users_like(loaded: Loaded, given: str, n: int) -> out.SimilarUsers:
    """Return the users like one, judged by some of the draws."""
    who = user_in_address(loaded, given)
    if not loaded.model.knows_user(who):
        raise NotFoundError("the model does not know this user.")
    posterior, code = loaded.model.posterior_, loaded.model.ratings_.user_code(who)
    some = [posterior.draws[place] for place in spread_evenly(len(posterior), _DRAWS_COMPARED).tolist()]
    found = loaded.fact(("alike", code, n), lambda: similar_users(replace(posterior, draws=some), code, n))
    pairs = zip(found.codes.tolist(), found.correlation.tolist(), strict=True)
    rows = [out.SimilarUser(user=loaded.users[other], correlation=value) for other, value in pairs]
    return out.SimilarUsers(model=loaded.version, user=who, users=rows)


def _known_item(loaded: Loaded, given: str) -> tuple[int | str, int]:
    label = item_in_address(loaded, given)
    return label, loaded.model.ratings_.item_code(label)


def _told(part: explain.Part) -> Part:
    return Part(mean=part.mean, lower=part.lower, upper=part.upper)


def _leading(loaded: Loaded, one: FeatureSummary, most: int) -> list[out.FeatureItem]:
    items, model = loaded.items, loaded.model
    effects = None if one.leading_effects is None else one.leading_effects.mean
    return [
        out.FeatureItem(
            item=items[code],
            title=model.title(items[code]),
            probability=float(one.item_probability[code]),
            effect=None if effects is None else float(effects[place]),
        )
        for place, code in enumerate(one.leading_items[:most].tolist())
    ]


def _memberships(loaded: Loaded, code: int, role: str) -> list[out.Membership]:
    """Return the features that someone or something is in with a tenth or more, the surest first."""
    rows = []
    for number, one in enumerate(loaded.model.features_):
        chance = float((one.user_probability if role == "user" else one.item_probability)[code])
        if chance >= 0.1:
            effect = one.effect if role == "user" else _own_effect(one, code)
            rows.append(out.Membership(feature=number, probability=chance, effect=effect))
    return sorted(rows, key=lambda row: -row.probability)


def _own_effect(one: FeatureSummary, item: int) -> float | None:
    """Return what a feature adds to an item: graded, the item's own; None when the estimate does not hold the item."""
    if one.leading_effects is None:
        return one.effect
    place = np.flatnonzero(one.leading_items == item)
    return float(one.leading_effects.mean[place[0]]) if place.size else None


def _mean_levels(loaded: Loaded, code: int) -> list[float]:
    """Return an item's level probabilities averaged over users, evenly spread ones when there are many."""
    users = spread_evenly(loaded.model.ratings_.n_users, _MOST_ASKED)
    found = predict_levels(loaded.model.posterior_, users, np.full(users.size, code))
    means: list[float] = found.mean(axis=0).tolist()
    return means


def _levels_given(loaded: Loaded, code: int, role: str) -> NDArray[np.uint8]:
    """Return the levels a user gave or an item got, those held out of the fit included."""
    parts = [part for part in (loaded.model.ratings_, loaded.model.heldout_) if part is not None]
    return np.concatenate([_levels_in(part.arrays, code, role) for part in parts])


def _levels_in(arrays: RatingArrays, code: int, role: str) -> NDArray[np.uint8]:
    if role == "user":
        return arrays.levels[arrays.user_ptr[code] : arrays.user_ptr[code + 1]]
    return arrays.levels[arrays.positions[arrays.item_ptr[code] : arrays.item_ptr[code + 1]]]


def _habits(loaded: Loaded, codes: list[int], role: str) -> Iterator[tuple[int, tuple[int, float | None]]]:
    """Yield each code with how many ratings there are, and their mean."""
    values = level_values(loaded.model.ratings_.levels)
    for code in codes:
        given = _levels_given(loaded, code, role)
        yield code, (int(given.size), float(values[given].mean()) if given.size else None)


def _counts(loaded: Loaded, counts: NDArray[np.int64]) -> list[out.LevelCount]:
    levels: list[Level] = list(loaded.model.ratings_.levels)
    return [out.LevelCount(level=level, count=int(n)) for level, n in zip(levels, counts, strict=True)]


def _user_offset(loaded: Loaded, code: int) -> Part:
    offsets = np.array([draw.user_offset[code] for draw in loaded.model.posterior_])
    return _told(explain.part_of(offsets, INTERVAL_MASS))
