"""What the library says about a person, as answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from doublefeature.answers import Wanted, recommend
from doublefeature.levels import level_position
from doublefeature.posterior.explain import Explanation
from doublefeature.posterior.prediction import Prediction
from doublefeature.posterior.ranking import INTERVAL_MASS
from doublefeature.server.models import Loaded
from doublefeature.server.people import Person, as_id, known_items
from doublefeature.server.schemas import answers as out
from doublefeature.server.schemas.asked import AskPairs, AskRecommendations


def recommendations(loaded: Loaded, person: Person, asked: AskRecommendations) -> out.Recommendations:
    """Return the best items that a person has not rated."""
    model, levels = loaded.model, loaded.model.ratings_.levels
    level = None if asked.level is None else levels[level_position(asked.level, levels)]
    allow, deny = known_items(loaded, asked.allow), known_items(loaded, asked.deny)
    wanted = Wanted(asked.n, asked.rank_by, level, asked.quantile, INTERVAL_MASS, allow, deny, asked.seed)
    if person.as_fitted:
        user = model.ratings_.user_code(person.user)
        seen = np.array([model.ratings_.item_code(item) for item in person.ratings], np.int64)
        found = recommend(model, model.posterior_, user, seen, wanted, loaded.levels_of(user))
    else:
        found = person.folded(loaded).recommend(**wanted._asdict())
    told = {"rank_by": asked.rank_by, "level": model.high_level if level is None else level, "levels": list(levels)}
    rows = [{**row._asdict(), "proba": list(row.proba)} for row in found]
    return out.Recommendations.model_validate({**_personal(loaded, person), **told, "items": rows})


def predictions_of_pairs(loaded: Loaded, asked: AskPairs, changed: Sequence[Person | None]) -> out.Predictions:
    """Return what is predicted for pairs; `changed` has the people whose ratings are other than the model's."""
    pairs = [(as_id(loaded, pair.user, "user"), as_id(loaded, pair.item, "item")) for pair in asked.pairs]
    whole = loaded.model.predict(pairs)
    rows = _pair_rows(whole, asked.mass)
    for place, person in enumerate(changed):
        if person is not None:
            own = person.folded(loaded).predict([pairs[place][1]])
            rows[place] = _pair_rows(own, asked.mass, person.user, bool(person.ratings) or person.known)[0]
    return out.Predictions(model=loaded.version, levels=list(whole.levels), mass=asked.mass, pairs=rows)


def predictions_for(loaded: Loaded, person: Person, items: Sequence[int | str], mass: float) -> out.Predictions:
    """Return what is predicted for a person and some items."""
    wanted = [as_id(loaded, item, "item") for item in items]
    if person.as_fitted:
        found = loaded.model.predict([(person.user, item) for item in wanted])
    else:
        found = person.folded(loaded).predict(wanted)
    rows = _pair_rows(found, mass, person.user, bool(person.ratings) or person.known)
    return out.Predictions(model=loaded.version, levels=list(found.levels), mass=mass, pairs=rows)


def preference(loaded: Loaded, person: Person, a: int | str, b: int | str) -> out.PreferenceAnswer:
    """Return whether a person would rate item A above item B of the model."""
    found = loaded.model.prefer(person.user, a, b) if person.as_fitted else person.folded(loaded).prefer(a, b)
    return out.PreferenceAnswer(**_personal(loaded, person), a=a, b=b, **vars(found))


def explanation(loaded: Loaded, person: Person, item: int | str, mass: float) -> out.ExplanationAnswer:
    """Return why a person would rate an item of the model so."""
    if person.as_fitted:
        found: Explanation = loaded.model.explain(person.user, item, mass=mass)
    elif person.ratings or person.known:
        found = person.folded(loaded).explain(item, mass=mass)
    else:  # anybody: asked at every first visit, and half a second of work
        found = loaded.fact(("explain", item, mass), lambda: person.folded(loaded).explain(item, mass=mass))
    plain = {key: value for key, value in found.to_dict().items() if key not in ("user", "item", "levels")}
    return out.ExplanationAnswer.model_validate(
        {
            **_personal(loaded, person),
            **plain,
            "item": item,
            "title": loaded.model.title(item),
            "levels": list(found.levels),
            "proba": found.proba.tolist(),
        }
    )


def questions(loaded: Loaded, person: Person, n: int) -> out.Questions:
    """Return which items to ask a person about next."""
    folded = person.folded(loaded)
    rows = [out.QuestionRow.model_validate(row._asdict()) for row in folded.next_question(n)]
    return out.Questions(**_personal(loaded, person), items=rows, doubt=folded.doubt)


def _pair_rows(
    found: Prediction, mass: float, user: Hashable | None = None, known: bool | None = None
) -> list[out.PredictedPair]:
    """Return rows of a prediction; a user given here is the one all of them are about."""
    lower, upper = found.interval(mass)
    columns = (found.mean.tolist(), found.median, found.mode, found.sd.tolist(), lower, upper, found.proba.tolist())
    names = ("mean", "median", "mode", "sd", "lower", "upper", "proba")
    rows = []
    for (who, item), there, values in zip(found.pairs, found.known.tolist(), zip(*columns, strict=True), strict=True):
        told: dict[str, Any] = dict(zip(names, values, strict=True))
        rows.append(
            out.PredictedPair.model_validate(
                {
                    "user": who if known is None else user,
                    "item": item,
                    "known_user": there[0] if known is None else known,
                    "known_item": there[1],
                    **told,
                }
            )
        )
    return rows


def _personal(loaded: Loaded, person: Person) -> dict[str, Any]:
    return {
        "model": loaded.version,
        "user": person.user,
        "source": person.source,
        "n_ratings": len(person.ratings),
    }
