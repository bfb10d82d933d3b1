"""Compare models of this package and of others on the same splits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doublefeature.cli.data import load_ratings
from doublefeature.cli.evaluating import check_protocol
from doublefeature.cli.options import (
    AsJson,
    Duplicates,
    Folds,
    Header,
    ItemColumn,
    Levels,
    RatingColumn,
    Seed,
    Threads,
    TimeColumn,
    UserColumn,
    WhichDuplicate,
)
from doublefeature.cli.output import check_writable, print_json, say, write_rows
from doublefeature.errors import InputError, SettingsError, show

if TYPE_CHECKING:
    from doublefeature.evaluation.compare import Comparison


def compare(
    ratings: Annotated[Path, typer.Argument(help="Ratings: CSV, TSV, MovieLens, Parquet, gzip; or a data set's name.")],
    models: Annotated[
        str, typer.Option(help="Names with commas between: models, or all, peers, rules, myfm. See --list.")
    ] = "all",
    protocol: Annotated[
        str, typer.Option(help="What is held out: paper, holdout, temporal, cold-users, cold-items or kfold.")
    ] = "holdout",
    share: Annotated[float | None, typer.Option(help="Share of ratings, users or items held out; default 0.1.")] = None,
    folds: Folds = None,
    given: Annotated[
        int | None,
        typer.Option(min=0, help="Ratings of each cold user that all learn from, default 10; 0: none."),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many splits, with seeds from --seed on.")] = 1,
    tune: Annotated[
        bool, typer.Option(help="Choose settings on a part of the training ratings, or take defaults.")
    ] = True,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="MODEL.SETTING=VALUE", help="A setting in place of tuning; can be repeated."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Length of top-n lists; 0: do not judge lists.")] = 10,
    threads: Threads = None,
    limit: Annotated[float, typer.Option(min=1.0, help="Seconds that one fit may take.")] = 3600.0,
    levels: Levels = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    time: TimeColumn = None,
    header: Header = None,
    duplicates: WhichDuplicate = Duplicates.ERROR,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of finished runs; those in it are not run again.")
    ] = None,
    as_json: AsJson = False,
    csv: Annotated[Path | None, typer.Option(help="Write every split's scores here, as .csv or .parquet.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables here, or between the markers of this page.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", is_eager=True, callback=lambda asked: _list_models(asked), help="List the models.")
    ] = False,
) -> None:
    r"""Run models on the same splits, each tuned within the training part: scores, differences, time and memory.

    Packages of other people come with: pip install 'doublefeature\[peers]'
    """
    from doublefeature.evaluation.compare import compare as run
    from doublefeature.evaluation.evaluate import GIVEN
    from doublefeature.evaluation.peers.registry import find_models
    from doublefeature.evaluation.peers.runner import Plan

    check_protocol(protocol, folds, given)
    names = [name.strip() for name in models.split(",") if name.strip()]
    find_models(names)
    settings = _settings(fixed or [])
    _check_targets(csv, markdown)
    result = run(
        load_ratings(ratings, levels, user, item, rating, time, header, duplicates),
        [*names, "rules"],
        protocol=protocol,
        seeds=range(seed, seed + seeds),
        share=share,
        folds=5 if folds is None else folds,
        given=GIVEN if given is None else given,
        settings=settings,
        plan=Plan(tune=tune, threads=threads, limit=limit),
        top_n=top or None,
        out=out,
        say=say,
    )
    _write(result, csv, markdown)
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)


def _check_targets(csv: Path | None, markdown: Path | None) -> None:
    """Raise before the work if what was asked for cannot be written after it."""
    if csv is not None and csv.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{csv}: the ending must be .csv or .parquet.")
    for path in (csv, markdown):
        if path is not None:
            check_writable(path)


def _list_models(asked: bool) -> None:
    if not asked:
        return
    from doublefeature.evaluation.peers.registry import KNOWN

    for peer in KNOWN.values():
        typer.echo(f"{peer.name:20}{peer.about}{'' if peer.installed else '; not installed'}")
    raise typer.Exit


def _settings(texts: list[str]) -> dict[str, dict[str, int | float | str | bool]]:
    """Read settings such as `myfm-8.iterations=100`."""
    from doublefeature.evaluation.peers.registry import KNOWN

    found: dict[str, dict[str, int | float | str | bool]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        model, dot, name = place.partition(".")
        if not (equals and dot):
            raise InputError(f"{show(text)} is no setting. Write it as MODEL.SETTING=VALUE.")
        if model not in KNOWN or name not in KNOWN[model].defaults:
            known = ", ".join(KNOWN[model].defaults) if model in KNOWN else f"one of {', '.join(KNOWN)}"
            raise SettingsError(f"{show(place)} is no setting of a model. Known are: {known}.")
        found.setdefault(model, {})[name] = _like(value, KNOWN[model].defaults[name], text)
    return found


def _like(value: str, default: Any, text: str) -> int | float | str | bool:
    """Return a text as a value of the same kind as the default."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        kind: type[int] | type[float] | type[str] = type(default)
        return kind(value)
    except (KeyError, ValueError):
        raise InputError(f"{show(text)}: the value must be like {default!r}.") from None


def _write(result: Comparison, csv: Path | None, markdown: Path | None) -> None:
    from doublefeature.evaluation.peers.table import markdown as as_markdown
    from doublefeature.evaluation.peers.table import put_into
    from doublefeature.posterior.disk import write_whole

    if csv is not None:
        write_rows(result.to_rows(), csv)
    if markdown is not None:
        page = markdown.read_text(encoding="utf-8") if markdown.is_file() else ""
        write_whole(markdown, put_into(page, as_markdown(result)).encode())


def _print(result: Comparison) -> None:
    from rich.console import Console

    from doublefeature.evaluation.peers.table import heading, rich_tables

    for line in heading(result):
        typer.echo(line)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 240)
    for table in rich_tables(result):
        console.print()
        console.print(table)
