"""Plots of an evaluation, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from doublefeature.evaluation.bootstrap import Estimate, Scores
from doublefeature.evaluation.drawing import draw_files, new_figure
from doublefeature.evaluation.evaluate import Evaluation
from doublefeature.evaluation.reliability import Bin, CalibrationError
from doublefeature.evaluation.scores import MASSES
from doublefeature.evaluation.tables import look_of, ordered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#707070", "#cc79a7", "#e69f00", "#56b4e9")


def draw_evaluation(evaluation: Evaluation) -> dict[str, bytes]:
    """Return the plots of an evaluation under their file names, each as PNG and as SVG."""
    return draw_files(_figures(evaluation), title_size=9)


def _figures(evaluation: Evaluation) -> Iterator[tuple[str, Figure]]:
    summaries = evaluation.summaries
    yield "calibration", draw_calibration({method: pooled_bins(parts) for method, parts in evaluation.scores.items()})
    yield "coverage", draw_coverage(summaries)
    yield "scores", draw_scores(summaries)


def pooled_bins(parts: Sequence[Scores]) -> list[Bin]:
    """Return the calibration bins of several splits taken together."""
    tallies = [part.tallies["calibration_error"] for part in parts]
    known = [tally for tally in tallies if isinstance(tally, CalibrationError)]
    sums = [np.stack([getattr(t, key).sum(axis=0) for t in known]) for key in ("counts", "predicted", "hits")]
    return CalibrationError(np.arange(len(known)), *sums).bins()


def draw_calibration(bins: Mapping[str, Sequence[Bin]]) -> Figure:
    """Draw predicted probabilities of levels against how often they came true, one panel per method."""
    figure = new_figure(2.6 * len(bins), 3.2)
    panels = figure.subplots(1, len(bins), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (method, parts), colour in zip(panels, bins.items(), _cycle(len(bins)), strict=True):
        axes.plot([0, 1], [0, 1], color="#b0b0b0", linewidth=1)
        predicted, observed = [part.predicted for part in parts], [part.observed for part in parts]
        low = [part.observed - part.lower for part in parts]
        high = [part.upper - part.observed for part in parts]
        axes.errorbar(predicted, observed, yerr=[low, high], fmt="o", markersize=4, color=colour, elinewidth=1)
        axes.set(title=method, xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xlabel="predicted probability")
    panels[0].set_ylabel("share that came true")
    return figure


def draw_coverage(summaries: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """Draw how often the sets of levels hold what they promise, as points above or below the promise."""
    figure = new_figure(5.2, 3.0)
    axes = figure.subplots()
    axes.axhspan(-2, 2, color="#eeeeee")
    axes.axhline(0, color="#b0b0b0", linewidth=1)
    step = 0.6 / len(summaries)
    for number, ((method, estimates), colour) in enumerate(zip(summaries.items(), _cycle(len(summaries)), strict=True)):
        found = [estimates[f"coverage_{round(100 * mass)}"] for mass in MASSES]
        places = np.arange(len(MASSES)) + step * (number - (len(summaries) - 1) / 2)
        gaps = [100 * (estimate.value - mass) for estimate, mass in zip(found, MASSES, strict=True)]
        errors = [200 * estimate.error for estimate in found]
        axes.errorbar(places, gaps, yerr=errors, fmt="o", markersize=4, color=colour, label=method, elinewidth=1)
    axes.set_xticks(range(len(MASSES)), [f"{mass:.0%} sets" for mass in MASSES])
    axes.set_ylabel("coverage minus promise, points")
    figure.legend(loc="outside upper center", ncols=len(summaries))
    return figure


def draw_scores(summaries: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """Draw every score with two standard errors either side, one panel per score, methods as rows."""
    every = {name: estimate for estimates in summaries.values() for name, estimate in estimates.items()}
    names = [name for name in ordered(every) if look_of(name).better != "neither"]
    columns = 4
    rows = -(-len(names) // columns)
    figure = new_figure(10.5, 0.7 + rows * (0.5 + 0.22 * len(summaries)))
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        _score_panel(axes, name, summaries)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    figure.supxlabel("↑ higher is better, ↓ lower is better; bars: two standard errors either side", fontsize=8)
    return figure


def _score_panel(axes: Axes, name: str, summaries: Mapping[str, Mapping[str, Estimate]]) -> None:
    look = look_of(name)
    factor = 100.0 if look.percent else 1.0
    for place, (estimates, colour) in enumerate(zip(summaries.values(), _cycle(len(summaries)), strict=True)):
        if name in estimates:
            value, error = (factor * number for number in estimates[name])
            axes.errorbar(
                value, place, xerr=2 * np.nan_to_num(error), fmt="o", markersize=4, color=colour, elinewidth=1
            )
    axes.set_yticks(range(len(summaries)), list(summaries))
    axes.set_ylim(len(summaries) - 0.5, -0.5)
    axes.set_title(f"{look.label}{', %' if look.percent else ''} {'↑' if look.better == 'higher' else '↓'}")
    axes.tick_params(axis="x", labelsize=7)


def _cycle(n: int) -> list[str]:
    return [_COLOURS[k % len(_COLOURS)] for k in range(n)]
