"""Questions to a fitted model: predict, recommend, prefer, explain, top, similar."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from doublefeature.cli.asking import fold_file, rated_before, say_nothing_left
from doublefeature.cli.options import (
    AsJson,
    Header,
    HowMany,
    ItemColumn,
    Mass,
    Model,
    RatingsAsked,
    User,
    UserAsked,
    UserColumn,
)
from doublefeature.cli.output import check_writable, interval, print_items, print_json, say, write_rows
from doublefeature.errors import InputError
from doublefeature.posterior import ranking
from doublefeature.recommender import DoubleFeature
from doublefeature.sharded import load

Item = Annotated[str, typer.Option("--item", "-i", help="Item id, as in the ratings.")]
Ids = Annotated[list[str] | None, typer.Option(help="Item id; may be given several times.")]


class RankBy(StrEnum):
    """What recommendations are ordered by."""

    MEAN = "mean"
    LOWER = "lower"
    AT_LEAST = "at-least"
    THOMPSON = "thompson"


class TopBy(StrEnum):
    """What the overall ranking is ordered by."""

    RATING = "rating"
    OFFSET = "offset"


_RANKINGS: dict[RankBy, ranking.RankBy] = {
    RankBy.MEAN: "mean",
    RankBy.LOWER: "lower",
    RankBy.AT_LEAST: "at_least",
    RankBy.THOMPSON: "thompson",
}
_ORDERS: dict[TopBy, ranking.TopBy] = {TopBy.RATING: "rating", TopBy.OFFSET: "offset"}


def predict(
    model: Model,
    pairs: Annotated[
        Path,
        typer.Argument(
            help="A user and an item per line: CSV, TSV, gzip or Parquet. Columns that go by known names, or else the "
            "first two, user first."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="File ending in .csv, .json or .parquet; default: stdout.")] = None,
    mass: Mass = 0.8,
    user: UserColumn = None,
    item: ItemColumn = None,
    header: Header = None,
    as_json: AsJson = False,
) -> None:
    """Predict ratings: mean, median, mode, sd, an interval and a probability for every level."""
    from doublefeature.pairs import read_pairs

    if out is not None:
        check_writable(out)
        if as_json:
            raise InputError("--json prints on stdout. Give --out a file that ends in .json instead.")
    fitted = load(model)

    def known(user: str, item: str) -> tuple[bool, bool]:
        return fitted.knows_user(fitted.as_user(user)), fitted.knows_item(fitted.as_item(item))

    asked, taken = read_pairs(pairs, user=user, item=item, header=header, known=known)
    if taken is not None:
        say(f"line 1 of {pairs} is taken for a header, its ids are not known; if it is a pair: --no-header")
    prediction = fitted.predict([(fitted.as_user(row.first), fitted.as_item(row.second)) for row in asked])
    rows = prediction.to_rows(mass)
    if as_json:
        print_json(rows)
    else:
        write_rows(rows, out)
    if not prediction.known.all():
        absent = int((~prediction.known.all(axis=1)).sum())
        say(f"{absent} of {len(asked)} pairs have a user or an item not in the training data: see column `prior`")


def recommend(
    model: Model,
    user: UserAsked = None,
    ratings: RatingsAsked = None,
    n: HowMany = 10,
    rank_by: Annotated[RankBy, typer.Option(help="Order by this.")] = RankBy.MEAN,
    level: Annotated[
        str | None, typer.Option(help="Level for at-least; default: three quarters up the scale, such as 4 of 5.")
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(min=0.001, max=0.999, help="Quantile for lower; default: 0.1.")
    ] = None,
    mass: Mass = 0.8,
    allow: Ids = None,
    deny: Ids = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Fixes the draw of thompson; default: 0.")] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items not rated yet, each with an interval: to a user, or to whoever gave the ratings in a file."""
    if user is None and ratings is None:
        raise InputError("recommend to whom? Give --user, or --ratings with a file of item,rating lines.")
    for given, name, wanted in ((quantile, "--quantile", RankBy.LOWER), (seed, "--seed", RankBy.THOMPSON)):
        if given is not None and rank_by is not wanted:
            raise InputError(f"{name} is for --rank-by {wanted.value}. Add that, or leave it out.")
    fitted = load(model)
    asked: dict[str, Any] = {
        "rank_by": _RANKINGS[rank_by],
        "level": level,
        "quantile": 0.1 if quantile is None else quantile,
        "mass": mass,
        "allow": _item_ids(fitted, allow),
        "deny": _item_ids(fitted, deny),
        "seed": seed or 0,
    }
    if ratings is None:
        found = fitted.recommend(fitted.as_user(user or ""), n, **asked)
    else:
        asked["deny"] = [*(asked["deny"] or ()), *rated_before(fitted, user)]
        found = fold_file(fitted, ratings, user).recommend(n, **asked)
    rows = [row._asdict() for row in found]
    known = ratings is not None or fitted.knows_user(fitted.as_user(user or ""))
    if not rows:
        say_nothing_left(user, filtered=allow is not None or deny is not None)
    if as_json:
        print_json({"user": user, "known": known, "rank_by": rank_by.value, "items": rows})
        return
    if not known:
        say(f"user {user} is not in the training data: this is the answer for anybody")
    high = f"P(at least {level if level is not None else fitted.high_level})"
    print_items(rows, {"mean": "mean", **interval(mass), "at_least": high})


