"""A model fitted by a team, from the ratings to the folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import EnvironmentProblem, MissingExtraError, SettingsError
from doublefeature.inference.engines import is_dask
from doublefeature.inference.placing import cut_slices
from doublefeature.inference.progress import ProgressCallback
from doublefeature.inference.team_fit import TRIES, fit_by_team
from doublefeature.inference.team_reading import Parts, read_parts, stream_parts
from doublefeature.inference.teams import LostWorker, Team
from doublefeature.model.choices import check_covariates
from doublefeature.posterior.store import ModelFolder
from doublefeature.posterior.tables import ItemColumns
from doublefeature.ratings import Ratings
from doublefeature.readers import RatingsFolder

if TYPE_CHECKING:
    from types import ModuleType


class ModelSettings(TypedDict):
    """What a model folder is made of, besides ratings and draws."""

    priors: Priors
    schedule: Schedule
    moves: Moves
    seed: int
    preset: str
    items: ItemColumns | None


def dask_engine() -> ModuleType:
    """Return the module that knows about Dask."""
    try:
        from doublefeature.inference import dask_engine
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in ("dask", "distributed"):
            raise
        raise MissingExtraError("the engine dask", "dask") from None
    return dask_engine


@contextmanager
def team_of(engine: str | Team, workers: int | None) -> Iterator[Team]:
    """Yield the team of a name, and let it go afterwards; a team that is given stays as it is."""
    if not isinstance(engine, str):
        yield engine
        return
    if not is_dask(engine):
        raise SettingsError(f"engine {engine!r} runs shards only. Use threads or dask, or fit with --shards.")
    module = dask_engine()
    team: Team = module.DaskTeam(module.Connection(engine, workers))
    try:
        yield team
    finally:
        team.close()


def fit_over_workers(
    team: Team,
    source: Ratings | RatingsFolder,
    out: Path,
    settings: ModelSettings,
    *,
    holdout: float = 0.0,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
) -> ModelFolder:
    """Make a model folder from ratings that are here or in files that workers read, and run its chains."""
    if isinstance(source, RatingsFolder):
        folder, placed = create_in_parts(team, source, out, settings, holdout)
        fit_by_team(folder, team, placed=placed, progress=progress, stop=stop)
        return folder
    check_covariates(settings["priors"], source.covariates)
    train, heldout = source.split(holdout, seed=settings["seed"]) if holdout else (source, None)
    folder = ModelFolder.create(out, ratings=train, heldout=heldout, **settings)
    fit_by_team(folder, team, progress=progress, stop=stop)
    return folder


def create_in_parts(
    team: Team, source: RatingsFolder, out: Path, settings: ModelSettings, holdout: float
) -> tuple[ModelFolder, bool]:
    """Read files onto the workers and make the model folder, from the beginning when a worker is lost.

    Returns the folder, and whether the workers have their slices.
    """
    losses = 0
    while True:
        try:
            folder, parts = _create_once(team, source, out, settings, holdout)
            break
        except LostWorker as problem:
            losses += 1
            if losses >= TRIES:
                raise EnvironmentProblem(f"workers were lost {TRIES} times while they read ({problem}).") from problem
            team.regroup()
    try:
        cut_slices(team, parts.train.user_ptr, parts.train.item_ptr, parts.cut)
    except LostWorker:
        team.regroup()
        return folder, False
    return folder, True


def _create_once(
    team: Team, source: RatingsFolder, out: Path, settings: ModelSettings, holdout: float
) -> tuple[ModelFolder, Parts]:
    parts = read_parts(
        team, source.path, source.reading, duplicates=source.duplicates, holdout=holdout, seed=settings["seed"]
    )
    if (describe := source.describe) is not None:
        train, rest = describe(parts.train), parts.heldout
        if rest is not None:
            rest = replace(rest.with_unrated(train.users, train.items), covariates=train.covariates)
        parts = parts._replace(train=train, heldout=rest)
    check_covariates(settings["priors"], parts.train.covariates)
    ratings, heldout = stream_parts(team, parts)
    return ModelFolder.create(out, ratings=ratings, heldout=heldout, **settings), parts
