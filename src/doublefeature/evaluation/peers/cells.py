"""Finished runs on disk: one JSON file for each model and split, so that a comparison goes on where it stopped."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from doublefeature._version import __version__
from doublefeature.errors import StoreError
from doublefeature.evaluation.baselines import Predicted
from doublefeature.evaluation.bootstrap import Ratio, Scores, judge_tallies
from doublefeature.evaluation.peers.base import Codes, FloatArray, Peer, Settings
from doublefeature.evaluation.peers.child import Usage
from doublefeature.evaluation.peers.runner import Outcome, Trial
from doublefeature.evaluation.peers.tuning import Search
from doublefeature.evaluation.ranking import score_ranking
from doublefeature.evaluation.splits import Split
from doublefeature.posterior.disk import write_whole

FORMAT = 2


@dataclass(frozen=True, eq=False)
class Cell:
    """A finished run: predictions of the held-out ratings, scores of its lists, settings and cost."""

    predicted: Predicted
    lists: dict[str, Ratio]
    settings: Settings
    trials: list[Trial]
    usage: Usage
    answer_seconds: float

    @classmethod
    def of(cls, outcome: Outcome, split: Split, listed: Codes | None, top_n: int) -> Cell:
        """Keep of an outcome what scores need."""
        lists: dict[str, Ratio] = {}
        if listed is not None and outcome.means is not None:
            table = outcome.means

            def means(users: Codes) -> FloatArray:
                return table[np.searchsorted(listed, users)]

            found = score_ranking(split, means, n=top_n, resamples=2)
            tallies = {} if found is None else found.tallies
            lists = {name: tally for name, tally in tallies.items() if isinstance(tally, Ratio)}
        return cls(outcome.predicted, lists, outcome.settings, outcome.trials, outcome.usage, outcome.answer_seconds)

    def list_scores(self, n_ratings: int, resamples: int) -> Scores | None:
        """Return the scores of top-n lists, if there are any."""
        return judge_tallies(n_ratings, self.lists, resamples=resamples) if self.lists else None

    @property
    def tuning_seconds(self) -> float:
        """Wall-clock time of all fits before the last."""
        return sum(trial.seconds for trial in self.trials)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; arrays as little-endian 64-bit numbers in base 64."""
        proba, mean = self.predicted
        return {
            "shape": list(proba.shape),
            "proba": _encode(proba),
            "mean": _encode(mean),
            "lists": {
                name: {"users": one.users.tolist(), "sums": one.sums.tolist(), "counts": one.counts.tolist()}
                for name, one in self.lists.items()
            },
            "settings": dict(self.settings),
            "trials": [{**vars(trial), "settings": dict(trial.settings)} for trial in self.trials],
            "usage": self.usage._asdict(),
            "answer_seconds": self.answer_seconds,
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Cell:
        """Return the cell that plain values describe."""
        n_pairs, n_levels = plain["shape"]
        proba, mean = _decode(plain["proba"], (n_pairs, n_levels)), _decode(plain["mean"], (n_pairs,))
        lists = {
            name: Ratio(np.array(one["users"], np.int64), np.array(one["sums"]), np.array(one["counts"]))
            for name, one in plain["lists"].items()
        }
        trials = [Trial(**trial) for trial in plain["trials"]]
        usage = Usage(**plain["usage"])
        return cls(Predicted(proba, mean), lists, plain["settings"], trials, usage, plain["answer_seconds"])


class Shelf:
    """A folder of finished cells; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise StoreError(f"{folder}: cannot be made ({problem.strerror}). Choose another place.") from None

    def load(self, key: str, model: str) -> Cell | None:
        """Return a finished cell, or None."""
        path = self._path(key, model)
        if path is None or not path.is_file():
            return None
        try:
            return Cell.from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            raise StoreError(f"{path}: this result cannot be read. Delete it, and it will be made again.") from None

    def keep(self, key: str, model: str, cell: Cell) -> None:
        """Write a finished cell."""
        path = self._path(key, model)
        if path is not None:
            write_whole(path, json.dumps({"model": model, "key": key, **cell.to_json()}).encode())

    def _path(self, key: str, model: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{model}-{key[:16]}.json"


def cell_key(split: Split, peer: Peer, search: Search, top_n: int | None) -> str:
    """Return what a cell depends on, as a digest: the split, the model, its settings, and versions of packages."""
    model = [peer.name, peer.revision, [dict(settings) for settings in search.starts]]
    ladders = [dict(search.ladders)] if search.ladders else []
    parts = [FORMAT, __version__, split.fingerprint, model, top_n, *ladders]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _encode(numbers: FloatArray) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, "<f8").tobytes()).decode("ascii")


def _decode(text: str, shape: tuple[int, ...]) -> FloatArray:
    numbers: FloatArray = np.frombuffer(base64.b64decode(text), "<f8").reshape(shape).astype(np.float64)
    return numbers
