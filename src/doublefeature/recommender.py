"""The estimator most people use: fit ratings, then ask in your own ids.

The sampler is imported where sampling begins: answers do without it and start sooner.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from doublefeature import answers
from doublefeature.answers import RankedItem, Recommendation, SimilarItem, Wanted
from doublefeature.checks import check_seed
from doublefeature.config import Moves, Priors, Schedule, preset
from doublefeature.errors import NotFittedError
from doublefeature.inference.diagnostics import Diagnosis, diagnose
from doublefeature.inference.engines import THREADS
from doublefeature.inference.progress import ProgressCallback
from doublefeature.item_table import ItemTable
from doublefeature.levels import Level
from doublefeature.model.choices import check_covariates
from doublefeature.over_workers import OverWorkers, as_path, whole_ratings
from doublefeature.pairs import as_pairs
from doublefeature.posterior import features, ranking, similar
from doublefeature.posterior.draws import Draw
from doublefeature.posterior.explain import Explanation, explain
from doublefeature.posterior.feature_summary import FeatureSummary
from doublefeature.posterior.predict import Codes, predict_levels
from doublefeature.posterior.prediction import Prediction, level_values
from doublefeature.posterior.steady import kept_features
from doublefeature.posterior.store import ModelFolder
from doublefeature.runs import check_run

if TYPE_CHECKING:
    from doublefeature.inference.teams import Team


class DoubleFeature(OverWorkers):
    """Predict ordinal ratings through overlapping features of users and items.

    Parameters
    ----------
    preset
        Name of the model: `full`, or `paper` for the model of Lin and Müller.
    priors, schedule, moves
        What the model is, how long it runs, how a sweep goes. `priors` replaces the preset's.
    seed
        Fixes every random number; the draws depend neither on threads nor on workers.
    engine
        Where chains run: `threads` of this process; `dask` for a local cluster, `dask://host:port` or
        `tls://host:port` for the workers of a scheduler; or a team (`doublefeature.inference.teams.Team`).
    workers
        Most workers to use; None: every core, or every worker there is.

    Examples
    --------
    >>> import doublefeature as df
    >>> model = df.DoubleFeature(seed=1).fit("ratings.csv")      # doctest: +SKIP
    >>> model.predict([("u17", "Alien")]).proba                  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        preset: str = "full",
        priors: Priors | None = None,
        schedule: Schedule | None = None,
        moves: Moves | None = None,
        seed: int = 0,
        engine: str | Team = THREADS,
        workers: int | None = None,
    ) -> None:
        self.preset = preset
        self.priors = priors
        self.schedule = schedule
        self.moves = moves
        self.seed = seed
        self.engine: Any = engine
        self.workers = workers

    def fit(
        self,
        ratings: Any,
        *,
        items: ItemTable | None = None,
        holdout: float = 0.0,
        out: str | os.PathLike[str] | None = None,
        progress: ProgressCallback | None = None,
        stop: threading.Event | None = None,
    ) -> Self:
        """Sample the posterior given ratings: a `Ratings`, a path, or a data frame.

        Workers read the files of a folder themselves, given its path or a `RatingsFolder`.

        Parameters
        ----------
        items
            Columns of items by raw id, such as their titles (`read_items`).
        holdout
            Share of the ratings kept out of the fit, to measure how good it is.
        out
            New folder to keep the draws in while they are made; a broken run can then be resumed.
        stop
            When set, the fit ends after the current sweep. Without a folder what was drawn so far is kept.
        """
        seed = check_seed(self.seed)
        self.priors_ = self.priors or preset(self.preset)
        self.schedule_ = self.schedule or Schedule()
        check_run(self.schedule_, holdout)
        self.moves_ = self.moves or Moves()
        self.items_ = items or {}
        self._folder = None
        self._forget()
        if self.engine != THREADS:
            return self._fit_over_workers(ratings, holdout, out, progress, stop)
        data = whole_ratings(ratings)
        check_covariates(self.priors_, data.covariates)
        self.ratings_, self.heldout_ = data.split(holdout, seed=seed) if holdout else (data, None)
        self.schedule_ = self.schedule_.on_ratings(self.ratings_.n_ratings)
        if out is None:
            from doublefeature.inference.chain import sample

            self.posterior_ = sample(
                self.ratings_, self.priors_, self.schedule_, self.moves_, seed=seed, progress=progress, stop=stop
            )
            self.finished_ = stop is None or not stop.is_set()
            return self
        folder = ModelFolder.create(
            Path(out),
            ratings=self.ratings_,
            priors=self.priors_,
            schedule=self.schedule_,
            moves=self.moves_,
            seed=seed,
            preset=self.preset,
            items=self.items_,
            heldout=self.heldout_,
        )
        return self._run(folder, progress, stop)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a model folder written by `fit` or `save`."""
        return cls.in_folder(ModelFolder.open(as_path(path)))

    @classmethod
    def in_folder(cls, folder: ModelFolder) -> Self:
        """Return the model of an open folder."""
        model = cls._of(folder)
        model.posterior_ = folder.posterior()
        model.finished_ = folder.finished
        model._folder = folder.path
        return model

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        *,
        sweeps: int | None = None,
        threads: int | None = None,
        progress: ProgressCallback | None = None,
        stop: threading.Event | None = None,
        engine: Any = THREADS,
        workers: int | None = None,
    ) -> Self:
        """Go on with a fit that was interrupted, or lengthen a finished one to so many sweeps per chain.

        The draws are those the run would have made without the break, by whatever engine it was begun.
        """
        folder = ModelFolder.open(as_path(path), whole=engine == THREADS)
        if sweeps is not None:
            folder.check_enough(sweeps)
        check_run(folder.schedule, sweeps=sweeps)
        if sweeps is not None:
            from doublefeature.inference.fit import extend

            extend(folder, sweeps)
        model = cls._of(folder)
        if engine == THREADS:
            return model._run(folder, progress, stop, threads)
        return model._run_over_workers(folder, engine, workers, progress, stop)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a new folder."""
        self._check_fitted()
        ModelFolder.save(
            Path(path),
            self.posterior_,
            ratings=self.ratings_,
            priors=self.priors_,
            schedule=self.schedule_,
            moves=self.moves_,
            seed=self.seed,
            preset=self.preset,
            items=self.items_,
            heldout=self.heldout_,
        )

    def predict(self, pairs: Iterable[tuple[Hashable, Hashable]] | Any) -> Prediction:
        """Return the probability of every level for pairs of raw ids; for unknown ids the prior answers.

        A frame with a user and an item column will do as well.
        """
        self._check_fitted()
        asked = as_pairs(pairs)
        users = np.array([self._user_code(user) for user, _ in asked], dtype=np.int64)
        items = np.array([self._item_code(item) for _, item in asked], dtype=np.int64)
        table = predict_levels(self.posterior_, users, items)
        known = np.stack([users, items], axis=1) >= 0
        return Prediction(asked, tuple(self.ratings_.levels), table, known)

    def recommend(
        self,
        user: Hashable,
        n: int = 10,
        *,
        rank_by: ranking.RankBy = "mean",
        level: Level | None = None,
        quantile: float = 0.1,
        mass: float = ranking.INTERVAL_MASS,
        allow: Iterable[Hashable] | None = None,
        deny: Iterable[Hashable] | None = None,
        seed: int = 0,
    ) -> list[Recommendation]:
        """Return the n best items that the user has not rated (see `doublefeature.posterior.ranking.recommend`)."""
        self._check_fitted()
        code = self._user_code(user)
        wanted = Wanted(n, rank_by, level, quantile, mass, allow, deny, seed)
        return answers.recommend(self, self.posterior_, code, self._seen(code), wanted)

    def prefer(self, user: Hashable, item_a: Hashable, item_b: Hashable) -> ranking.Preference:
        """Return how likely the user rates A above, level with, and below B."""
        self._check_fitted()
        return answers.prefer(self, self.posterior_, self._user_code(user), item_a, item_b)

    def top(self, n: int = 10, *, by: ranking.TopBy = "rating") -> list[RankedItem]:
        """Return the leading items by posterior mean rating over all users, or by item offset."""
        self._check_fitted()
        found = ranking.top(self.posterior_, n, level_values(self.ratings_.levels), by)
        labels = [self.ratings_.items[item] for item in found.items.tolist()]
        columns = zip(labels, found.mean.tolist(), found.lower.tolist(), found.upper.tolist(), strict=True)
        return [RankedItem(item, self.title(item), *numbers) for item, *numbers in columns]

    def similar_items(self, item: Hashable, n: int = 10) -> list[SimilarItem]:
        """Return the items whose scores go together with this one's over users."""
        self._check_fitted()
        found = similar.similar_items(self.posterior_, self.ratings_.item_code(item), n)
        labels = [self.ratings_.items[code] for code in found.codes.tolist()]
        columns = zip(labels, found.correlation.tolist(), found.covariance.tolist(), strict=True)
        return [SimilarItem(label, self.title(label), *numbers) for label, *numbers in columns]

    def explain(self, user: Hashable, item: Hashable, *, mass: float = 0.8) -> Explanation:
        """Take the score of a pair apart: base, offsets, and each shared feature of the point estimate."""
        self._check_fitted()
        answer = explain(
            self.posterior_,
            self._user_code(user),
            self._item_code(item),
            mass=mass,
            allocation=self.allocation_,
            align=self.aligner_,
        )
        return replace(answer, user=user, item=item, levels=tuple(self.ratings_.levels))

    def diagnose(self) -> Diagnosis:
        """Say whether the chains agree, and what to do if they do not."""
        self._check_fitted()
        return diagnose(self.posterior_, self.ratings_)

    @cached_property
    def allocation_(self) -> features.Allocation:
        """The features as a point estimate (see `doublefeature.posterior.steady`)."""
        self._check_fitted()
        return kept_features(self.posterior_, self._folder)

    @cached_property
    def aligner_(self) -> Callable[[Draw], tuple[Codes, NDArray[np.bool_]]]:
        """What each feature of a draw is in the point estimate; found once for each draw."""
        return features.remembering(features.aligner(self.posterior_, self.allocation_))

    @cached_property
    def features_(self) -> list[FeatureSummary]:
        """Every feature of the point estimate with its effect, members and stability."""
        self._check_fitted()
        return features.summarise(self.posterior_, self.allocation_, self.ratings_)

    @property
    def high_level(self) -> Level:
        """The level that counts as high: three quarters up the scale, such as 4 among 1..5."""
        return self.ratings_.levels[ranking.high_position(self.ratings_.n_levels)]

    def title(self, item: Hashable) -> str:
        """Return an item's title, empty if none is known."""
        return self.items_.get(item, {}).get("title", "")

    def knows_user(self, user: Hashable) -> bool:
        """Whether the user was in the training data."""
        return self._user_code(user) >= 0

    def knows_item(self, item: Hashable) -> bool:
        """Whether the item was in the training data."""
        return self._item_code(item) >= 0

    def as_user(self, text: str) -> Hashable:
        """Return the user id that a text stands for: itself, or the number it spells."""
        return _as_id(text, self.ratings_.has_user)

    def as_item(self, text: str) -> Hashable:
        """Return the item id that a text stands for: itself, or the number it spells."""
        return _as_id(text, self.ratings_.has_item)

    def rated(self, user: Hashable) -> list[Hashable]:
        """Return the items a user has rated, those held out included; none for an unknown user."""
        return [self.ratings_.items[item] for item in self._seen(self._user_code(user)).tolist()]

    def __repr__(self) -> str:
        fitted = "fitted" if hasattr(self, "finished_") else "not fitted"
        data = f" on {self.ratings_.n_users} users × {self.ratings_.n_items} items" if self.holds_ratings_ else ""
        return f"{type(self).__name__}(preset={self.preset!r}, seed={self.seed}, {fitted}{data})"

    def _seen(self, user: int) -> Codes:
        """Return the items a user has rated, those held out included."""
        if user < 0:
            return np.zeros(0, np.int64)
        parts = [self.ratings_] if self.heldout_ is None else [self.ratings_, self.heldout_]
        rows = [part.arrays.item_codes[slice(*part.arrays.user_ptr[user : user + 2])] for part in parts]
        return np.concatenate(rows).astype(np.int64)

    def _user_code(self, user: Hashable) -> int:
        return answers.user_code(self.ratings_, user)

    def _item_code(self, item: Hashable) -> int:
        return answers.item_code(self.ratings_, item)

    @classmethod
    def _of(cls, folder: ModelFolder) -> Self:
        model = cls(
            preset=folder.preset,
            priors=folder.priors,
            schedule=folder.schedule,
            moves=folder.moves,
            seed=folder.seed,
        )
        model.priors_, model.schedule_, model.moves_ = folder.priors, folder.schedule, folder.moves
        model.items_ = folder.items or {}
        model._source = folder
        if folder.holds_ratings:
            model.ratings_, model.heldout_ = folder.ratings, folder.heldout
        return model

    def _run(
        self,
        folder: ModelFolder,
        progress: ProgressCallback | None,
        stop: threading.Event | None,
        threads: int | None = None,
    ) -> Self:
        from doublefeature.inference.fit import fit_into

        fit_into(folder, progress=progress, stop=stop, threads=threads)
        return self._after_run(folder)

    def _forget(self) -> None:
        """Drop what followed from an earlier fit."""
        for name in ("allocation_", "aligner_", "features_", "fold_base_"):
            self.__dict__.pop(name, None)

    def _check_fitted(self) -> None:
        if not hasattr(self, "posterior_"):
            raise NotFittedError("this model has not been fitted. Call fit(ratings) first.")


def _as_id(text: str, known: Callable[[Hashable], bool]) -> Hashable:
    if not known(text) and text.removeprefix("-").isdecimal() and known(int(text)):
        return int(text)
    return text
