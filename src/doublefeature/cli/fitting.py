"""Fit a model into a folder, and go on with one."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doublefeature.cli.data import Tables, attach_covariates, load_ratings, read_item_table
from doublefeature.cli.options import (
    Duplicates,
    Header,
    ItemColumn,
    ItemCovariates,
    ItemFile,
    Levels,
    Model,
    RatingColumn,
    Threads,
    UserColumn,
    UserCovariates,
    UserFile,
    WhichDuplicate,
)
from doublefeature.cli.output import Interrupted, say
from doublefeature.errors import InputError, SettingsError, show

if TYPE_CHECKING:
    from doublefeature.ratings import Ratings
    from doublefeature.readers import RatingsFolder
    from doublefeature.recommender import DoubleFeature

_SECTIONS = ("priors", "moves", "schedule", "sharding")


class Merge(StrEnum):
    """How item offsets of shards become one."""

    PRECISION = "precision"
    DRAWS = "draws"
    PAPER = "paper"


class SecondStage(StrEnum):
    """What a shard's features become once item offsets are merged."""

    REFRESH = "refresh"
    PAPER = "paper"


Engine = Annotated[
    str,
    typer.Option(
        help="Where it runs: threads of this process; dask (a cluster on this machine), dask://host:port or "
        "tls://host:port (a running scheduler); processes (shards only)."
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Most workers of Dask; default: every core, or every worker there is.")
]


def read_config(path: Path | None) -> dict[str, Any]:
    """Read settings from TOML: preset, seed, holdout and the tables priors, moves, schedule and sharding."""
    if path is None:
        return {}
    try:
        with path.open("rb") as raw:
            values = tomllib.load(raw)
    except OSError as problem:
        raise SettingsError(f"{path}: cannot be read ({problem.strerror}). Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsError(f"{path}: {problem}.") from None
    known = {"preset", "seed", "holdout", *_SECTIONS}
    for key, value in values.items():
        if key not in known:
            raise SettingsError(f"{path}: unknown key {show(key)}. Known keys: {', '.join(sorted(known))}.")
        if (key in _SECTIONS) != isinstance(value, dict):
            raise SettingsError(f"{path}: {key} must be {'a table' if key in _SECTIONS else 'one value'}.")
    return values


def build_model(
    settings: dict[str, Any], preset: str | None, seed: int | None, plan: dict[str, int | None]
) -> DoubleFeature:
    """Return an unfitted model from the settings of a file and from options, which win."""
    from doublefeature.checks import check_seed
    from doublefeature.config import Moves, Priors, Schedule
    from doublefeature.config import preset as named_preset
    from doublefeature.recommender import DoubleFeature
    from doublefeature.runs import check_run, thin_for

    name = preset or settings.get("preset", DoubleFeature().preset)
    priors = {**named_preset(name).to_dict(), **settings.get("priors", {})}
    schedule = {**settings.get("schedule", {}), **{key: value for key, value in plan.items() if value is not None}}
    if "sweeps" in schedule and "warmup" not in schedule and isinstance(schedule["sweeps"], int):
        schedule["warmup"] = schedule["sweeps"] // 2
    planned = Schedule.from_dict(schedule)
    if "thin" not in schedule:
        planned = replace(planned, thin=thin_for(planned.n_sweeps, planned.warmup))
    check_run(planned)
    return DoubleFeature(
        preset=name,
        priors=Priors.from_dict(priors),
        moves=Moves.from_dict(settings.get("moves", {})),
        schedule=planned,
        seed=check_seed(seed if seed is not None else settings.get("seed", 0)),
    )


def over_shards(
    model: DoubleFeature, settings: dict[str, Any], plan: dict[str, Any], engine: str, workers: int | None = None
) -> DoubleFeature:
    """Return the model with its engine, over shards if a file or an option asks for them."""
    from doublefeature.config import Sharding
    from doublefeature.inference.engines import check_engine
    from doublefeature.sharded import ShardedDoubleFeature

    model.engine, model.workers = check_engine(engine), workers

    chosen = {**settings.get("sharding", {}), **{key: value for key, value in plan.items() if value is not None}}
    if not chosen:
        _check_workers(engine, workers)
        return model
    if "shards" not in chosen:
        raise SettingsError(f"{', '.join(chosen)} is about shards. Say how many with --shards.")
    return ShardedDoubleFeature(
        Sharding.from_dict(chosen),
        preset=model.preset,
        priors=model.priors,
        schedule=model.schedule,
        moves=model.moves,
        seed=model.seed,
        engine=engine,
        workers=workers,
    )


def _check_workers(engine: str, workers: int | None) -> None:
    """Raise if workers are asked for where there are none."""
    from doublefeature.inference.engines import THREADS

    if engine == THREADS and workers is not None:
        raise SettingsError("--workers is for the engine dask and for shards. Use --threads for this process.")


def fit(
    ratings: Annotated[
        Path,
        typer.Argument(help="Ratings: CSV, TSV, MovieLens, Parquet, gzip; a folder of such files; a data set's name."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the model.")],
    preset: Annotated[str | None, typer.Option(help="Model: full (default) or paper.")] = None,
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
    seed: Annotated[int | None, typer.Option(min=0, help="Fixes every random number; default: 0.")] = None,
    holdout: Annotated[
        float | None, typer.Option(min=0.0, max=0.5, help="Share of ratings kept out to measure quality; default 0.05.")
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Split users into so many shards with own chains.")] = None,
    merge: Annotated[
        Merge | None, typer.Option(help="How shards' item offsets become one; default: precision.")
    ] = None,
    second_stage: Annotated[SecondStage | None, typer.Option(help="What follows the merge; default: refresh.")] = None,
    engine: Engine = "threads",
    workers: Workers = None,
    levels: Levels = None,
    items: ItemFile = None,
    item_covariates: ItemCovariates = None,
    users: UserFile = None,
    user_covariates: UserCovariates = None,
    database: Annotated[
        str | None,
        typer.Option(help="Database of a service: its ratings are added, what was deleted there is left out."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML; options on the command line win.")] = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    header: Header = None,
    duplicates: WhichDuplicate = Duplicates.ERROR,
) -> None:
    """Fit a model and write its posterior into a new folder. Ctrl-C leaves a folder that `resume` goes on with.

    With the engine dask every worker holds some of the ratings, and reads them itself from a folder of files. The draws
    are the same by any engine and with any number of workers.
    """
    from doublefeature.readers import ratings_folder

    settings = read_config(config)
    plan = {"sweeps": sweeps, "warmup": warmup, "thin": thin, "chains": chains, "threads": threads}
    model = build_model(settings, preset, seed, plan)
    split = {"shards": shards, "merge": merge and merge.value, "second_stage": second_stage and second_stage.value}
    model = over_shards(model, settings, split, engine, workers)
    share = holdout if holdout is not None else settings.get("holdout", 0.05)
    _check_database(database)
    table = read_item_table(items)
    wanted = Tables(table, items, users), item_covariates, user_covariates
    data: Ratings | RatingsFolder
    if _stays_in_parts(model, ratings, database):
        names = {"user": user, "item": item, "rating": rating}
        files = ratings_folder(ratings, levels=levels, header=header, duplicates=duplicates.value, **names)
        data = attach_covariates(files, *wanted)
    else:
        read = load_ratings(ratings, levels, user, item, rating, header=header, duplicates=duplicates)
        whole = _with_database(read, database)
        data = attach_covariates(whole, *wanted)
    compile_first(model)
    _run(lambda watch: model.fit(data, items=table, holdout=share, out=out, **watch), out)


def _stays_in_parts(model: DoubleFeature, path: Path, database: str | None) -> bool:
    """Whether workers read the ratings themselves: a folder of files, unless something needs all of them here."""
    from doublefeature.inference.engines import is_dask
    from doublefeature.sharded import ShardedDoubleFeature

    whole = isinstance(model, ShardedDoubleFeature) or database is not None
    return is_dask(model.engine) and path.is_dir() and not whole


def _check_database(database: str | None) -> None:
    """Raise if the database is a file that is not there: opening it would make one."""
    kind, _, file = (database or "").partition(":///")
    if kind.partition("+")[0] == "sqlite" and not Path(file.partition("?")[0]).is_file():
        raise InputError(f"{database}: there is no such database. Check the path.")


def _with_database(ratings: Ratings, database: str | None) -> Ratings:
    if database is None:
        return ratings
    from doublefeature.server.refitting import with_stored

    merged, left_out = with_stored(ratings, database)
    say(f"{merged.n_ratings} ratings with those of the database, {ratings.n_ratings} without")
    if left_out:
        say(f"{left_out} ratings of the database are at other levels and left out")
    return merged


def resume(
    model: Model,
    sweeps: Annotated[
        int | None, typer.Option(min=1, help="New total of sweeps per chain; default: as planned.")
    ] = None,
    threads: Threads = None,
    engine: Engine = "threads",
    workers: Workers = None,
) -> None:
    """Go on with an interrupted fit, or make a finished one longer, by any engine."""
    from doublefeature.inference.engines import check_engine
    from doublefeature.recommender import DoubleFeature
    from doublefeature.sharded import ShardedDoubleFeature, is_sharded

    plan: dict[str, Any] = {
        "sweeps": sweeps,
        "threads": threads,
        "engine": check_engine(engine),
        "workers": workers,
    }
    if not is_sharded(model):
        _check_workers(engine, workers)
    if is_sharded(model):
        _run(lambda watch: ShardedDoubleFeature.resume(model, **plan, **watch), model)
        return
    _run(lambda watch: DoubleFeature.resume(model, **plan, **watch), model)


def _run(work: Any, out: Path) -> None:
    """Fit under a progress display; a signal stops it after the sweep, with everything written.

    A signal that comes after the last sweep changes nothing.
    """
    from doublefeature.inference.fit import stop_on_signals
    from doublefeature.inference.progress import shown_progress
    from doublefeature.report.card import write_card
    from doublefeature.sharded import ShardedDoubleFeature, is_sharded

    with stop_on_signals() as stop:
        with shown_progress() as progress:
            fitted = work({"progress": progress, "stop": stop})
        if fitted.finished_ and (fitted.holds_ratings_ or isinstance(fitted, ShardedDoubleFeature)):
            write_card(fitted, out)
    if not fitted.finished_:
        done = "what is done of the shards is" if is_sharded(out) else f"{len(fitted.posterior_)} draws are"
        raise Interrupted(f"interrupted; {done} in {out}. Go on with: doublefeature resume {out}")
    chains = f"{fitted.schedule_.chains} chains"
    if isinstance(fitted, ShardedDoubleFeature):
        chains += f" on each of {fitted.sharding.shards} shards"
        hits = fitted.consensus_.hit_rate.mean()
        say(f"stored draws within ε = {fitted.sharding.epsilon:g} of the merged offsets for every item: {hits:.2%}")
    say(f"{len(fitted.posterior_)} draws of {chains} in {out}; see {out / 'card.md'}")
    typer.echo(str(out))


def compile_first(model: DoubleFeature | None = None) -> None:
    """Compile the kernels of a model (None: of the paper) unless that has been done, and say so: it takes a while."""
    from doublefeature.inference.compiling import compile_kernels, needs_compiling, preset_like

    kind = "paper" if model is None or model.priors is None else preset_like(model.priors)
    if needs_compiling(kind):
        say("compiling the kernels, once: a minute or two on two cores")
        compile_kernels(kind)
