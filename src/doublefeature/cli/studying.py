"""The demo and the paper's studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from doublefeature.cli.fitting import compile_first
from doublefeature.cli.options import AsJson, Seed, Threads
from doublefeature.cli.output import print_json, say
from doublefeature.errors import SettingsError, show

app = typer.Typer(no_args_is_help=True, help="The paper's experiments: tables and figures.")


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model and its report.")] = Path("demo-model"),
    users: Annotated[int, typer.Option(min=2, help="Simulated users.")] = 100,
    items: Annotated[int, typer.Option(min=1, help="Simulated items.")] = 150,
    tau: Annotated[float, typer.Option(min=1e-3, help="Noise scale of the simulated ratings.")] = 0.25,
    sweeps: Annotated[int, typer.Option(min=2, help="Sweeps per chain, half of them warm-up.")] = 400,
    chains: Annotated[int, typer.Option(min=1, help="Independent chains.")] = 4,
    threads: Threads = None,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Simulate ratings with planted features, fit them from nothing, compare with the truth, write a report."""
    from doublefeature.config import Schedule
    from doublefeature.inference.fit import stop_on_signals
    from doublefeature.inference.progress import shown_progress
    from doublefeature.runs import thin_for
    from doublefeature.studies.demonstration import demonstrate, make_room
    from doublefeature.studies.recovery import Design

    design = Design(users=users, items=items, tau=tau)
    thin = thin_for(sweeps, sweeps // 2, usual=5)
    schedule = Schedule(sweeps=sweeps, warmup=sweeps // 2, thin=thin, chains=chains, threads=threads)
    make_room(out, design, seed)
    say(f"simulating {users} users × {items} items, fitting {chains} chains of {sweeps} sweeps")
    compile_first()
    with stop_on_signals() as stop, shown_progress() as progress:
        result = demonstrate(design, seed, schedule, out, progress=progress, stop=stop)
    if result is None:
        raise KeyboardInterrupt
    if as_json:
        print_json(result.to_dict())
        return
    for line in result.lines():
        typer.echo(line)


@app.command()
def simulation(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for tables and figures.")],
    seeds: Annotated[int, typer.Option(min=1, help="Simulated data sets.")] = 10,
    sweeps: Annotated[int | None, typer.Option(min=2, help="Sweeps per chain; default: 1200.")] = None,
    threads: Threads = None,
) -> None:
    """Run section 5 of the paper: simulated data sets, the oracle, tuned matrix factorisation."""
    from doublefeature.config import Schedule
    from doublefeature.inference.progress import shown_progress
    from doublefeature.runs import thin_for
    from doublefeature.studies.simulation import DEFAULT_SCHEDULE, run_simulation_study

    schedule = DEFAULT_SCHEDULE
    if sweeps is not None:
        thin = thin_for(sweeps, sweeps // 2, usual=schedule.thin)
        schedule = Schedule.from_dict({**schedule.to_dict(), "sweeps": sweeps, "warmup": sweeps // 2, "thin": thin})
    compile_first()
    with shown_progress() as progress:
        result = run_simulation_study(
            out, seeds=range(seeds), schedule=schedule, threads=threads, progress=progress, announce=say
        )
    typer.echo(result.summary)


@app.command()
def movielens(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for tables and figures.")],
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2.")] = "0,1,2",
    shards: Annotated[int, typer.Option(min=1, help="Shards of users.")] = 15,
    sizes: Annotated[str, typer.Option(help="Numbers of shards whose cost is measured.")] = "1,2,5,15,30",
    sweeps: Annotated[int | None, typer.Option(min=2, help="Sweeps per chain, a third of them warm-up.")] = None,
    chains: Annotated[int | None, typer.Option(min=1, help="Chains per run and shard; default: 4.")] = None,
    threads: Threads = None,
) -> None:
    """Run section 6 of the paper: MovieLens-1M over shards, merged, beside exact runs and simple rules."""
    from doublefeature.config import PRESETS, Schedule
    from doublefeature.inference.progress import shown_progress
    from doublefeature.recommender import DoubleFeature
    from doublefeature.runs import thin_for
    from doublefeature.studies.movielens import DEFAULT_SCHEDULE, run_movielens_study

    plan = DEFAULT_SCHEDULE.to_dict()
    if sweeps is not None:
        plan |= {"sweeps": sweeps, "warmup": sweeps // 3, "thin": thin_for(sweeps, sweeps // 3, usual=plan["thin"])}
    plan["chains"] = chains or plan["chains"]
    drawn, measured = _numbers("seeds", seeds), _numbers("sizes", sizes)
    for name in PRESETS:
        compile_first(DoubleFeature(priors=PRESETS[name]))
    with shown_progress() as progress:
        result = run_movielens_study(
            out,
            shards=shards,
            schedule=Schedule.from_dict(plan),
            threads=threads,
            progress=progress,
            announce=say,
            seeds=drawn,
            sizes=measured,
        )
    typer.echo(result.summary)


def _numbers(name: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise SettingsError(f"{name} must be whole numbers with commas between them, got {show(text)}.")
    return [int(part) for part in parts]
