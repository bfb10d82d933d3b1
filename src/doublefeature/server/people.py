"""Who is asked about, and the three ways to answer: as fitted, folded in, or as anybody."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from doublefeature.levels import Level, level_position
from doublefeature.ratings import Ratings
from doublefeature.server.models import Loaded
from doublefeature.server.problems import MisfitError, NotFoundError
from doublefeature.server.storage import Changes

if TYPE_CHECKING:
    from doublefeature.folded import Folded
    from doublefeature.server.schemas.answers import Source
    from doublefeature.server.schemas.asked import Rated

History = dict[Hashable, Level]
"""Ratings by item."""


@dataclass(frozen=True)
class Person:
    """Someone with ratings. `changed` says whether these are other than what the model learnt from."""

    user: int | str | None
    ratings: History
    known: bool  # whether the model has the user
    changed: bool
    stored: bool = False  # whether the database has anything of the user

    @property
    def as_fitted(self) -> bool:
        """Whether the stored draws speak for this person."""
        return self.known and not self.changed

    @property
    def source(self) -> Source:
        """What answers rest on."""
        return "posterior" if self.as_fitted else "fold-in" if self.ratings else "prior"

    def folded(self, loaded: Loaded) -> Folded:
        """Return this person folded into the model, from the cache if it was done before."""
        user = self.user if self.known else None
        key = ("fold", user, frozenset(self.ratings.items()))
        return loaded.folds.get(key, lambda: loaded.model.fold_in(self.ratings, user=user))  # type: ignore[return-value]


def sent_person(loaded: Loaded, user: int | str | None, ratings: Sequence[Rated]) -> Person:
    """Return someone who rated exactly what was sent along."""
    known = user is not None and loaded.model.knows_user(user)
    return Person(user, _sent(loaded, ratings), known, changed=True)


def stored_person(loaded: Loaded, user: int | str | None, changes: Changes) -> Person:
    """Return a user as the model and the database know them."""
    known = user is not None and loaded.model.knows_user(user)
    fitted = fitted_ratings(loaded, user) if known else {}
    usable = {item: rating for item, rating in changes.items() if is_usable(loaded, item, rating)}
    now = {item: rating for item, rating in {**fitted, **usable}.items() if rating is not None}
    return Person(user, now, known, changed=now != fitted, stored=bool(changes))


def is_usable(loaded: Loaded, item: Hashable, rating: Level | None) -> bool:
    """Whether answers can take a change into account: the model must have the item and the level."""
    levels = loaded.model.ratings_.levels
    return loaded.model.knows_item(item) and (rating is None or rating in levels)


def fitted_ratings(loaded: Loaded, user: Hashable) -> History:
    """Return the ratings of a known user in the model, those held out included."""
    parts: list[Ratings | None] = [loaded.model.ratings_, loaded.model.heldout_]
    return {item: level for part in parts if part is not None for item, level in part.rated_items(user).items()}


def as_id(loaded: Loaded, given: int | str, role: str) -> int | str:
    """Return the id that a text in an address, or a value in a body, stands for.

    A known id, as it is or as the number it spells; else a new id, which must be of the same kind as all others.
    """
    model = loaded.model
    ids, has = (loaded.users, model.ratings_.has_user) if role == "user" else (loaded.items, model.ratings_.has_item)
    if has(given):
        return given
    text = str(given)
    found = model.as_user(text) if role == "user" else model.as_item(text)
    if isinstance(found, int | str) and has(found):
        return found
    if all_numbers(loaded, role, ids):
        if not _spells_number(text):
            raise MisfitError(f"{role} ids of this model are whole numbers. Send one.")
        return int(text)
    return text


def item_in_address(loaded: Loaded, given: str) -> int | str:
    """Return an item that must be the model's, named in an address."""
    try:
        return known_item(loaded, given)
    except MisfitError:
        raise NotFoundError("the model does not know this item.") from None


def user_in_address(loaded: Loaded, given: str) -> int | str:
    """Return a user that is asked about in an address: a text where ids are numbers is nobody."""
    try:
        return as_id(loaded, given, "user")
    except MisfitError:
        raise NotFoundError("this user is not known.") from None


def all_numbers(loaded: Loaded, role: str, ids: Sequence[Hashable]) -> bool:
    """Whether every id of a kind is a whole number."""
    return loaded.fact(("numbers", role), lambda: all(isinstance(label, int) for label in ids))


def known_items(loaded: Loaded, given: Iterable[int | str] | None) -> list[Hashable] | None:
    """Return items that must be the model's."""
    return None if given is None else [known_item(loaded, item) for item in given]


def known_item(loaded: Loaded, given: int | str) -> int | str:
    """Return an item that must be the model's."""
    item = as_id(loaded, given, "item")
    if not loaded.model.knows_item(item):
        raise MisfitError("the model does not know this item. Look it up under /api/v1/items.")
    return item


def as_level(loaded: Loaded, given: Level) -> Level:
    """Return the model's level that was sent, or raise."""
    levels = loaded.model.ratings_.levels
    return levels[level_position(given, levels)]


def _sent(loaded: Loaded, rows: Sequence[Rated]) -> History:
    history: History = {}
    for row in rows:
        item = known_item(loaded, row.item)
        if item in history:
            raise MisfitError("an item is rated twice. Send each item once.")
        history[item] = as_level(loaded, row.rating)
    return history


def _spells_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 19 and str(int(text)) == text