def prefer(
    model: Model,
    user: User,
    item_a: Annotated[str, typer.Argument(metavar="ITEM_A")],
    item_b: Annotated[str, typer.Argument(metavar="ITEM_B")],
    as_json: AsJson = False,
) -> None:
    """Say how likely the user rates A above, level with or below B."""
    fitted = load(model)
    chances = fitted.prefer(fitted.as_user(user), fitted.as_item(item_a), fitted.as_item(item_b))
    unknown = _unknown(fitted, user, item_a, item_b)
    if as_json:
        print_json({"user": user, "a": item_a, "b": item_b, "unknown": unknown, **asdict(chances)})
        return
    _say_unknown(unknown)
    typer.echo(f"above {chances.above:.1%}   level {chances.level:.1%}   below {chances.below:.1%}")


def explain(model: Model, user: User, item: Item, mass: Mass = 0.8, as_json: AsJson = False) -> None:
    """Take a pair's score apart: base, offsets, and each shared feature with its probability."""
    fitted = load(model)
    answer = fitted.explain(fitted.as_user(user), fitted.as_item(item), mass=mass)
    unknown = _unknown(fitted, user, item)
    if as_json:
        print_json({**answer.to_dict(), "unknown": unknown})
        return
    _say_unknown(unknown)
    for line in answer.lines(fitted.title(fitted.as_item(item))):
        typer.echo(line)


def top(
    model: Model,
    n: HowMany = 10,
    by: Annotated[TopBy, typer.Option(help="Mean rating over all users, or item offset.")] = TopBy.RATING,
    as_json: AsJson = False,
) -> None:
    """Rank items by their posterior mean rating over all users, or by their offset, with intervals."""
    rows = [row._asdict() for row in load(model).top(n, by=_ORDERS[by])]
    if as_json:
        print_json(rows)
        return
    print_items(rows, {"mean": "mean", **interval(ranking.INTERVAL_MASS)})


def similar(
    model: Model,
    item: Annotated[str, typer.Argument(metavar="ITEM")],
    n: HowMany = 10,
    as_json: AsJson = False,
) -> None:
    """List the items whose scores go together with this one's over users."""
    fitted = load(model)
    rows = [row._asdict() for row in fitted.similar_items(fitted.as_item(item), n)]
    if as_json:
        print_json(rows)
        return
    print_items(rows, {"correlation": "correlation", "covariance": "covariance"})


def _unknown(fitted: DoubleFeature, user: str, *items: str) -> list[str]:
    """Return which of the ids asked about were not in the training data."""
    strangers = [] if fitted.knows_user(fitted.as_user(user)) else [f"user {user}"]
    return strangers + [f"item {item}" for item in items if not fitted.knows_item(fitted.as_item(item))]


def _say_unknown(unknown: list[str]) -> None:
    if unknown:
        say(f"not in the training data, so the prior answers: {', '.join(unknown)}")


def _item_ids(fitted: DoubleFeature, given: list[str] | None) -> list[Hashable] | None:
    return None if given is None else [fitted.as_item(text) for text in given]
