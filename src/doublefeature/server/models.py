"""The model being served: loaded whole, tried out, and replaced without a request noticing."""

from __future__ import annotations

import gc
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import DoubleFeatureError, StoreError
from doublefeature.posterior.loading import read_manifest_text
from doublefeature.posterior.predict import n_levels_of, predict_rows
from doublefeature.recommender import DoubleFeature
from doublefeature.server.logs import LOGGER
from doublefeature.sharded import check_whole

FloatArray = NDArray[np.float64]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MOST_FOLDS = 512
_MOST_ROWS = 256
_MOST_FACTS = 256
_BATCH = 32_768  # pairs predicted at a time while the table is filled


class Cache(Generic[K, V]):
    """Keeps what was computed last, so many of it; a failure is not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return what is kept under a key, or make it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made

    def __len__(self) -> int:
        return len(self._kept)


class Loaded:
    """One version of the model with what has been worked out from it; never changed but for these caches."""

    def __init__(self, path: Path, table_bytes: int) -> None:
        self.path = path
        check_whole(path, "served")
        text = read_manifest_text(path)
        self.model = DoubleFeature.load(path)
        if read_manifest_text(path) != text:
            raise StoreError(f"{path}: the folder is being written to. Wait until the fit has ended.")
        self.users = cast(Sequence[int | str], self.model.ratings_.users)
        self.items = cast(Sequence[int | str], self.model.ratings_.items)
        self.version = hashlib.sha256(text).hexdigest()[:16]
        self.folds: Cache[Hashable, object] = Cache(_MOST_FOLDS)
        self.facts: Cache[Hashable, object] = Cache(_MOST_FACTS)
        self._rows: Cache[int, FloatArray] = Cache(_MOST_ROWS)
        n_levels_of(self.model.posterior_)
        ratings = self.model.ratings_
        fits = 8 * ratings.n_users * ratings.n_items * ratings.n_levels <= table_bytes
        self._table = np.empty((ratings.n_users, ratings.n_items, ratings.n_levels)) if fits else None
        self._ready = 0
        self._closed = threading.Event()

    def fact(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return something that depends on the model alone, worked out once."""
        return self.facts.get(key, make)  # type: ignore[return-value]

    def has_row(self, user: Hashable) -> bool:
        """Whether the table holds the predictions of a known user by now."""
        return self._table is not None and self.model.ratings_.user_code(user) < self._ready

    def levels_of(self, user: int) -> FloatArray:
        """Return the level probabilities of every item for a known user, (items, levels)."""
        if self._table is not None and user < self._ready:
            row: FloatArray = self._table[user]
            return row
        return self._rows.get(user, lambda: self._predict(user, user + 1)[0])

    @property
    def warm(self) -> float:
        """Share of users whose predictions are in the table; 1 when they do not fit in memory."""
        return 1.0 if self._table is None else self._ready / max(self._table.shape[0], 1)

    def fill(self) -> None:
        """Predict for all users, a few at a time, until done or closed."""
        if self._table is None:
            return
        n_users, n_items, _ = self._table.shape
        step = max(1, _BATCH // max(n_items, 1))
        while self._ready < n_users and not self._closed.is_set():
            end = min(n_users, self._ready + step)
            self._table[self._ready : end] = self._predict(self._ready, end)
            self._ready = end

    def close(self) -> None:
        """Stop filling the table."""
        self._closed.set()

    def try_out(self) -> None:
        """Raise unless the model answers as a model must."""
        model = self.model
        user, item = model.ratings_.users[0], model.ratings_.items[0]
        prediction = model.predict([(user, item), (user, item)])
        sums = prediction.proba.sum(axis=1)
        if not np.isfinite(prediction.proba).all() or (np.abs(sums - 1.0) > 1e-9).any():
            raise StoreError(f"{self.path}: the model's probabilities do not add up. Fit it again.")
        model.recommend(user, 1)
        model.fold_in({item: model.ratings_.levels[-1]}).predict([item])

    def _predict(self, first: int, end: int) -> FloatArray:
        return predict_rows(self.model.posterior_, np.arange(first, end))


class Holder:
    """Holds the model that answers. Requests take `current` once and stay with it."""

    def __init__(self, path: Path, table_bytes: int) -> None:
        self._table_bytes = table_bytes
        self._swapping = threading.Lock()
        self.alarm: str | None = None
        self.swaps = 0
        self.current = self._load(path)
        settle_memory()
        self._warm_up(self.current)

    def swap(self, path: Path | None = None) -> Loaded:
        """Serve another folder, or the same one read again; a model that does not pass is refused, and the old stays.

        Raises
        ------
        DoubleFeatureError
            Why it was refused; `alarm` says it until a swap succeeds.
        """
        with self._swapping:
            try:
                new = self._load(path or self.current.path)
            except DoubleFeatureError as problem:
                self.alarm = str(problem)
                LOGGER.error("model refused", extra={"reason": self.alarm})
                raise
            old, self.current = self.current, new
            self.alarm = None
            self.swaps += 1
        old.close()
        del old
        settle_memory()
        self._warm_up(new)
        LOGGER.info("model swapped", extra={"model": new.version})
        return new

    def close(self) -> None:
        """Stop what runs in the background."""
        self.current.close()

    def _load(self, path: Path) -> Loaded:
        loaded = Loaded(path, self._table_bytes)
        loaded.try_out()
        return loaded

    def _warm_up(self, loaded: Loaded) -> None:
        threading.Thread(target=loaded.fill, name="doublefeature-table", daemon=True).start()


def settle_memory() -> None:
    """Collect what is garbage now, and let later collections pass over all else: each would stop answers for 0.1 s."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
