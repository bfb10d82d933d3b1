"""The report's sections on answers: the top items, and predictions for three users."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import replace

import numpy as np

from doublefeature.recommender import DoubleFeature
from doublefeature.report.markup import Html, count, decimal, join, label, paragraph, percent, tag
from doublefeature.report.material import Material, level_text, run_text
from doublefeature.report.sections import figure, rows_chart, section
from doublefeature.report.svg import Dot, axis_around, axis_strip, strip

N_TOP = 15

_PER_KIND = 8
_MOST_SCORES = 10**9
_LEAST_DRAWS = 20


def top_section(material: Material) -> Html:
    """Rank items by their mean rating over all users."""
    model = _thinned(material.model)
    found = model.top(min(N_TOP, model.ratings_.n_items))
    used, kept = len(model.posterior_), len(material.model.posterior_)
    axis = axis_around([end for row in found for end in (row.lower, row.upper)], pad=0.1, least=0.05)
    rows: list[list[object]] = []
    for place, row in enumerate(found, 1):
        told = f"{decimal(row.mean)} ({decimal(row.lower)} to {decimal(row.upper)})"
        shown = strip(f"mean rating {told}", axis, span=(row.lower, row.upper), middle=row.mean)
        rows.append([join(f"{place}. ", label(row.title or row.item)), shown, told])
    return section(
        "top",
        "Top items",
        figure(
            rows_chart(("item", "rating", "mean rating"), rows, axis_strip(axis)),
            "How to read it: the mean rating an item would get if every user rated it, and its 80 % interval (the "
            "scale shows only the part that is needed). Items whose intervals overlap may well stand in the other "
            "order. Unlike a plain mean this counts those who have not rated the item as well, so an item loved by a "
            "few fans does not come out on top by default.",
            f" From {count(used)} of {count(kept)} draws, evenly spaced." if used < kept else None,
        ),
    )


def _thinned(model: DoubleFeature) -> DoubleFeature:
    """Return the model with as many draws as a ranking of all items for all users has time for."""
    draws, ratings = model.posterior_.draws, model.ratings_
    most = max(_LEAST_DRAWS, _MOST_SCORES // max(1, ratings.n_users * ratings.n_items))
    if len(draws) <= most:
        return model
    places = np.linspace(0, len(draws) - 1, most).round().astype(int)
    lighter = copy(model)
    lighter.posterior_ = replace(model.posterior_, draws=[draws[place] for place in places])
    return lighter


def users_section(material: Material) -> Html:
    """Show what is predicted for three users beside what they gave."""
    chosen = _three_users(material)
    if not chosen:
        return section("users", "Three users", paragraph("No user has a rating to show."))
    keys = (("seen", "rating the model learnt from"), ("kept", "rating held out"), ("mean", "predicted mean"))
    marks = [tag("li", tag("span", class_=f"key {kind}"), name) for kind, name in keys]
    return section(
        "users",
        "Three users",
        paragraph(
            "Three of the users with the most ratings. For each: some items they rated, and some they did not, from "
            "the highest predicted mean to the lowest."
        ),
        tag("ul", *marks, class_="legend"),
        *(_user_figure(material, user) for user in chosen),
    )


def _three_users(material: Material) -> list[int]:
    """Return the users with the most ratings, those with held-out ratings first."""
    ratings, heldout = material.model.ratings_, material.model.heldout_
    sizes = np.diff(ratings.arrays.user_ptr)
    kept = np.zeros_like(sizes) if heldout is None else np.diff(heldout.arrays.user_ptr)
    ranked = np.lexsort((np.arange(sizes.size), -sizes, kept == 0))
    return [int(user) for user in ranked if sizes[user] + kept[user] > 0][:3]


def _user_figure(material: Material, code: int) -> Html:
    model = material.model
    user = model.ratings_.users[code]
    seen = model.ratings_.rated_items(user)
    kept = model.heldout_.rated_items(user) if model.heldout_ is not None else {}
    others = [item for item in model.ratings_.items if item not in seen and item not in kept]
    asked = [*_some(list(kept)), *_some(list(seen)), *_some(others)]
    prediction = model.predict([(user, item) for item in asked])
    lower, upper = prediction.interval(material.mass)
    rows: list[list[object]] = []
    places, axis = material.level_places, material.level_axis
    for k in np.argsort(-prediction.mean, kind="stable").tolist():
        item = asked[k]
        given = kept.get(item, seen.get(item))
        kind = "kept" if item in kept else "seen"
        dots = [] if given is None else [Dot(places[given], kind)]
        gave = "not rated" if given is None else f"gave {level_text(given)}" + (" (held out)" if item in kept else "")
        told = f"{decimal(prediction.mean[k], 1)} ({run_text(lower[k], upper[k])}); {gave}"
        shown = strip(
            told, axis, span=(places[lower[k]], places[upper[k]]), middle=float(prediction.mean[k]), dots=dots
        )
        rows.append([label(model.title(item) or item), shown, told])
    return figure(
        rows_chart(("item", "rating", "prediction"), rows, axis_strip(axis)),
        f"How to read it: the line is the shortest run of levels that holds {percent(material.mass)} of the "
        "probability, the short bar the predicted mean, the dot or diamond what the user gave. Diamonds are the fair "
        "test: the model had not seen them.",
        title=join("User ", label(user)),
    )


def _some(items: list[Hashable]) -> list[Hashable]:
    """Return a few of the items, evenly spaced."""
    places = np.linspace(0, len(items) - 1, min(len(items), _PER_KIND)).round().astype(int)
    return [items[place] for place in places]
