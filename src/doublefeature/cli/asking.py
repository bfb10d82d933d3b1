"""Questions about someone whose ratings come with the question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from doublefeature.cli.options import AsJson, HowMany, Model, RatingsAsked, UserAsked
from doublefeature.cli.output import print_items, print_json, say
from doublefeature.sharded import load

if TYPE_CHECKING:
    from doublefeature.folded import Folded
    from doublefeature.recommender import DoubleFeature


def ask(
    model: Model, user: UserAsked = None, ratings: RatingsAsked = None, n: HowMany = 3, as_json: AsJson = False
) -> None:
    """Name the items to ask a person about next: those whose ratings would tell most about their taste."""
    fitted = load(model)
    folded = _as_fitted(fitted, user) if ratings is None else fold_file(fitted, ratings, user)
    rows = [question._asdict() for question in folded.next_question(n)]
    if as_json:
        print_json({"user": user, "rated": len(folded.ratings), "items": rows})
        return
    if not folded.ratings:
        say("nothing is known of this person yet: these tell most about anybody")
    print_items(rows, {"gain": "tells (nats)", "mean": "expected rating"})


def fold_file(fitted: DoubleFeature, path: Path, user: str | None = None) -> Folded:
    """Fold in the ratings in a file, of a new user or in place of those of a known one."""
    from doublefeature.readers import read_item_ratings

    given = {fitted.as_item(item): level for item, level in read_item_ratings(path).items()}
    return fitted.fold_in(given, user=None if user is None else fitted.as_user(user))


def _as_fitted(fitted: DoubleFeature, user: str | None) -> Folded:
    """Fold in a user with the ratings the model was fitted on, a new one with none."""
    if user is None or not fitted.knows_user(fitted.as_user(user)):
        return fitted.fold_in({})
    known = fitted.as_user(user)
    return fitted.fold_in(fitted.ratings_.rated_items(known), user=known)
