"""The report's first and last words: what to think of the model, and what to trust."""

from __future__ import annotations

import numpy as np

from doublefeature.report.markup import (
    Html,
    bullets,
    count,
    counted,
    decimal,
    join,
    label,
    paragraph,
    percent,
    tag,
)
from doublefeature.report.material import FEW, STABLE, UNSURE, Material, scale_text
from doublefeature.report.quality import Quality
from doublefeature.report.sections import section

_CLEAR = 2.0  # standard errors
_HONEST = 0.02  # mean distance between probability and share
_MANY_DRAWS = 100
_WORDS = {
    "good": "The chains agree.",
    "usable": "The chains do not agree fully, but predictions are known well enough to use.",
    "run longer": "The chains have not settled: take every number here as provisional.",
}


def verdict(material: Material) -> Html:
    """Say in one paragraph what the data are, how good the model is and whether the chains agree."""
    told = _WORDS[material.diagnosis.level], " ", _on_features(material)
    return join(
        paragraph(opening(material), *told, class_="verdict"),
        tag("dl", *_tiles(material), class_="tiles"),
    )


def opening(material: Material) -> Html:
    """Say what the data are and how good the model is."""
    ratings, quality = material.model.ratings_, material.quality
    data = join(
        f"{counted(ratings.n_users, 'user')} gave {counted(ratings.n_ratings, 'rating')} to "
        f"{counted(ratings.n_items, 'item')}, on levels ",
        label(scale_text(ratings.levels)),
        ". ",
    )
    measured = (
        "How good the model is on new ratings was not measured, as none were held out. "
        if quality is None
        else _on_quality(quality)
    )
    return join(data, measured)


def _on_quality(quality: Quality) -> Html:
    best, model = quality.best_rule, quality.model
    if quality.advantage >= _CLEAR:
        compared = "By typical error it is clearly better than every simple rule"
    elif quality.advantage <= -_CLEAR:
        compared = "By typical error it is worse than a simple rule, so do not use it for predictions as it is"
    else:
        compared = "By typical error it is not clearly better than a simple rule"
    return join(
        tag(
            "strong",
            f"On {counted(quality.n, 'rating')} it had not seen, the model names the exact level in "
            f"{percent(model.exact)} of cases, and a level at most one off in {percent(model.within_one)}.",
        ),
        f" {compared}: its RMSE is {decimal(model.rmse, 3)}, that of the best one ({best.name}) is "
        f"{decimal(best.rmse, 3)}. {_on_rivals(quality)}{_on_honesty(quality)} ",
    )


def _on_rivals(quality: Quality) -> str:
    """Name the simple rules that do better in the shares just given."""
    told = []
    for name, mine, theirs in (
        ("exact", quality.model.exact, max(quality.rules, key=lambda rule: rule.exact)),
        ("at most one off", quality.model.within_one, max(quality.rules, key=lambda rule: rule.within_one)),
    ):
        share = theirs.exact if name == "exact" else theirs.within_one
        if share > mine:
            told.append(f"But {theirs.name} is {name} more often ({percent(share, 1)}). ")
    return "".join(told)


def _on_honesty(quality: Quality) -> str:
    off = f"{decimal(100 * quality.gap, 1)} percentage points"
    if is_honest(quality):
        return f"Its probabilities can be taken at their word (off by {off} on average)."
    return f"Its probabilities should be taken with care: they are off by {off} on average."


def is_honest(quality: Quality) -> bool:
    """Whether probabilities are near observed shares, or no further off than chance allows."""
    return quality.gap <= _HONEST or quality.misses <= 1


def _on_features(material: Material) -> str:
    number, stable = len(material.features), material.stable_features
    if not number:
        return "No feature lasts over the draws: offsets alone describe these ratings."
    found = f"It describes taste by {counted(number, 'feature')}"
    private = f" ({count(material.n_private)} with a single user)" if material.n_private else ""
    return f"{found}{private}, {count(stable)} of them found in at least {percent(STABLE)} of all draws."


