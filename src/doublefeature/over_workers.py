"""The part of the estimator that workers fit, whose ratings may stay on the disk."""

from __future__ import annotations

import os
import threading
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import NotFittedError, SettingsError, show
from doublefeature.folds_in import FoldsIn
from doublefeature.inference.progress import ProgressCallback
from doublefeature.item_table import ItemTable
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.store import ModelFolder
from doublefeature.ratings import Ratings
from doublefeature.readers import RatingsFolder, is_folder, ratings_folder, read_ratings


class OverWorkers(FoldsIn):
    """What a fitted model holds, and how workers come to fit it."""

    posterior_: Posterior
    priors_: Priors
    schedule_: Schedule
    moves_: Moves
    items_: ItemTable
    finished_: bool
    """False when the fit was stopped before its end."""
    preset: str
    seed: int
    engine: Any
    workers: int | None
    _folder: Path | None = None
    _source: ModelFolder | None = None

    @cached_property
    def ratings_(self) -> Ratings:
        """What the model was fitted on."""
        return self._stored().ratings

    @cached_property
    def heldout_(self) -> Ratings | None:
        """What was kept out to measure its quality."""
        return self._stored().heldout

    @property
    def holds_ratings_(self) -> bool:
        """Whether all ratings are in memory; those that workers have read stay on the disk until asked for."""
        return "ratings_" in self.__dict__

    def _fit_over_workers(
        self,
        ratings: Any,
        holdout: float,
        out: str | os.PathLike[str] | None,
        progress: ProgressCallback | None,
        stop: threading.Event | None,
    ) -> Self:
        from doublefeature.inference.team_models import fit_over_workers, team_of

        if out is None:
            raise SettingsError("a fit over workers is kept in a folder while it runs: give out.")
        in_parts = isinstance(ratings, str | os.PathLike) and is_folder(Path(ratings))
        source = ratings_folder(ratings) if in_parts else ratings
        source = source if isinstance(source, RatingsFolder) else whole_ratings(source)
        with team_of(self.engine, self.workers) as team:
            folder = fit_over_workers(
                team,
                source,
                Path(out),
                {
                    "priors": self.priors_,
                    "schedule": self.schedule_,
                    "moves": self.moves_,
                    "seed": self.seed,
                    "preset": self.preset,
                    "items": self.items_,
                },
                holdout=holdout,
                progress=progress,
                stop=stop,
            )
        return self._after_run(folder)

    def _run_over_workers(
        self,
        folder: ModelFolder,
        engine: Any,
        workers: int | None,
        progress: ProgressCallback | None,
        stop: threading.Event | None,
    ) -> Self:
        from doublefeature.inference.team_fit import fit_by_team
        from doublefeature.inference.team_models import team_of

        with team_of(engine, workers) as team:
            fit_by_team(folder, team, progress=progress, stop=stop)
        return self._after_run(folder)

    def _after_run(self, folder: ModelFolder) -> Self:
        """Take what a folder holds after a run."""
        self.finished_ = folder.finished
        self.schedule_ = folder.schedule
        self.posterior_ = folder.posterior()
        self._folder, self._source = folder.path, folder
        for name in ("ratings_", "heldout_"):
            self.__dict__.pop(name, None)
        if folder.holds_ratings:
            self.ratings_, self.heldout_ = folder.ratings, folder.heldout
        return self

    def _stored(self) -> ModelFolder:
        if self._source is None:
            raise NotFittedError("this model has not been fitted. Call fit(ratings) first.")
        return self._source


def as_path(path: object) -> Path:
    """Return the path of a model folder, or raise if it can be none."""
    if not isinstance(path, str | os.PathLike):
        raise SettingsError(f"the path of a model folder is needed, got {show(path)}.")
    return Path(path)


def whole_ratings(ratings: Any) -> Ratings:
    """Return ratings that are all here, whatever they are given as."""
    if isinstance(ratings, RatingsFolder):
        return ratings.read()
    return ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
