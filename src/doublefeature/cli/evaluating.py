"""Judge a model on ratings it has not seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doublefeature.cli.data import Tables, attach_covariates, load_ratings, read_item_table
from doublefeature.cli.fitting import build_model, compile_first, read_config
from doublefeature.cli.options import (
    AsJson,
    Duplicates,
    Folds,
    Header,
    ItemColumn,
    ItemCovariates,
    ItemFile,
    Levels,
    RatingColumn,
    Threads,
    TimeColumn,
    UserColumn,
    UserCovariates,
    UserFile,
    WhichDuplicate,
)
from doublefeature.cli.output import check_writable, print_json, say, write_rows
from doublefeature.errors import InputError

if TYPE_CHECKING:
    from doublefeature.evaluation.evaluate import Evaluation
    from doublefeature.ratings import Ratings


def evaluate(
    ratings: Annotated[Path, typer.Argument(help="Ratings: CSV, TSV, MovieLens, Parquet, gzip; or a data set's name.")],
    protocol: Annotated[
        str, typer.Option(help="What is held out: paper, holdout, temporal, cold-users, cold-items or kfold.")
    ] = "holdout",
    share: Annotated[float | None, typer.Option(help="Share of ratings, users or items held out; default 0.1.")] = None,
    folds: Folds = None,
    given: Annotated[
        int | None,
        typer.Option(min=0, help="Ratings of each cold user folded in first, default 10; 0: the prior answers."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Fixes model and splits; default: 0.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many splits, with seeds from --seed on.")] = 1,
    top: Annotated[int, typer.Option(min=0, help="Length of top-n lists; 0: do not judge lists.")] = 10,
    preset: Annotated[str | None, typer.Option(help="Model; default: that of fit.")] = None,
    sweeps: Annotated[
        int | None,
        typer.Option(min=1, help="Sweeps per chain, warm-up included; default: 480, or 960 below 75,000 ratings."),
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, help="Sweeps thrown away; default: half of --sweeps, or 120.")
    ] = None,
    thin: Annotated[int | None, typer.Option(min=1, help="Keep every so many sweeps.")] = None,
    chains: Annotated[int | None, typer.Option(min=1, help="Independent chains.")] = None,
    threads: Threads = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML; options on the command line win.")] = None,
    levels: Levels = None,
    items: ItemFile = None,
    item_covariates: ItemCovariates = None,
    users: UserFile = None,
    user_covariates: UserCovariates = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    time: TimeColumn = None,
    header: Header = None,
    duplicates: WhichDuplicate = Duplicates.ERROR,
    as_json: AsJson = False,
    csv: Annotated[Path | None, typer.Option(help="Write every split's scores here, as .csv or .parquet.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write everything here, as .json.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Folder for plots of scores and calibration.")] = None,
) -> None:
    """Fit to a part of the ratings and judge predictions on the rest, beside rules that need no model."""
    from doublefeature.evaluation.evaluate import GIVEN
    from doublefeature.evaluation.evaluate import evaluate as run
    from doublefeature.inference.fit import stop_on_signals
    from doublefeature.inference.progress import shown_progress

    check_protocol(protocol, folds, given)
    plan = {"sweeps": sweeps, "warmup": warmup, "thin": thin, "chains": chains, "threads": threads}
    model = build_model(read_config(config), preset, seed, plan)
    _check_targets(csv, out, plot)
    table = read_item_table(items)
    data = load_ratings(ratings, levels, user, item, rating, time, header, duplicates)
    tables = Tables(table, items, users)
    data = attach_covariates(data, tables, item_covariates, user_covariates, unrated=False)
    asked: dict[str, Any] = {
        "model": model,
        "seeds": range(model.seed, model.seed + seeds),
        "share": share,
        "folds": 5 if folds is None else folds,
        "given": GIVEN if given is None else given,
        "items": table,
        "top_n": top or None,
    }
    _check_splits(data, protocol, asked)
    compile_first(model)
    with stop_on_signals() as stop, shown_progress() as progress:
        result = run(data, protocol, **asked, progress=progress, announce=say, stop=stop)
    _write(result, csv, out, plot)
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)


def check_protocol(protocol: str, folds: int | None, given: int | None = None) -> None:
    """Raise if something was asked for that this protocol does not have."""
    for name, value, owner in (("--folds", folds, "kfold"), ("--given", given, "cold-users")):
        if value is not None and protocol != owner:
            raise InputError(f"{name} is for protocol {owner}, and this is {protocol}. Leave it out.")


def _check_splits(data: Ratings, protocol: str, asked: dict[str, Any]) -> None:
    """Raise now, not after minutes of compiling, if the ratings cannot be split as asked."""
    from doublefeature.evaluation.splits import make_splits

    told = {name: asked[name] for name in ("share", "folds", "given")}
    make_splits(data, protocol, seed=asked["seeds"][0], **told)


def _check_targets(csv: Path | None, out: Path | None, plot: Path | None) -> None:
    """Raise before the work if what was asked for cannot be written after it."""
    for path, endings in ((csv, (".csv", ".parquet")), (out, (".json",))):
        if path is not None:
            if path.suffix.lower() not in endings:
                raise InputError(f"{path}: the ending must be {' or '.join(endings)}.")
            check_writable(path)
    if plot is not None:
        from doublefeature.evaluation.drawing import check_drawing

        check_drawing()
        if plot.exists() and not plot.is_dir():
            raise InputError(f"{plot}: this is a file. Give a folder for the plots.")
        check_writable(plot / "scores.png" if plot.is_dir() else plot)


def _write(result: Evaluation, csv: Path | None, out: Path | None, plot: Path | None) -> None:
    from doublefeature.posterior.disk import write_whole

    if csv is not None:
        write_rows(result.to_rows(), csv)
    if out is not None:
        write_whole(out, json.dumps(result.to_dict(), ensure_ascii=False, indent=1).encode())
    if plot is not None:
        from doublefeature.evaluation.plots import draw_evaluation

        plot.mkdir(exist_ok=True)
        for name, content in draw_evaluation(result).items():
            write_whole(plot / name, content)
        say(f"plots are in {plot}")


def _print(result: Evaluation) -> None:
    from rich.console import Console

    from doublefeature.evaluation.tables import evaluation_table, heading

    for line in heading(result):
        typer.echo(line)
    typer.echo()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200)
    console.print(evaluation_table(result))
