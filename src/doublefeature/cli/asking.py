"""Questions about someone whose ratings come with the question."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from doublefeature.cli.options import AsJson, HowMany, Model, RatingsAsked, UserAsked
from doublefeature.cli.output import print_items, print_json, say
from doublefeature.errors import InputError, RatingsError
from doublefeature.sharded import load

if TYPE_CHECKING:
    from doublefeature.folded import Folded
    from doublefeature.levels import Level
    from doublefeature.recommender import DoubleFeature


def ask(
    model: Model, user: UserAsked = None, ratings: RatingsAsked = None, n: HowMany = 3, as_json: AsJson = False
) -> None:
    """Name the items to ask a person about next: those whose ratings would tell most about their taste."""
    fitted = load(model)
    folded = _as_fitted(fitted, user) if ratings is None else fold_file(fitted, ratings, user)
    rated = {item for item in rated_before(fitted, user) if item not in folded.ratings}
    found = [question for question in folded.next_question(n + len(rated)) if question.item not in rated]
    rows = [question._asdict() for question in found[:n]]
    if not rows:
        say_nothing_left(user)
    if as_json:
        print_json({"user": user, "rated": len(folded.ratings), "items": rows})
        return
    if not folded.ratings:
        say("nothing is known of this person yet: these tell most about anybody")
    print_items(rows, {"gain": "tells (nats)", "mean": "expected rating"})


def fold_file(fitted: DoubleFeature, path: Path, user: str | None = None) -> Folded:
    """Fold in the ratings in a file, of a new user or in place of those of a known one."""
    from doublefeature.levels import level_position, level_positions
    from doublefeature.pairs import read_item_ratings

    levels = fitted.ratings_.levels

    def known(item: str, rating: str) -> tuple[bool, bool]:
        return fitted.knows_item(fitted.as_item(item)), bool(level_positions([rating], levels)[0] >= 0)

    rows, taken = read_item_ratings(path, known)
    if taken is not None:
        say(f"line 1 of {path} is taken for a header: neither its item nor its rating is known")
    given: dict[Hashable, Level] = {}
    for row in rows:
        try:
            item = fitted.as_item(row.first)
            fitted.ratings_.item_code(item)
            given[item] = levels[level_position(row.second, levels)]
        except InputError as problem:
            raise RatingsError(f"{row.place}: {problem}") from None
    return fitted.fold_in(given, user=None if user is None else fitted.as_user(user))


def rated_before(fitted: DoubleFeature, user: str | None) -> list[Hashable]:
    """Return what a known user has rated, held-out ratings included: none of it is news."""
    return [] if user is None else fitted.rated(fitted.as_user(user))


def say_nothing_left(user: str | None, *, filtered: bool = False) -> None:
    """Say why no item is shown."""
    who = "this person" if user is None else f"user {user}"
    say(f"nothing to show: {who} has rated every item" + (" that --allow and --deny leave" if filtered else ""))


def _as_fitted(fitted: DoubleFeature, user: str | None) -> Folded:
    """Fold in a user with the ratings the model was fitted on, a new one with none."""
    if user is None or not fitted.knows_user(fitted.as_user(user)):
        return fitted.fold_in({})
    known = fitted.as_user(user)
    return fitted.fold_in(fitted.ratings_.rated_items(known), user=known)
