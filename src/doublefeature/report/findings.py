"""The report's sections on features: a picture, one card each, and their effects."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from doublefeature.posterior.feature_summary import FeatureSummary
from doublefeature.report.markup import (
    Html,
    count,
    counted,
    decimal,
    join,
    label,
    listed,
    paragraph,
    percent,
    signed,
    table,
    tag,
)
from doublefeature.report.material import STABLE, UNSURE, Material
from doublefeature.report.picture import Picture, block_picture
from doublefeature.report.sections import figure, rows_chart, section
from doublefeature.report.svg import axis_around, axis_strip, strip

Codes = NDArray[np.int64]

Numbered = tuple[int, FeatureSummary]

_IN_PICTURE = 6
_CARDS = 12
_MOST_ROWS = 30
_LEADING = 8
_GENRES = ("genre", "genres")


def blocks_section(material: Material) -> Html:
    """Draw the leading features as blocks of users × items."""
    told = material.shared_features[:_IN_PICTURE]
    if not told:
        return section("blocks", "The features at a glance", _nothing_found())
    allocation, ratings = material.model.allocation_, material.model.ratings_
    columns = [k for k, _ in told]
    picture = block_picture(allocation.user_members[:, columns], allocation.item_members[:, columns])
    keys = [tag("li", _link(k, f"{_name(k)} ({signed(one.effect)})", colour)) for colour, (k, one) in enumerate(told)]
    sizes = (picture.users.size, ratings.n_users, "users"), (picture.items.size, ratings.n_items, "items")
    sampled = [f"{size:,} of {every:,} {name}" for size, every, name in sizes if size < every]
    return section(
        "blocks",
        "The features at a glance",
        paragraph(
            "A feature is a set of users, a set of items, and an effect: when one of these users rates one of these "
            "items, the rating tends to be higher (or lower) by that much",
            ", more for some of the items than for others" if material.graded else None,
            ". Users and items may belong to several features, or to none.",
        ),
        figure(
            join(
                tag("p", "users ↓ items →", class_="soft", aria_hidden="true"),
                tag("div", _image(picture, told), class_="blocks"),
                tag("ul", *keys, class_="legend"),
            ),
            f"How to read it: rows are users, columns are items. Each colour is one of the {len(told)} largest "
            f"features (of {count(len(material.features))}); its block is where its users meet its items, and stripes "
            "are where features overlap. Rows and columns are put in an order that keeps blocks together; a block may "
            "still fall into pieces, as one order cannot suit all features. Grey: in none of these features.",
            f" Drawn: {' and '.join(sampled)}, evenly spaced in that order." if sampled else None,
        ),
    )


def _image(picture: Picture, told: list[Numbered]) -> Html:
    parts = "; ".join(
        f"{_name(k)}: {counted(one.users.size, 'user')} and {counted(one.items.size, 'item')}" for k, one in told
    )
    words = f"Users (rows) by items (columns), features as coloured blocks. {parts}."
    return tag("img", src=picture.data_uri(), width=picture.width, height=picture.height, alt=words)


def features_section(material: Material) -> Html:
    """Describe the features one by one, and compare their effects."""
    told = material.shared_features
    if not told:
        return section("features", "The features one by one", _nothing_found())
    left = len(told) - _MOST_ROWS
    return section(
        "features",
        "The features one by one",
        paragraph(
            "Largest first (users × items × effect). “Found in 93 % of draws” means: in 93 of 100 plausible models "
            "there is a feature with much the same users and items and an effect of the same sign. The percentage "
            "beside an item is the share of draws that count it in.",
            " The items for which a feature means most come first, each with what it adds to the rating in levels and "
            "the 80 % interval of that."
            if material.graded
            else None,
        ),
        tag("div", *(_card(material, k, one, colour) for colour, (k, one) in enumerate(told[:_CARDS])), class_="cards"),
        _smaller(material, told[_CARDS:_MOST_ROWS]),
        paragraph("Left out: ", counted(left, "smaller feature"), ".", class_="soft") if left > 0 else None,
        paragraph(
            f"Left out: {counted(material.n_private, 'feature')} of a single user, which say that somebody’s taste is "
            "out of the ordinary.",
            class_="soft",
        )
        if material.n_private
        else None,
        _effects_figure(material),
    )


def _card(material: Material, k: int, feature: FeatureSummary, colour: int) -> Html:
    direction = "higher" if feature.effect >= 0 else "lower"
    low, high = material.effect_interval(feature)
    who = f"{counted(feature.users.size, 'user')} {'rates' if feature.users.size == 1 else 'rate'}"
    what = f"{'this' if feature.items.size == 1 else 'these'} {counted(feature.items.size, 'item')}"
    items = [
        tag("li", material.item_name(code), " ", tag("span", _item_words(feature, place), class_="soft"))
        for place, code in enumerate(feature.leading_items[:_LEADING].tolist())
    ]
    more = feature.items.size - len(items)
    about = "about" if feature.leading_effects is None else "on average about"
    return tag(
        "article",
        tag("h3", tag("span", class_=f"key s{colour}") if colour < _IN_PICTURE else None, _name(k).capitalize()),
        tag("p", _sureness(feature), class_=f"badge {_sureness(feature)}"),
        paragraph(
            tag("strong", f"{who} {what} {about} {decimal(abs(feature.effect), 1)} levels {direction}"),
            " than other features and offsets would suggest "
            f"({percent(material.effect_mass)} interval {signed(low)} to {signed(high)}).",
        ),
        paragraph(_seen(feature), class_="soft"),
        _genre_line(material, feature),
        tag("ul", *items, tag("li", f"and {more:,} more", class_="soft") if more > 0 else None, class_="items"),
        class_="card",
        id=f"feature-{k}",
    )


def _item_words(feature: FeatureSummary, place: int) -> str:
    """Say how surely a leading item belongs, and what it adds if that differs from item to item."""
    share = percent(float(feature.item_probability[feature.leading_items[place]]))
    if feature.leading_effects is None:
        return share
    mean, lower, upper = (signed(float(part[place])) for part in feature.leading_effects)
    return f"{mean} ({lower} to {upper}), {share}"


def _seen(feature: FeatureSummary) -> str:
    """Say where the feature was found, and how many ratings speak of it."""
    chains = feature.recurrence_by_chain
    often = sum(share >= UNSURE for share in chains.values())
    told = f"Found in {percent(feature.recurrence)} of draws"
    if feature.recurrence == 0.0:
        told = "Found in no single draw in quite this form: a mean of several that look alike"
    elif often and len(chains) > 1:
        told += f", and in most draws of {often} of {len(chains)} chains"
    return f"{told}." if feature.n_ratings is None else f"{told}. Rests on {counted(feature.n_ratings, 'rating')}."


def _smaller(material: Material, told: list[Numbered]) -> Html | None:
    if not told:
        return None
    rows: list[list[object]] = []
    for k, one in told:
        low, high = material.effect_interval(one)
        effect = f"{signed(one.effect)} ({signed(low)} to {signed(high)})"
        names = listed((material.item_name(code) for code in one.leading_items[:3].tolist()), "; ")
        sizes = count(one.users.size), count(one.items.size)
        rows.append([tag("span", _name(k), id=f"feature-{k}"), *sizes, effect, percent(one.recurrence), names])
    head = ["feature", "users", "items", "effect", "found in draws", "leading items"]
    return table(head, rows, caption="Smaller features", class_="numbers texts")


def _genre_line(material: Material, feature: FeatureSummary) -> Html | None:
    """Say which genres are half as frequent again in the feature as among all items, when a genre column is there."""
    table_, ids = material.model.items_, material.model.ratings_.items

    def count_genres(codes: Codes) -> Counter[str]:
        rows = (table_.get(ids[code], {}) for code in codes.tolist())
        texts = (next((str(row[key]) for key in row if key.lower() in _GENRES), "") for row in rows)
        return Counter(genre.strip() for text in texts for genre in text.split("|") if genre.strip())

    if not table_:
        return None
    here, everywhere = count_genres(feature.items), count_genres(np.arange(len(ids)))
    size = feature.items.size
    marked = [
        (genre, n)
        for genre, n in here.most_common(6)
        if n >= 2 and n / size >= 1.5 * everywhere[genre] / max(len(ids), 1)
    ][:3]
    if not marked:
        return None
    told = listed(join(label(genre), f" ({n} of {size})") for genre, n in marked)
    return paragraph("More often than usual: ", told, ".", class_="soft")


def _effects_figure(material: Material) -> Html:
    told = material.shared_features[:_MOST_ROWS]
    spans = [material.effect_interval(one) for _, one in told]
    axis = replace(axis_around([0.0, *(end for span in spans for end in span)]), zero=True)
    rows: list[list[object]] = []
    for colour, ((k, one), span) in enumerate(zip(told, spans, strict=True)):
        words = f"{signed(one.effect)} ({signed(span[0])} to {signed(span[1])})"
        paint = colour if colour < _IN_PICTURE else None
        shown = strip(f"{_name(k)}: {words}", axis, span=span, middle=one.effect, colour=paint)
        rows.append([_link(k, _name(k)), shown, words])
    return figure(
        rows_chart(("feature", "effect", "effect, in levels"), rows, axis_strip(axis)),
        "How to read it: the short bar is a feature’s mean effect in levels, the line its "
        f"{percent(material.effect_mass)} interval over the draws in which the feature is found. Right of the zero "
        "line its users rate its items higher, left of it lower; lines that cross zero say little. A feature found in "
        "few draws may have a short line without being sure.",
        " Single items of a feature differ from its mean, some may lie on the other side of zero."
        if material.graded
        else None,
        title="Effects compared",
    )


def _nothing_found() -> Html:
    return paragraph(
        "No feature lasts over the draws: offsets alone describe these ratings, or there are too few of them to tell "
        "features from chance.",
        class_="callout",
    )


def _sureness(feature: FeatureSummary) -> str:
    return "stable" if feature.recurrence >= STABLE else "unsure" if feature.recurrence < UNSURE else "likely"


def _link(number: int, text: str, colour: int | None = None) -> Html:
    key = None if colour is None else tag("span", class_=f"key s{colour}")
    return tag("a", key, text, href=f"#feature-{number}")


def _name(number: int) -> str:
    return f"feature {number}"
