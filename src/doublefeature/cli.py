"""The command line: every command parses, calls one library function and prints.

Data go to stdout, messages and progress to stderr. Exit codes: 0 ok, 2 wrong usage or bad input, 3 environment,
1 a bug, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from doublefeature import __version__
from doublefeature.errors import DoubleFeatureError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Recommendations from ordinal ratings that can say why and how sure.",
)
data_app = typer.Typer(no_args_is_help=True, help="Look at ratings before fitting them.")
app.add_typer(data_app, name="data")

Seed = Annotated[int, typer.Option(min=0, help="Fixes every random number.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"doublefeature {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    pass


@app.command()
def demo(
    users: Annotated[int, typer.Option(min=2, help="Simulated users.")] = 100,
    items: Annotated[int, typer.Option(min=1, help="Simulated items.")] = 150,
    tau: Annotated[float, typer.Option(min=1e-3, help="Noise scale of the simulated ratings.")] = 0.25,
    sweeps: Annotated[int, typer.Option(min=2, help="Sweeps per chain, half of them warm-up.")] = 600,
    chains: Annotated[int, typer.Option(min=1, help="Independent chains.")] = 4,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads in all; default: every core.")] = None,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Simulate ratings with planted features, fit them from nothing, and compare with the truth."""
    from doublefeature.config import Schedule
    from doublefeature.inference.progress import shown_progress
    from doublefeature.studies.recovery import Design, recover

    design = Design(users=users, items=items, tau=tau)
    schedule = Schedule(sweeps=sweeps, warmup=sweeps // 2, thin=5, chains=chains, threads=threads)
    typer.echo(
        f"simulating {users} users × {items} items, fitting {chains} chains of {sweeps} sweeps "
        "(the first run compiles the kernels, about a minute)",
        err=True,
    )
    with shown_progress() as progress:
        result = recover(design, seed, schedule, progress=progress)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
        return
    rows = (
        ("the true parameters (oracle)", result.oracle),
        ("doublefeature", result.model),
        ("most frequent level of the item", result.item_mode),
        ("most frequent level of the user", result.user_mode),
        ("most frequent level", result.majority),
    )
    typer.echo("held-out ratings predicted exactly")
    for name, share in rows:
        typer.echo(f"  {name:<34}{share:7.1%}")
    typer.echo(f"features: {result.true_features} planted, {result.mean_features:.1f} in the posterior mean")


@data_app.command()
def describe(
    file: Annotated[Path, typer.Argument(help="Ratings: CSV, TSV, MovieLens, Parquet, gzip.")],
    levels: Annotated[str | None, typer.Option(help="Ordered levels, such as 1..5 or low<mid<high.")] = None,
    user: Annotated[str | None, typer.Option(help="Name of the user column.")] = None,
    item: Annotated[str | None, typer.Option(help="Name of the item column.")] = None,
    rating: Annotated[str | None, typer.Option(help="Name of the rating column.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is in a ratings file, or what is wrong with it."""
    from doublefeature.readers import read_ratings

    ratings = read_ratings(file, levels=levels, user=user, item=item, rating=rating)
    counts = dict(zip(map(str, ratings.levels), ratings.level_counts.tolist(), strict=True))
    if as_json:
        sizes = {"users": ratings.n_users, "items": ratings.n_items, "ratings": len(ratings)}
        typer.echo(json.dumps({**sizes, "levels": counts, "fingerprint": ratings.fingerprint}))
        return
    typer.echo(f"{ratings.n_users} users, {ratings.n_items} items, {len(ratings)} ratings ({ratings.density:.1%})")
    for level, count in counts.items():
        typer.echo(f"  level {level:<8}{count:>10}  {count / max(len(ratings), 1):6.1%}")
    typer.echo(f"fingerprint {ratings.fingerprint}")


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"doublefeature: {message}", err=True)
    sys.exit(code)


def main() -> None:
    """Run the command line with one-line errors."""
    debug = "--debug" in sys.argv
    try:
        app()
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except DoubleFeatureError as error:
        if debug:
            raise
        _fail(" ".join(str(error).split()), error.exit_code)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        _fail(f"internal error, {type(error).__name__}: {error}. Run again with --debug and report it.", 1)
