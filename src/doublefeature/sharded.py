"""The estimator over shards of users: the same questions, each user answered from their own shard.

A known user is answered by the shard they are in, with merged item offsets; anybody else by all shards alike.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from doublefeature.answers import RankedItem, Recommendation
from doublefeature.checks import check_seed
from doublefeature.config import Moves, Priors, Schedule, Sharding, preset
from doublefeature.errors import NotFittedError, SettingsError
from doublefeature.inference.diagnostics import diagnose
from doublefeature.inference.engines import THREADS
from doublefeature.inference.progress import ProgressCallback
from doublefeature.inference.shard_diagnosis import ShardedDiagnosis
from doublefeature.item_table import ItemTable
from doublefeature.levels import Level
from doublefeature.model.choices import check_covariates
from doublefeature.over_workers import as_path, whole_ratings
from doublefeature.pairs import as_pairs
from doublefeature.posterior import ranking
from doublefeature.posterior.disk import disk_problems
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.explain import Explanation, explain
from doublefeature.posterior.feature_summary import FeatureSummary
from doublefeature.posterior.predict import Codes, predict_levels
from doublefeature.posterior.prediction import Prediction, level_values
from doublefeature.posterior.shard_card import Disagreement, consensus_lines, disagreements
from doublefeature.posterior.shard_manifest import Consensus
from doublefeature.posterior.shard_users import split_users
from doublefeature.posterior.sharding import ShardedFolder
from doublefeature.posterior.sharding import is_sharded as is_sharded
from doublefeature.recommender import DoubleFeature
from doublefeature.runs import check_run

if TYPE_CHECKING:
    from doublefeature.folded import Folded
    from doublefeature.inference.engines import Engine

FloatArray = NDArray[np.float64]


class ShardedDoubleFeature(DoubleFeature):
    """A `DoubleFeature` fitted by chains on shards of users, whose item offsets are merged.

    Parameters
    ----------
    sharding
        How many shards, and how they become one.
    engine
        Where shards run: `threads`, `processes`, `dask` (see `DoubleFeature`), or an object with an engine's four
        methods. Workers of Dask must see the folder of the model.
    preset, priors, schedule, moves, seed
        As of `DoubleFeature`; every shard runs all chains of the schedule.
    """

    folder_: ShardedFolder
    consensus_: Consensus
    """Merged item offsets."""

    def __init__(
        self,
        sharding: Sharding,
        *,
        preset: str = "full",
        priors: Priors | None = None,
        schedule: Schedule | None = None,
        moves: Moves | None = None,
        seed: int = 0,
        engine: str | Engine = THREADS,
        workers: int | None = None,
    ) -> None:
        super().__init__(preset=preset, priors=priors, schedule=schedule, moves=moves, seed=seed, workers=workers)
        self.sharding = sharding
        self.engine = engine
        self._models: dict[int, DoubleFeature] = {}

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
        """Run the shards' chains, merge and run the second stage, all into a new folder (see `DoubleFeature.fit`)."""
        from doublefeature.inference.shards import create_sharded

        if out is None:
            raise SettingsError("a model over shards is kept in a folder while it is fitted: give out.")
        seed = check_seed(self.seed)
        priors = self.priors or preset(self.preset)
        check_run(self.schedule or Schedule(), holdout)
        data = whole_ratings(ratings)
        check_covariates(priors, data.covariates)
        train, heldout = data.split(holdout, seed=seed) if holdout else (data, None)
        folder = create_sharded(
            Path(out),
            self.sharding,
            {
                "ratings": train,
                "priors": priors,
                "schedule": self.schedule or Schedule(),
                "moves": self.moves or Moves(),
                "seed": seed,
                "preset": self.preset,
                "items": items,
                "heldout": heldout,
            },
        )
        return self._take(folder)._go_on(progress, stop)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a folder written by `fit`."""
        return cls._over(ShardedFolder.open(path))._answerable()

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
        """Go on with shards that are not finished, or lengthen all to so many sweeps per chain and merge anew."""
        folder = ShardedFolder.open(path)
        if sweeps is not None:
            folder.whole.check_longer(sweeps)
        check_run(folder.whole.schedule, sweeps=sweeps)
        if sweeps is not None:
            with folder.writing():
                folder.lengthen(sweeps)
        model = cls._over(folder)
        model.engine, model.workers = engine, workers
        return model._go_on(progress, stop, threads)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Copy the model to a new folder."""
        self._check_fitted()
        if Path(path).exists():
            raise SettingsError(f"{path} is there already. Choose another path for the model.")
        with disk_problems(Path(path), "copying"):
            shutil.copytree(self.folder_.path, path)

    def predict(self, pairs: Iterable[tuple[Hashable, Hashable]] | Any) -> Prediction:
        """Return the probability of every level for pairs of raw ids; for unknown ids the prior answers."""
        self._check_fitted()
        asked = as_pairs(pairs)
        users = np.array([self._user_code(user) for user, _ in asked], dtype=np.int64)
        items = np.array([self._item_code(item) for _, item in asked], dtype=np.int64)
        known = np.stack([users, items], axis=1) >= 0
        return Prediction(asked, tuple(self.ratings_.levels), self.predict_codes(users, items), known)

    def predict_codes(self, users: Codes, items: Codes) -> FloatArray:
        """Return the probability of every level for pairs of codes of the whole data (−1: unknown)."""
        self._check_fitted()
        out = np.empty((users.size, self.ratings_.n_levels))
        place = np.where(users >= 0, self.shard_of_[users], -1)
        for shard in np.unique(place).tolist():
            rows = np.flatnonzero(place == shard)
            if shard < 0:
                out[rows] = predict_levels(self.posterior_, users[rows], items[rows])
            else:
                own = np.searchsorted(self._groups[shard], users[rows])
                out[rows] = predict_levels(self.shard_model(shard).posterior_, own, items[rows])
        return out

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
        """Return the n best items that the user has not rated (see `DoubleFeature.recommend`)."""
        self._check_fitted()
        ask = super().recommend if self._user_code(user) < 0 else self._model_of(user).recommend
        kinds: dict[str, Any] = {"rank_by": rank_by, "level": level, "quantile": quantile, "mass": mass}
        return ask(user, n, **kinds, allow=allow, deny=deny, seed=seed)

    def prefer(self, user: Hashable, item_a: Hashable, item_b: Hashable) -> ranking.Preference:
        """Return how likely the user rates A above, level with, and below B."""
        self._check_fitted()
        ask = super().prefer if self._user_code(user) < 0 else self._model_of(user).prefer
        return ask(user, item_a, item_b)

    def explain(self, user: Hashable, item: Hashable, *, mass: float = 0.8) -> Explanation:
        """Take the score of a pair apart, by features of the user's shard; for unknown users by features as a whole."""
        self._check_fitted()
        if self._user_code(user) >= 0:
            return self._model_of(user).explain(user, item, mass=mass)
        answer = explain(self.posterior_, -1, self._item_code(item), mass=mass)
        return replace(answer, user=user, item=item, levels=tuple(self.ratings_.levels))

    def fold_in(self, ratings: Mapping[Hashable, Level], *, user: Hashable | None = None) -> Folded:
        """Answer for a user with these ratings by features of the user's shard, for a new one by those of the first."""
        self._check_fitted()
        if user is None or self._user_code(user) < 0:
            return self.shard_model(0).fold_in(ratings)
        return self._model_of(user).fold_in(ratings, user=user)

    def fold_in_item(self, *asked: object, **settings: object) -> NoReturn:
        """Users who rated a new item are in many shards: none of them can take it in."""
        raise SettingsError("a model over shards takes in no new items: fit it again with them, or fit without shards.")

    def top(self, n: int = 10, *, by: ranking.TopBy = "rating") -> list[RankedItem]:
        """Return the leading items by posterior mean rating over all users, or by merged item offset."""
        self._check_fitted()
        if by == "offset":
            table = self.consensus_.offsets.reshape(-1, self.ratings_.n_items)
            found = ranking.ranked(table, n, by)
        else:
            values = level_values(self.ratings_.levels)
            found = ranking.ranked(self.mean_ratings(), n, by, rising=bool(values[-1] >= values[0]))
        labels = [self.ratings_.items[item] for item in found.items.tolist()]
        columns = zip(labels, found.mean.tolist(), found.lower.tolist(), found.upper.tolist(), strict=True)
        return [RankedItem(item, self.title(item), *numbers) for item, *numbers in columns]

    def mean_ratings(self) -> FloatArray:
        """Return every item's mean rating over all users, (draws, items); draw t has the same offsets in all shards."""
        self._check_fitted()
        values = level_values(self.ratings_.levels)
        shares = [group.size / self.ratings_.n_users for group in self._groups]
        parts = [
            share * ranking.mean_ratings(self.shard_model(shard).posterior_, values)
            for shard, share in enumerate(shares)
        ]
        whole: FloatArray = np.sum(parts, axis=0)
        return whole

    def diagnose(self) -> ShardedDiagnosis:  # type: ignore[override]
        """Say whether the chains of each shard agree, and how far shards do."""
        self._check_fitted()
        folders = [self.folder_.shard(shard) for shard in range(self.sharding.shards)]
        parts = [diagnose(folder.posterior(), folder.ratings) for folder in folders]
        return ShardedDiagnosis(parts, consensus_lines(self.consensus_, self.sharding.epsilon))

    def disagreements(self, n: int | None = None) -> list[Disagreement]:
        """Return the items whose offsets shards disagree about most."""
        self._check_fitted()
        return disagreements(self.consensus_, self.ratings_, n)

    def shard_model(self, shard: int) -> DoubleFeature:
        """Return the model of one shard's users, with merged item offsets."""
        if shard not in self._models:
            self._models[shard] = DoubleFeature.in_folder(self.folder_.merged(shard))
        return self._models[shard]

    def shard_before(self, shard: int) -> DoubleFeature:
        """Return the model of one shard's users as its own chains left it, before the merge."""
        return DoubleFeature.in_folder(self.folder_.shard(shard))

    def features_of(self, shard: int) -> list[FeatureSummary]:
        """Return the features of one shard."""
        self._check_fitted()
        return self.shard_model(shard).features_

    @property
    def features_(self) -> NoReturn:
        """Shards have features of their own: see `features_of`."""
        raise SettingsError(f"shards have features of their own: give a shard, one of 0 to {self.sharding.shards - 1}.")

    @cached_property
    def posterior_(self) -> Posterior:  # type: ignore[override]
        """The merged draws of all shards, which answer for users that are in none."""
        self._check_fitted()
        draws, base, scales = [], 0.0, np.ones(1)
        for shard in range(self.sharding.shards):
            part = self.shard_model(shard).posterior_
            base, scales = part.base, part.scales
            draws += [draw._replace(chain=draw.chain + shard * self.schedule_.chains) for draw in part]
        return Posterior(base, draws, [], scales)

    @cached_property
    def shard_of_(self) -> NDArray[np.int64]:
        """The shard of every user code."""
        out = np.empty(self.ratings_.n_users, np.int64)
        for shard, users in enumerate(self._groups):
            out[users] = shard
        return out

    @cached_property
    def _groups(self) -> list[Codes]:
        return split_users(self.ratings_.n_users, self.sharding.shards, self.seed)

    def _model_of(self, user: Hashable) -> DoubleFeature:
        return self.shard_model(int(self.shard_of_[self._user_code(user)]))

    @classmethod
    def _over(cls, folder: ShardedFolder) -> Self:
        whole = folder.whole
        model = cls(
            folder.sharding,
            preset=whole.preset,
            priors=whole.priors,
            schedule=whole.schedule,
            moves=whole.moves,
            seed=whole.seed,
        )
        return model._take(folder)

    def _take(self, folder: ShardedFolder) -> Self:
        whole = folder.whole
        self.folder_ = folder
        self.priors_, self.schedule_, self.moves_ = whole.priors, whole.schedule, whole.moves
        self.ratings_, self.heldout_, self.items_ = whole.ratings, whole.heldout, whole.items or {}
        self._models = {}
        for name in ("posterior_", "shard_of_", "_groups"):
            self.__dict__.pop(name, None)
        return self

    def _go_on(
        self, progress: ProgressCallback | None, stop: threading.Event | None, threads: int | None = None
    ) -> Self:
        from doublefeature.inference.sharded_fit import fit_shards

        run = {"engine": self.engine, "workers": self.workers, "threads": threads}
        fit_shards(self.folder_, **run, progress=progress, stop=stop)
        return self._answerable()

    def _answerable(self) -> Self:
        self.finished_ = self.folder_.finished
        consensus = self.folder_.consensus()
        if consensus is not None:
            self.consensus_ = consensus
        return self

    def _check_fitted(self) -> None:
        if not getattr(self, "finished_", False):
            where = f": doublefeature resume {self.folder_.path}" if hasattr(self, "folder_") else " first: fit"
            raise NotFittedError(f"not all shards are fitted and merged. Do that{where}.")


def check_whole(path: str | os.PathLike[str], doing: str) -> None:
    """Raise if a folder is a model over shards, for what only other models can do."""
    if is_sharded(path):
        raise SettingsError(f"{path} is a model over shards, which cannot be {doing}: fit it without --shards.")


def load(path: str | os.PathLike[str]) -> DoubleFeature:
    """Open a model folder written by `fit` or `save`, over shards or not."""
    return ShardedDoubleFeature.load(path) if is_sharded(as_path(path)) else DoubleFeature.load(path)
