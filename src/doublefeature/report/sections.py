"""The report's sections on the data and on quality, and what all sections are made of."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature.report.markup import (
    Html,
    count,
    counted,
    decimal,
    label,
    paragraph,
    percent,
    table,
    tag,
)
from doublefeature.report.material import Material, scale_text
from doublefeature.report.quality import LEAST_PROBABILITY, Quality, Rule
from doublefeature.report.svg import (
    Axis,
    Dot,
    axis_strip,
    bar_chart,
    bar_strip,
    calibration_chart,
    strip,
)

FloatArray = NDArray[np.float64]

_MOST_LEVEL_ROWS = 20
_QUANTILES = (
    (0.0, "least"),
    (0.05, "5 %"),
    (0.25, "25 %"),
    (0.5, "median"),
    (0.75, "75 %"),
    (0.95, "95 %"),
    (1.0, "most"),
)


def figure(picture: Html, *caption: object, title: object = None) -> Html:
    """Return a picture with the words that say how to read it."""
    head = None if title is None else tag("h3", title)
    return tag("figure", head, picture, tag("figcaption", *caption))


def section(name: str, title: str, *parts: object) -> Html:
    """Return a section that the table of contents can point to."""
    return tag("section", tag("h2", title, id=f"{name}-heading"), *parts, id=name, aria_labelledby=f"{name}-heading")


def rows_chart(head: tuple[str, str, str], rows: list[list[object]], axis: Html | None = None) -> Html:
    """Return a chart made of table rows: a name, a strip, and the numbers in words."""
    top = [tag("th", head[0], scope="col"), tag("th", axis or head[1], scope="col"), tag("th", head[2], scope="col")]
    body = [
        tag("tr", tag("th", row[0], scope="row"), tag("td", row[1], class_="plot"), tag("td", row[2], class_="told"))
        for row in rows
    ]
    return tag("table", tag("thead", tag("tr", *top)), tag("tbody", *body), class_="rows")


def data_section(material: Material) -> Html:
    """Say what the data are."""
    ratings, heldout = material.model.ratings_, material.model.heldout_
    facts: list[list[object]] = [
        ["users", count(ratings.n_users)],
        ["items", count(ratings.n_items)],
        ["ratings the model learnt from", count(ratings.n_ratings)],
        ["ratings held out", count(heldout.n_ratings) if heldout else "none"],
        ["share of all user–item pairs rated", percent(ratings.density, 1)],
        ["levels, from lowest to highest", label(scale_text(ratings.levels))],
        ["fingerprint of the ratings learnt from", tag("code", ratings.fingerprint, class_="long")],
    ]
    spread: list[list[object]] = []
    for name, pointer in (("ratings per user", ratings.arrays.user_ptr), ("ratings per item", ratings.arrays.item_ptr)):
        sizes = np.diff(pointer)
        cuts = np.quantile(sizes, [share for share, _ in _QUANTILES], method="inverted_cdf")
        spread.append([name, *(count(cut) for cut in cuts)])
    return section(
        "data",
        "The data",
        table([], facts, class_="facts"),
        _level_figure(material),
        table(["", *(name for _, name in _QUANTILES)], spread, caption="How ratings are spread", class_="numbers"),
        paragraph(
            "Half of all users gave at most the number under “median”, half at least that many; 5 % gave at most the "
            "number under “5 %”. The same goes for items. Little can be known about those with few ratings.",
            class_="how",
        ),
    )


def _level_figure(material: Material) -> Html:
    ratings = material.model.ratings_
    counts = ratings.level_counts
    shares = counts / max(ratings.n_ratings, 1)
    how = "How to read it: the longer the bar, the more often the level was given, in the ratings learnt from."
    if ratings.n_levels > _MOST_LEVEL_ROWS:
        names = [str(level).removesuffix(".0") for level in ratings.levels]
        told = f"Shares of {ratings.n_levels} levels; the most frequent is {names[int(counts.argmax())]}."
        picture = bar_chart("levels", "How often each level was given", told, names, shares.tolist())
        return figure(picture, how, title="How often each level was given")
    rows: list[list[object]] = []
    for level, n, share in zip(ratings.levels, counts.tolist(), shares.tolist(), strict=True):
        told = f"{count(n)} ({percent(share, 1)})"
        bar = bar_strip(f"level {level}: {told}", share / max(float(shares.max()), 1e-9))
        rows.append([label(str(level).removesuffix(".0")), bar, told])
    return figure(rows_chart(("level", "share", "ratings"), rows), how, title="How often each level was given")


def quality_section(material: Material) -> Html:
    """Say how good the model is on ratings it has not seen, or how to find out."""
    quality = material.quality
    if quality is None:
        return section(
            "quality",
            "How good it is",
            paragraph(
                tag("strong", "Not measured: no ratings were held out. "),
                "How well a model describes the ratings it learnt from says little about new ones, so nothing is "
                "computed from those. Fit again with ",
                tag("code", "--holdout 0.05"),
                " (in Python ",
                tag("code", "fit(ratings, holdout=0.05)"),
                "): five ratings in a hundred are then kept away from the model, and this section compares them with "
                "what it predicts.",
                class_="callout",
            ),
        )
    sample = "" if quality.n == quality.n_heldout else f" (evenly spaced among {count(quality.n_heldout)})"
    return section(
        "quality",
        "How good it is",
        paragraph(
            f"All numbers here are about {counted(quality.n, 'rating')} that were kept away from the model{sample}, "
            "beside simple rules that use the same training ratings and no model."
        ),
        _rules_table(quality),
        paragraph(
            "Exact: the most probable level is the level given. Within one: the level given is at most one away from "
            "the level that is most likely to be so near. RMSE: typical distance between predicted mean and rating, in "
            "rating units (text levels count as 1, 2, …); smaller is better. Log score: mean logarithm of the "
            f"probability given to what was observed (at least {LEAST_PROBABILITY:g}); nearer to 0 is better. The "
            "simple rules use shares of levels among all ratings or the item’s own, drawn a little towards those of "
            "all; the user’s habit is how far the user tends to rate above or below item means.",
            class_="how",
        ),
        _calibration_figure(quality),
        _coverage_figure(quality),
    )


def _rules_table(quality: Quality) -> Html:
    def row(rule: Rule) -> list[object]:
        shares = percent(rule.exact, 1), percent(rule.within_one, 1)
        return [rule.name, *shares, decimal(rule.rmse, 3), decimal(rule.log_score, 3)]

    head = ["", "exact", "within one", "RMSE", "log score"]
    return table(head, [row(rule) for rule in (quality.model, *quality.rules)], class_="numbers first")


def _calibration_figure(quality: Quality) -> Html:
    told = "; ".join(
        f"predicted {percent(part.predicted)}, observed {percent(part.observed)} of {count(part.n)}"
        for part in quality.bins
    )
    points = [(part.predicted, part.observed, part.lower, part.upper) for part in quality.bins]
    picture = calibration_chart("calibration", "Predicted probability and observed share", told, points)
    return figure(
        picture,
        "How to read it: across, the probability the model gave to a level (all levels of all held-out ratings, put "
        "into ten bins); upwards, how often that level was what the user gave. Points on the dashed line mean that "
        "probabilities can be taken at their word; below it the model is too sure, above it too cautious. Whiskers are "
        f"95 % intervals. On average points lie {decimal(100 * quality.gap, 1)} percentage points off the line.",
        title="Are the probabilities honest?",
    )


def _coverage_figure(quality: Quality) -> Html:
    least = min(part.lower for part in quality.coverage)
    axis = Axis(min(0.4, math.floor(10 * least) / 10), 1.0, share=True)
    rows: list[list[object]] = []
    for part in quality.coverage:
        told = f"observed {percent(part.observed, 1)}, promised {percent(part.promised, 1)}"
        marks = [Dot(part.promised, "goal")]
        bar = strip(told, axis, span=(part.lower, part.upper), middle=part.observed, dots=marks)
        rows.append([f"{percent(part.mass)} sets", bar, told])
    return figure(
        rows_chart(("", "coverage", "held-out ratings"), rows, axis_strip(axis)),
        "How to read it: for every held-out rating the model names the shortest run of levels that holds 50, 80 or "
        "95 % probability. The tall line is the probability those runs hold on average (more than asked for, as a "
        "level cannot be cut in two); the mark with whiskers is the share of ratings found inside, with its 95 % "
        "interval. The two should agree.",
        title="Do the intervals hold what they promise?",
    )
