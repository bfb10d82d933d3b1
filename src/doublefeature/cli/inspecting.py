"""Look into a fitted model: features, diagnose, report, export, doctor."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from doublefeature.cli.options import AsJson, Model
from doublefeature.cli.output import check_place, check_writable, print_json, say
from doublefeature.errors import SettingsError
from doublefeature.recommender import DoubleFeature
from doublefeature.sharded import ShardedDoubleFeature, load


class Method(StrEnum):
    """How features are made one out of many draws."""

    DISTANCE = "distance"
    PAPER = "paper"


class Format(StrEnum):
    """What draws are exported as."""

    ARVIZ = "arviz"
    PARQUET = "parquet"
    CSV = "csv"


Shard = Annotated[int | None, typer.Option(min=0, help="Which shard, of a model over shards.")]


def _load_part(model: Path, shard: int | None) -> DoubleFeature:
    """Open a model, or one shard of it where features and draws belong to shards."""
    fitted = load(model)
    if not isinstance(fitted, ShardedDoubleFeature):
        if shard is not None:
            raise SettingsError(f"{model} is not a model over shards. Leave out --shard.")
        return fitted
    if shard is None:
        most = fitted.sharding.shards - 1
        raise SettingsError(f"{model} has features and draws by shard. Choose one with --shard, 0 to {most}.")
    return fitted.shard_model(shard)


def features(
    model: Model,
    method: Annotated[Method, typer.Option(help="Least expected distance over all draws, or the paper's rule.")] = (
        Method.DISTANCE
    ),
    n: Annotated[int, typer.Option("-n", min=1, help="Leading items shown per feature.")] = 5,
    shard: Shard = None,
    as_json: AsJson = False,
) -> None:
    """List the features: size, effect with interval, stability, leading items."""
    from doublefeature.posterior.features import paper_estimate, summarise

    fitted = _load_part(model, shard)
    ratings = fitted.ratings_
    if method is Method.PAPER:
        found = summarise(fitted.posterior_, paper_estimate(fitted.posterior_), ratings)
    else:
        found = fitted.features_
    if as_json:
        rows = [feature.to_dict(ratings.users, ratings.items) for feature in found]
        for row in rows:
            row["items"] = row["items"][:n]
            for item in row["items"]:
                item["title"] = fitted.title(item["id"])
        print_json(rows)
        return
    if fitted.priors_.remainder:
        say("beside its features the model has a low-rank remainder, which takes over much of what they would say")
    if not found:
        typer.echo("no feature stands out: offsets alone describe these ratings")
    for number, feature in enumerate(found):
        low, high = feature.effect_80
        typer.echo(
            f"feature {number}: {feature.users.size} users × {feature.items.size} items, "
            f"effect {feature.effect:+.2f} ({low:+.2f} to {high:+.2f}), {_found_again(feature.recurrence)}"
        )
        for place, item in enumerate(feature.leading_items[:n].tolist()):
            label = ratings.items[item]
            own = "" if feature.leading_effects is None else f"  {feature.leading_effects.mean[place]:+.2f}"
            typer.echo(f"    {feature.item_probability[item]:4.0%}{own}  {fitted.title(label) or label}")


def _found_again(share: float) -> str:
    """Say in how many draws a feature comes back."""
    if share == 0.0:
        return "not found again in draws"
    return f"in {share:.0%} of draws" if share >= 0.01 else "in under 1% of draws"


def diagnose(model: Model, as_json: AsJson = False) -> None:
    """Say whether the chains agree: R-hat, effective draws, acceptance, and a verdict in words."""
    diagnosis = load(model).diagnose()
    if as_json:
        print_json(diagnosis.to_dict())
        return
    for line in diagnosis.lines():
        typer.echo(line)


def report(
    model: Model,
    out: Annotated[Path | None, typer.Option(help="HTML file; default: report.html inside the model folder.")] = None,
) -> None:
    """Write one self-contained HTML page about the model."""
    from doublefeature.report.page import write_report

    target = out or model / "report.html"
    check_writable(target)
    write_report(load(model), target)
    typer.echo(str(target))


def export(
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="netCDF file (arviz) or new folder (parquet, csv).")],
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.ARVIZ,
    shard: Shard = None,
) -> None:
    """Write the draws in a format other programs read."""
    from doublefeature.posterior.export import export_arviz, export_csv, export_parquet

    check_place(out)
    fitted = _load_part(model, shard)
    posterior, ratings = fitted.posterior_, fitted.ratings_
    if form is Format.ARVIZ:
        settings = {"priors": fitted.priors_.to_dict(), "schedule": fitted.schedule_.to_dict(), "seed": fitted.seed}
        export_arviz(posterior, ratings, out, settings=settings)
    elif form is Format.PARQUET:
        export_parquet(posterior, ratings, out)
    else:
        export_csv(posterior, ratings, out)
    typer.echo(str(out))


def doctor(as_json: AsJson = False) -> None:
    """Say what this installation has and can do."""
    from doublefeature.cli.health import checks

    found = list(checks())
    if as_json:
        print_json([{"name": name, "finding": finding, "fine": fine} for name, finding, fine in found])
    else:
        for name, finding, fine in found:
            typer.echo(f"{'ok' if fine else '!!':<4}{name:<22}{finding}")
    if not all(fine for _, _, fine in found):
        say("doublefeature: lines marked !! need attention")
        raise typer.Exit(3)
