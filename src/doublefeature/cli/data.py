"""Ratings before they are fitted: describe, fetch, simulate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from doublefeature.cli.options import (
    AsJson,
    Duplicates,
    Header,
    ItemColumn,
    Levels,
    RatingColumn,
    Seed,
    UserColumn,
    WhichDuplicate,
)
from doublefeature.cli.output import print_json, say
from doublefeature.errors import SettingsError
from doublefeature.ratings import Ratings

if TYPE_CHECKING:
    from doublefeature.covariates import R
    from doublefeature.item_table import ItemTable


class Tables(NamedTuple):
    """The tables beside the ratings."""

    items: ItemTable | None
    item_file: Path | None
    user_file: Path | None


app = typer.Typer(no_args_is_help=True, help="Look at ratings before fitting them.")


def load_ratings(
    source: Path,
    levels: str | None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    header: bool | None = None,
    duplicates: Duplicates = Duplicates.ERROR,
) -> Ratings:
    """Read a ratings file, or a named data set when there is no such file."""
    from doublefeature.datasets import DATASET_NAMES, load_dataset
    from doublefeature.readers import read_ratings

    if time is None and str(source) in DATASET_NAMES and not source.exists():
        return load_dataset(str(source))
    return read_ratings(
        source,
        levels=levels,
        user=user,
        item=item,
        rating=rating,
        time=time,
        header=header,
        duplicates=duplicates.value,
    )


def read_item_table(path: Path | None) -> ItemTable | None:
    """Read the table of items, if there is one."""
    from doublefeature.item_table import read_items

    return None if path is None else read_items(path)


def attach_covariates(
    ratings: R, tables: Tables, item_names: str | None, user_names: str | None, *, unrated: bool = True
) -> R:
    """Return the ratings with the columns that were asked for, names with commas between."""
    from doublefeature.covariates import with_covariates
    from doublefeature.item_table import read_users

    if tables.user_file is not None and user_names is None:
        raise SettingsError("--users is for columns of users. Name some with --user-covariates, or leave it out.")
    users = None if tables.user_file is None else read_users(tables.user_file)
    if isinstance(ratings, Ratings):
        _say_matches(tables.items, ratings.items, tables.item_file, "item")
        _say_matches(users, ratings.users, tables.user_file, "user")
    if item_names is None and user_names is None:
        return ratings
    return with_covariates(
        ratings,
        items=tables.items,
        users=users,
        item_covariates=() if item_names is None else item_names,
        user_covariates=() if user_names is None else user_names,
        unrated=unrated,
    )


def _say_matches(table: ItemTable | None, ids: Sequence[Hashable], path: Path | None, role: str) -> None:
    """Say how many ids have a row in a table if not all do; raise if none does."""
    from doublefeature.covariates import check_match

    if table is None:
        return
    found = check_match(table, ids, role)
    if found < len(ids):
        say(f"{found} of {len(ids)} {role}s have a row in {path}")


@app.command()
def describe(
    file: Annotated[Path, typer.Argument(help="Ratings: CSV, TSV, MovieLens, Parquet, gzip; or a data set's name.")],
    levels: Levels = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    header: Header = None,
    duplicates: WhichDuplicate = Duplicates.ERROR,
    as_json: AsJson = False,
) -> None:
    """Say what is in a ratings file, or what is wrong with it."""
    ratings = load_ratings(file, levels, user, item, rating, header=header, duplicates=duplicates)
    counts = dict(zip(map(str, ratings.levels), ratings.level_counts.tolist(), strict=True))
    if as_json:
        sizes = {"users": ratings.n_users, "items": ratings.n_items, "ratings": len(ratings)}
        print_json({**sizes, "levels": counts, "fingerprint": ratings.fingerprint})
        return
    typer.echo(f"{ratings.n_users} users, {ratings.n_items} items, {len(ratings)} ratings ({ratings.density:.1%})")
    for level, count in counts.items():
        typer.echo(f"  level {level:<8}{count:>10}  {count / max(len(ratings), 1):6.1%}")
    typer.echo(f"fingerprint {ratings.fingerprint}")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="ml-100k, ml-1m or ml-latest-small.")],
    source: Annotated[str | None, typer.Option("--from", help="A zip file or its address.")] = None,
    folder: Annotated[Path | None, typer.Option("--to", help="Folder that data sets are kept in.")] = None,
) -> None:
    """Fetch a named data set from its publisher, or from an archive at hand."""
    from doublefeature.fetching import TERMS
    from doublefeature.fetching import fetch as fetch_data

    target, ratings = fetch_data(name, source=source, folder=folder)
    say(TERMS)
    typer.echo(f"{target}: {ratings.n_users} users, {ratings.n_items} items, {len(ratings)} ratings")


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for ratings.csv and truth.npz.")],
    users: Annotated[int, typer.Option(min=2)] = 100,
    items: Annotated[int, typer.Option(min=1)] = 150,
    mass: Annotated[float, typer.Option(min=1e-6, help="λ: how many features to expect.")] = 3.0,
    density: Annotated[float, typer.Option(min=1e-6, max=0.999999, help="p: share of items in a feature.")] = 0.2,
    tau: Annotated[float, typer.Option(min=1e-3, help="Noise scale.")] = 0.25,
    seed: Seed = 0,
) -> None:
    """Simulate ratings with planted features, as section 5 of the paper does."""
    from doublefeature.studies.recovery import Design
    from doublefeature.studies.simulation import simulate_into

    design = Design(users=users, items=items, mass=mass, density=density, tau=tau)
    simulate_into(folder, design, seed)
    typer.echo(str(folder / "ratings.csv"))
