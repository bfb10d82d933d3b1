"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Duplicates(StrEnum):
    """Which of two ratings of the same item by the same user counts."""

    ERROR = "error"
    FIRST = "first"
    LAST = "last"


def _some_id(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise typer.BadParameter("must not be empty")
    return text


Seed = Annotated[int, typer.Option(min=0, help="Fixes every random number.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads in all; default: every core.")]
Model = Annotated[Path, typer.Argument(help="Model folder written by fit.", metavar="MODEL")]
User = Annotated[str, typer.Option("--user", "-u", callback=_some_id, help="User id, as in the ratings.")]
UserAsked = Annotated[str | None, typer.Option("--user", "-u", callback=_some_id, help="User id, as in the ratings.")]
RatingsAsked = Annotated[
    Path | None,
    typer.Option(
        "--ratings",
        "-r",
        help="File of item,rating lines: what a new user has rated, or in place of what --user had. Items that --user "
        "had rated do not come back.",
    ),
]
HowMany = Annotated[int, typer.Option("-n", min=1, help="How many.")]
Mass = Annotated[float, typer.Option(min=0.01, max=0.999, help="Probability that intervals hold.")]
Levels = Annotated[str | None, typer.Option(help="Ordered levels, such as 1..5 or low<mid<high.")]
UserColumn = Annotated[str | None, typer.Option("--user-column", help="Name of the user column.")]
ItemColumn = Annotated[str | None, typer.Option("--item-column", help="Name of the item column.")]
RatingColumn = Annotated[str | None, typer.Option("--rating-column", help="Name of the rating column.")]
ItemFile = Annotated[Path | None, typer.Option("--items", help="Item table: id, title, any columns.")]
UserFile = Annotated[Path | None, typer.Option("--users", help="User table: id, any columns.")]
ItemCovariates = Annotated[
    str | None, typer.Option("--item-covariates", help="Columns of --items for the model, such as genres,year.")
]
UserCovariates = Annotated[
    str | None, typer.Option("--user-covariates", help="Columns of --users for the model, such as age,job:category.")
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line names the columns; default: found out."),
]
WhichDuplicate = Annotated[
    Duplicates, typer.Option("--duplicates", help="When a user rated an item twice: refuse, or keep this one.")
]
Folds = Annotated[int | None, typer.Option(min=2, help="Folds of protocol kfold; default: 5.")]
TimeColumn = Annotated[str | None, typer.Option("--time-column", help="Name of the column of timestamps.")]