def _tiles(material: Material) -> list[Html]:
    quality, draws = material.quality, len(material.model.posterior_)
    tiles = [("chains", material.diagnosis.level), ("features", f"{len(material.features)}"), ("draws", count(draws))]
    if quality is not None:
        tiles = [
            ("exact level", percent(quality.model.exact)),
            ("within one level", percent(quality.model.within_one)),
            ("RMSE", f"{decimal(quality.model.rmse, 3)}"),
            *tiles,
        ]
    return [tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles]


def trust_section(material: Material) -> Html:
    """Say what can be relied on and what cannot, by rules on the numbers above."""
    good, careful = _on_fit(material)
    for side, more in zip((good, careful), _on_feature_trust(material), strict=True):
        side += more
    careful += _on_knowledge(material)
    careful += [
        "For users and items the model has not met, the prior answers: a broad guess about anybody, not knowledge.",
        "Features describe who rates what higher or lower. They are not causes, and a feature is not a type of person.",
        "Intervals say how sure the model is, given that its way of describing ratings is right and that new ratings "
        "come about as the old ones did.",
        "Privacy: this page shows three users’ ratings under their ids, and the model’s features list all their users. "
        "Ratings can give a person away even without a name, so share both only with those who may see the ratings.",
    ]
    return section(
        "trust",
        "What to trust, and what not",
        tag("h3", "Can be relied on") if good else None,
        bullets([join(row) for row in good]) if good else None,
        tag("h3", "Take with care"),
        bullets([join(row) for row in careful]),
    )


def _on_fit(material: Material) -> tuple[list[str], list[str]]:
    diagnosis, quality = material.diagnosis, material.quality
    draws = len(material.model.posterior_)
    good, careful = [], []
    if diagnosis.level == "good":
        good.append("Predicted ratings and probabilities, as far as simulation goes: the chains agree.")
    elif diagnosis.level == "usable":
        careful.append(
            f"Differences between predicted means below about {decimal(2 * diagnosis.error, 2)} levels: "
            "that is the size of simulation error here."
        )
    else:
        careful.append(f"Every number may still move: the sampler has not settled. {' '.join(diagnosis.advice())}")
    if not getattr(material.model, "finished_", True):
        careful.append("The fit was stopped before its end; resume it for the full number of draws.")
    if draws < _MANY_DRAWS:
        careful.append(f"Ends of intervals: they rest on {counted(draws, 'draw')} only.")
    if quality is None:
        careful.append("Accuracy and probabilities: they were not checked, as no ratings were held out.")
    elif quality.advantage >= _CLEAR:
        good.append("That the model knows more than item means and users’ habits: held-out ratings show it.")
    else:
        careful.append("Predictions: on held-out ratings the model is not clearly better than a simple rule.")
    if quality is not None:
        (good if is_honest(quality) else careful).append(_on_honesty(quality))
    return good, careful


def _on_feature_trust(material: Material) -> tuple[list[str], list[str]]:
    unsure = sum(feature.recurrence < UNSURE for feature in material.features)
    stable = material.stable_features
    good, careful = [], []
    if stable and material.diagnosis.level != "run longer":
        found = counted(stable, "feature that is", "features that are")
        good.append(f"{found} found in at least {percent(STABLE)} of draws: their users, items and sign.")
    if unsure:
        found = counted(unsure, "feature that is", "features that are")
        careful.append(
            f"{found} found in fewer than {percent(UNSURE)} of draws: one of several ways to group the same ratings. "
            "Predictions average over all of these ways and do not suffer."
        )
    if material.model.priors_.remainder:
        careful.append(
            "What features say: the model has a low-rank remainder beside them, which takes over much of it."
        )
    if material.features and len(material.diagnosis.chains) == 1:
        careful.append("How stable features are: with one chain, it cannot be seen whether another would find others.")
    return good, careful


def _on_knowledge(material: Material) -> list[str]:
    arrays = material.model.ratings_.arrays
    told = []
    for name, pointer in (("user", arrays.user_ptr), ("item", arrays.item_ptr)):
        few = int((np.diff(pointer) < FEW).sum())
        if few:
            told.append(f"{counted(few, name)} with fewer than {FEW} ratings: little is known about them.")
    return told
