"""The README's first command: simulate, fit into a folder, compare with the truth, write a report."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doublefeature.config import Schedule
from doublefeature.errors import InputError, StoreError
from doublefeature.inference.progress import ProgressCallback
from doublefeature.posterior.store import ModelFolder
from doublefeature.recommender import DoubleFeature
from doublefeature.report.card import write_card
from doublefeature.report.page import write_report
from doublefeature.studies.recovery import Design, Recovery, Trial, compare, simulate


@dataclass(frozen=True)
class Demonstration:
    """How well planted features were found, and where to look."""

    recovery: Recovery
    model: Path
    report: Path

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**self.recovery.to_dict(), "folder": str(self.model), "report": str(self.report)}

    def lines(self) -> list[str]:
        """Return the result as lines of plain text."""
        found = self.recovery
        rows = (
            ("the true parameters (oracle)", found.oracle),
            ("doublefeature", found.model),
            ("most frequent level of the item", found.item_mode),
            ("most frequent level of the user", found.user_mode),
            ("most frequent level", found.majority),
        )
        return [
            "held-out ratings predicted exactly",
            *(f"  {name:<34}{share:7.1%}" for name, share in rows),
            f"features: {found.true_features} planted, {found.mean_features:.1f} in the posterior mean",
            f"model:  {self.model}  (try: doublefeature features {self.model})",
            f"report: {self.report}",
        ]


def demonstrate(
    design: Design,
    seed: int,
    schedule: Schedule,
    out: Path,
    *,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
) -> Demonstration | None:
    """Run the demonstration into a folder that is not there yet; None when it was stopped."""
    ratings, truth = simulate(design, seed)
    train, test = ratings.split(design.test_share, seed=seed)
    model = DoubleFeature(priors=design.priors(), schedule=schedule, seed=seed)
    model.fit(ratings, holdout=design.test_share, out=out, progress=progress, stop=stop)
    if not model.finished_:
        return None
    report = out / "report.html"
    write_report(model, report)
    write_card(model, out)
    return Demonstration(compare(Trial(design, truth, train, test, model.posterior_), seed), out, report)


def make_room(out: Path, design: Design, seed: int) -> None:
    """Remove an earlier demonstration on the same ratings; refuse to touch anything else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    train, _ = simulate(design, seed)[0].split(design.test_share, seed=seed)
    try:
        ours = ModelFolder.open(out).ratings.fingerprint == train.fingerprint
    except StoreError:
        ours = False
    if not ours:
        raise InputError(f"{out}: already there, and not an earlier demo. Remove it or pass --out.")
    shutil.rmtree(out)
