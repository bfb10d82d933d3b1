"""The card beside a model, with how good the model turned out to be."""

from __future__ import annotations

import os
from pathlib import Path

from doublefeature.posterior.card import card_text
from doublefeature.posterior.shard_card import sharded_card
from doublefeature.posterior.store import ModelFolder
from doublefeature.recommender import DoubleFeature
from doublefeature.report.quality import Rule, measure
from doublefeature.sharded import ShardedDoubleFeature


def write_card(model: DoubleFeature, path: str | os.PathLike[str]) -> None:
    """Write the card of a fitted model into its folder."""
    if isinstance(model, ShardedDoubleFeature):
        model.folder_.whole.write_card(sharded_card(model.folder_, quality_lines(model)))
        return
    folder = ModelFolder.open(Path(path))
    folder.write_card(card_text(folder, quality_lines(model)))


def quality_lines(model: DoubleFeature) -> dict[str, str]:
    """Return how far the chains agree, and how good predictions of the ratings kept out are."""
    diagnosis = model.diagnose()
    lines = {"chains": f"{diagnosis.level}. {' '.join(diagnosis.reasons())}"}
    quality = measure(model)
    if quality is None:
        return {**lines, "accuracy": "not measured: no ratings were kept out (fit with holdout)"}
    lines["on ratings kept out"] = _rule(quality.model)
    lines |= {f"the same by {rule.name}": _rule(rule) for rule in quality.rules}
    sets = ", ".join(f"{part.promised:.0%} promised and {part.observed:.0%} held" for part in quality.coverage)
    return {**lines, "prediction sets": sets}


def _rule(rule: Rule) -> str:
    return f"exact {rule.exact:.1%}, within one level {rule.within_one:.1%}, RMSE {rule.rmse:.3f}"
