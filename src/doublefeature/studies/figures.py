"""Figures of the simulation study, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from doublefeature.evaluation.drawing import draw_files, new_figure
from doublefeature.studies.recovery import LARGE, Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"doublefeature": "#0072b2", "factorisation": "#d55e00", "oracle": "#707070", "majority": "#b0a000"}
_MARKERS = {"oracle": "_", "doublefeature": "o", "factorisation": "s", "majority": "x"}
_TRUE, _FOUND = "#404040", "#0072b2"


def draw_figures(cells: Sequence[Cell]) -> dict[str, bytes]:
    """Return every figure of the study under its file name, each as PNG and as SVG."""
    return draw_files(_figures(cells), title_size=10)


def _figures(cells: Sequence[Cell]) -> Iterator[tuple[str, Figure]]:
    for tau in dict.fromkeys(cell.tau for cell in cells):
        group = [cell for cell in cells if cell.tau == tau]
        yield f"accuracy_tau{tau:g}", draw_accuracy(group)
        yield f"users_tau{tau:g}", draw_users(group)
        yield f"sweeps_tau{tau:g}", draw_sweeps(group)
        for cell in group:
            yield f"features_tau{tau:g}_seed{cell.seed}", draw_features(cell)


def draw_accuracy(cells: Sequence[Cell]) -> Figure:
    """Draw the test accuracy of every method for every seed."""
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    places = np.arange(len(cells))
    for name, marker in _MARKERS.items():
        shares = [100 * cell.scores[name] for cell in cells]
        label = f"{name}: mean {np.mean(shares):.1f}"
        size: dict[str, Any] = {"markersize": 14, "markeredgewidth": 2} if name == "oracle" else {"markersize": 6}
        axes.plot(places, shares, marker, color=COLOURS[name], label=label, **size)
    axes.set_xticks(places, [str(cell.seed) for cell in cells])
    axes.set(xlabel="seed", ylabel="test ratings predicted exactly, %", title=_title(cells[0]))
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside right center")
    return figure


def draw_users(cells: Sequence[Cell]) -> Figure:
    """Draw box plots over users of all data sets: accuracy, and accuracy in the top ten."""
    figure = new_figure(7.2, 3.4)
    titles = {"accuracy": "held-out ratings predicted exactly", "top": "top ten among held-out ratings found"}
    for axes, (measure, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        _draw_boxes(axes, cells, measure)
        axes.set_title(title)
    figure.suptitle(f"{_title(cells[0])}, every user of {_count(cells)}", fontsize=10)
    return figure


def _draw_boxes(axes: Axes, cells: Sequence[Cell], measure: str) -> None:
    names = ("doublefeature", "factorisation", "oracle")
    columns = [
        [100 * share for cell in cells for share in cell.by_user[measure][name] if share is not None] for name in names
    ]
    if all(columns):
        drawn = axes.boxplot(
            columns,
            widths=0.55,
            patch_artist=True,
            showmeans=True,
            medianprops={"color": "black"},
            meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": "black", "markersize": 5},
            flierprops={"marker": ".", "markersize": 3, "alpha": 0.4},
        )
        for box, name in zip(drawn["boxes"], names, strict=True):
            box.set(facecolor=COLOURS[name], alpha=0.6)
    axes.set_xticks(range(1, len(names) + 1), names)
    axes.set_ylabel("per user, %")
    axes.grid(axis="y", alpha=0.25)


def draw_sweeps(cells: Sequence[Cell]) -> Figure:
    """Draw the number of features after every sweep, one panel per data set and one line per chain."""
    columns = min(5, len(cells))
    rows = -(-len(cells) // columns)
    figure = new_figure(max(6.4, 2.0 * columns + 0.8), 1.8 * rows + 1.0)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for place, (axes, cell) in enumerate(zip(panels, cells, strict=False)):
        for chain in cell.n_features:
            axes.plot(np.arange(1, len(chain) + 1), chain, lw=0.6, alpha=0.8)
        axes.axhline(float(cell.recovery["planted"] or 0), color="black", lw=1, label="planted")
        large = float(cell.recovery["planted_large"] or 0)
        axes.axhline(large, color="black", lw=1, ls="--", label=f"held by ≥ {LARGE} users and items")
        axes.set_title(f"seed {cell.seed}", fontsize=9)
        if place + columns >= len(cells):
            axes.set_xlabel("sweep")
            axes.tick_params(labelbottom=True)
    for axes in panels[len(cells) :]:
        axes.set_visible(False)
    figure.supylabel("features K", fontsize=9)
    figure.suptitle(f"{_title(cells[0])}: K over sweeps, one line per chain", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def draw_features(cell: Cell) -> Figure:
    """Draw the planted features beside the estimate, columns aligned: users, items, effects."""
    true, found = cell.truth, cell.estimate
    n_users, n_items = true["n_users"], true["n_items"]
    n_features = len(true["effect"])
    figure = new_figure(max(6.0, 0.52 * n_features + 1.5), 7.6)
    panels = figure.subplots(3, 2, sharex=True, height_ratios=(4, 5, 3))
    for column, (side, colour, title) in enumerate(((true, _TRUE, "planted"), (found, _FOUND, "estimate"))):
        for row, (key, size) in enumerate((("users", n_users), ("items", n_items))):
            _draw_members(panels[row, column], side[key], size, colour)
        panels[0, column].set_title(title)
        panels[2, column].bar(np.arange(n_features), side["effect"], color=colour)
        panels[2, column].axhline(0.0, color="black", lw=0.6)
        panels[2, column].set_xlabel("feature")
        panels[2, column].set_xticks(range(n_features), range(1, n_features + 1), fontsize=7)
    limit = 1.1 * max([1.0, *(abs(effect) for effect in (*true["effect"], *found["effect"]))])
    for axes in panels[2]:
        axes.set_ylim(-limit, limit)
    for axes, label in zip(panels[:, 0], ("user", "item", "effect θ"), strict=True):
        axes.set_ylabel(label)
    figure.suptitle(f"{_title(cell)}, seed {cell.seed}", fontsize=10)
    return figure


def _draw_members(axes: Axes, members: Sequence[Sequence[int]], size: int, colour: str) -> None:
    from matplotlib.colors import ListedColormap

    picture = np.zeros((size, max(1, len(members))))
    for feature, rows in enumerate(members):
        picture[list(rows), feature] = 1.0
    axes.imshow(picture, cmap=ListedColormap(["#f2f2f2", colour]), vmin=0, vmax=1, aspect="auto", interpolation="none")
    for border in np.arange(len(members) - 1) + 0.5:
        axes.axvline(border, color="white", lw=1)


def _title(cell: Cell) -> str:
    return f"τ = {cell.tau:g}"


def _count(cells: Sequence[Cell]) -> str:
    return f"{len(cells)} data sets" if len(cells) > 1 else "one data set"
