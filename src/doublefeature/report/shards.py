"""The report's parts on a model over shards: a verdict, and how far shards agree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from doublefeature.report.markup import Html, bullets, count, counted, decimal, join, label, paragraph, signed, table
from doublefeature.report.material import Material
from doublefeature.report.sections import section
from doublefeature.report.verdict import opening
from doublefeature.sharded import ShardedDoubleFeature

_SHOWN = 15


def sharded_verdict(material: Material, model: ShardedDoubleFeature) -> Html:
    """Say in one paragraph what the data are, how good the model is and how it was split."""
    told = (
        f"Users were split at random into {counted(model.sharding.shards, 'shard')}; features belong to shards, and "
        "item offsets are merged. This is an approximation: no feature is shared between users of different shards."
    )
    return paragraph(opening(material), told, class_="verdict")


def shards_section(model: ShardedDoubleFeature) -> Callable[[Material], Html]:
    """Return the section on shards: their chains and features, and the items they disagree about."""

    def write(material: Material) -> Html:
        diagnosis = model.diagnose()
        return section(
            "shards",
            "Shards",
            bullets([join(sentence) for sentence in (*diagnosis.reasons(), *diagnosis.advice())]),
            _shard_table(model),
            *_disagreement(model, material),
        )

    return write


def _shard_table(model: ShardedDoubleFeature) -> Html:
    rows: list[list[object]] = []
    for shard in range(model.sharding.shards):
        part = model.shard_model(shard)
        sizes, noise = part.posterior_.n_features, part.posterior_.noise
        told = f"{decimal(np.median(sizes), 0)} ({sizes.min()} to {sizes.max()})"
        cells = (count(part.ratings_.n_users), count(part.ratings_.n_ratings), told, decimal(float(np.median(noise))))
        rows.append([str(shard), *cells])
    head = ["shard", "users", "ratings", "features K, median and range", "noise scale"]
    return table(head, rows, caption="Every shard after the merge", class_="numbers")


def _disagreement(model: ShardedDoubleFeature, material: Material) -> list[Html]:
    if model.sharding.shards == 1:
        return []
    rows: list[list[object]] = []
    for row in model.disagreements(_SHOWN):
        name = label(model.title(row.item) or row.item)
        span = f"{signed(row.lowest)} to {signed(row.highest)}"
        rows.append([name, signed(row.merged), span, decimal(row.ratio, 1)])
    return [
        paragraph(
            "An item offset is the score of an item for users who share no feature with it. As shards have other "
            "features, they can disagree about it by more than chance: a ratio of 1 is agreement."
        ),
        table(
            ["item", "merged offset", "means of shards", "ratio"],
            rows,
            caption="Items that shards disagree about most",
            class_="numbers texts",
        ),
    ]
