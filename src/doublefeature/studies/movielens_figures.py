"""Figures of the MovieLens study, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from doublefeature.evaluation.drawing import draw_files, new_figure
from doublefeature.studies.movielens import Study
from doublefeature.studies.movielens_data import FEATURES, PAIRS, WITHIN_ONE
from doublefeature.studies.movielens_runs import shown_users
from doublefeature.studies.movielens_scores import ShardScore, shard_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BEFORE, _AFTER, _PAPER, _TEST = "#b0a000", "#0072b2", "#707070", "#d55e00"


def draw_figures(study: Study) -> dict[str, bytes]:
    """Return every figure of the study under its file name, each as PNG and as SVG."""
    return draw_files(_figures(study), title_size=10)


def _figures(study: Study) -> Iterator[tuple[str, Figure]]:
    first = [row for row in shard_scores(study) if row.seed == study.splits[0].seed]
    yield "pairs_by_shard", draw_pairs(first)
    yield "within_one_by_shard", draw_within_one(first)
    yield "features", draw_features(first)
    yield "three_users", draw_users(study)
    yield "scores_and_ratings", draw_scores(study)
    yield "cost", draw_cost(study)


def draw_pairs(rows: list[ShardScore]) -> Figure:
    """Draw the pairwise accuracy of every shard before and after the merge."""
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    for values, colour, marker, name in (
        ([row.pairs_before for row in rows], _BEFORE, "s", "before the merge"),
        ([row.pairs_after for row in rows], _AFTER, "o", "after the merge"),
    ):
        shares = 100 * np.array(values)
        axes.plot([row.shard for row in rows], shares, marker, color=colour, label=f"{name}: mean {shares.mean():.1f}")
        axes.axhline(float(shares.mean()), color=colour, lw=0.8)
    axes.axhline(100 * PAIRS, color=_PAPER, lw=1, ls="--", label=f"paper: {100 * PAIRS:.1f}")
    _by_shard(axes, rows, "pairs predicted, %", "Pairs by the authors' rule")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_within_one(rows: list[ShardScore]) -> Figure:
    """Draw the accuracy within one level of every shard after the merge, with its normal 95 % interval."""
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    shares = 100 * np.array([row.within_one for row in rows])
    half = shares - 100 * np.array([row.lower for row in rows])
    axes.errorbar([row.shard for row in rows], shares, half, fmt="o", color=_AFTER, capsize=3, label="shard, 95 %")
    axes.axhline(float(shares.mean()), color=_TEST, lw=1, label=f"mean over shards: {shares.mean():.1f}")
    axes.axhline(100 * WITHIN_ONE, color=_PAPER, lw=1, ls="--", label=f"paper: {100 * WITHIN_ONE:.1f}")
    _by_shard(axes, rows, "held-out ratings, %", "Predicted within one level, after the merge")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_features(rows: list[ShardScore]) -> Figure:
    """Draw the number of features of every shard: mean and range over draws."""
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    means = np.array([row.features for row in rows])
    reach = [means - [row.features_least for row in rows], [row.features_most for row in rows] - means]
    axes.errorbar([row.shard for row in rows], means, reach, fmt="o", color=_AFTER, capsize=3, label="mean and range")
    axes.axhspan(*FEATURES, color=_PAPER, alpha=0.25, lw=0, label=f"paper: {FEATURES[0]} to {FEATURES[1]}")
    _by_shard(axes, rows, "features K", "Features per shard, over draws")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def draw_users(study: Study) -> Figure:
    """Draw three users' predicted scores of all films, sorted, with 95 % intervals, and the ratings they gave."""
    split, run = study.splits[0], study.runs["consensus"][0]
    users = shown_users(split).tolist()
    figure = new_figure(9.6, 3.6)
    panels = figure.subplots(1, len(users), sharey=True, squeeze=False)[0]
    for axes, user, table in zip(panels, users, run["shown"], strict=True):
        order = np.argsort(-table[:, 0], kind="stable")
        places = np.empty(order.size, np.int64)
        places[order] = np.arange(order.size)
        axes.fill_between(
            np.arange(order.size), *table[order, 1:].T, color=_TEST, alpha=0.3, lw=0, label="95 % interval"
        )
        axes.plot(np.arange(order.size), table[order, 0], color="black", lw=1, label="predicted score")
        for part, colour, size, name in (
            (split.train, _AFTER, 9, "rating, training"),
            (split.test, "#009e73", 45, "rating, held out"),
        ):
            own = slice(*part.arrays.user_ptr[user : user + 2])
            given = part.arrays.levels[own].astype(np.float64) + 0.5
            axes.scatter(places[part.arrays.item_codes[own]], given, s=size, color=colour, label=name, zorder=3)
        axes.set(title=f"user {split.train.users[user]}", xlabel="films by predicted score")
    panels[0].set_ylabel("score (a rating r is drawn at r − 0.5)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw_scores(study: Study) -> Figure:
    """Draw predicted scores of held-out films against the ratings they got, in one shard."""
    split, run = study.splits[0], study.runs["consensus"][0]
    shard = int(np.random.default_rng([split.seed, 7]).integers(study.shards))
    rows = run["shard"] == shard
    levels = split.test.arrays.levels[rows].astype(np.int64)
    columns = [run["scores"][rows][levels == level] for level in range(split.test.n_levels)]
    figure = new_figure(5.2, 3.6)
    axes = figure.subplots()
    axes.boxplot(
        columns, widths=0.55, showfliers=False, medianprops={"color": _TEST}, whiskerprops={"color": "#909090"}
    )
    jitter = np.random.default_rng(0).uniform(-0.18, 0.18, levels.size)
    axes.scatter(levels + 1 + jitter, run["scores"][rows], s=7, color=_AFTER, alpha=0.45, lw=0)
    names = [f"{label}\n({column.size})" for label, column in zip(split.test.levels, columns, strict=True)]
    axes.set_xticks(range(1, len(columns) + 1), names)
    axes.set(xlabel="rating given (how often)", ylabel="predicted score", title=f"Held-out films in shard {shard}")
    axes.grid(axis="y", alpha=0.25)
    return figure


def draw_cost(study: Study) -> Figure:
    """Draw what a sweep costs, and the standard error of effects, against the number of shards, as measured."""
    sizes = list(study.by_shards)
    sweeps = study.schedule.n_sweeps * study.schedule.chains
    first = np.array([run["seconds"][0].mean() for run in study.by_shards.values()]) / sweeps
    total = first * sizes
    errors = [np.median(run["effect_errors"]) for run in study.by_shards.values()]
    figure = new_figure(7.6, 3.4)
    left, right = figure.subplots(1, 2)
    left.plot(sizes, 1000 * total, "s-", color=_BEFORE, label="all shards together")
    left.plot(sizes, 1000 * first, "o-", color=_AFTER, label="one shard")
    cubic = total[0] * np.array(sizes, np.float64) ** -2
    left.plot(sizes, 1000 * cubic, ":", color=_PAPER, label="O(S (m/S)³), as the paper argues")
    left.set(xlabel="shards S", ylabel="CPU per sweep, ms", yscale="log", xscale="log", title="Cost of a sweep")
    left.legend(fontsize=8)
    right.plot(sizes, errors, "o-", color=_AFTER)
    right.set(xlabel="shards S", ylabel="median over features", xscale="log", title="Standard error of effects θ")
    for axes in (left, right):
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(axis="y", alpha=0.25)
    return figure


def _by_shard(axes: Axes, rows: list[ShardScore], label: str, title: str) -> None:
    axes.set_xticks([row.shard for row in rows])
    axes.set(xlabel="shard", ylabel=label, title=title)
    axes.grid(axis="y", alpha=0.25)
