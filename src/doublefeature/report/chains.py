"""The report's section on the chains: what the sampler did, and whether it settled."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature.model.state import NOISE
from doublefeature.report.markup import Html, bullets, count, counted, decimal, join, paragraph, sized, table, tag
from doublefeature.report.material import Material
from doublefeature.report.sections import figure, section
from doublefeature.report.svg import Axis, Line, axis_around, bar_chart, legend, line_chart

FloatArray = NDArray[np.float64]

_NAMES = {"log_likelihood": "log-likelihood", "K": "number of features (K)"}
_MOST_BARS = 40
_FIRST = 5  # sweeps whose climb the charts need not show


def chains_section(material: Material) -> Html:
    """Show the traces and say whether the chains agree."""
    diagnosis = material.diagnosis
    return section(
        "chains",
        "Did the sampler settle?",
        paragraph(
            "The answers are averages over many plausible models (draws), found by "
            f"{counted(len(diagnosis.chains), 'independent chain')}. They can be trusted when the chains "
            "tell the same story."
        ),
        bullets([join(sentence) for sentence in (*diagnosis.reasons(), *diagnosis.advice())]),
        _traces(material),
        _settled_table(material),
        _feature_counts(material),
    )


def _traces(material: Material) -> Html:
    traces, schedule = material.model.posterior_.traces, material.model.schedule_
    longest = max((trace.log_likelihood.size for trace in traces), default=0)
    if longest < 2:
        return paragraph("No sweep-by-sweep record was kept, so the chains’ paths cannot be drawn.", class_="callout")
    kinds: list[tuple[str, str, list[FloatArray]]] = [
        ("likelihood", "Log-likelihood", [trace.log_likelihood for trace in traces]),
        ("features", "Number of features (K)", [trace.n_features.astype(np.float64) for trace in traces]),
    ]
    if material.model.priors_.noise_scale is None:
        kinds.append(("noise", "Noise scale", [trace.hyper[:, NOISE] for trace in traces]))
    across = Axis(1.0, float(longest))
    pictures = [_trace_picture(name, title, series, across, schedule.warmup) for name, title, series in kinds]
    return figure(
        join(tag("div", *pictures, class_="panels"), legend([f"chain {trace.chain}" for trace in traces])),
        "How to read it: one line per chain, from the first sweep to the last. The grey part is the warm-up, which is "
        "thrown away; its first climb may leave the picture. After it the lines should waver about one height, without "
        "a trend, and cover the same range. Chains may keep different numbers of features, as several sets of features "
        "can explain the same ratings.",
        title="The chains, sweep by sweep",
    )


def _trace_picture(name: str, title: str, series: list[FloatArray], across: Axis, warmup: int) -> Html:
    settled = np.concatenate([values[min(warmup, values.size // 2) :] for values in series])
    every = axis_around(np.concatenate([values[min(_FIRST, values.size - 1) :] for values in series]))
    inner = axis_around(settled, pad=0.15)
    room = 0.6 * (inner.high - inner.low)
    up = Axis(
        max(min(every.low, inner.low), inner.low - room),
        min(max(every.high, inner.high), inner.high + room),
    )
    ends = ", ".join(decimal(float(values[-1]), 2) for values in series)
    lines = [Line(title, values) for values in series]
    told = f"{title} over {count(across.high)} sweeps, {count(warmup)} of them warm-up. Last values: {ends}."
    shown = line_chart(f"trace-{name}", title, told, lines, across=across, up=up, shaded=float(warmup))
    return tag("div", tag("h4", title), shown)


def _settled_table(material: Material) -> Html:
    rows: list[list[object]] = []
    for quantity in material.diagnosis.quantities:
        found = quantity.found
        numbers = sized(found.mean), sized(found.sd), decimal(found.rhat, 2), decimal(found.ess_bulk, 0)
        rows.append([_NAMES.get(quantity.name, quantity.name.replace("_", " ")), *numbers])
    return join(
        table(["", "mean", "sd", "R-hat", "effective draws"], rows, class_="numbers"),
        paragraph(
            "R-hat near 1 means that chains cannot be told apart; a dash, that the quantity does not vary or there are "
            "too few draws. Effective draws: how many independent draws would know as much.",
            class_="how",
        ),
    )


def _feature_counts(material: Material) -> Html:
    sizes = material.model.posterior_.n_features
    low, high = int(sizes.min()), int(sizes.max())
    width = math.ceil((high - low + 1) / _MOST_BARS)
    starts = list(range(low, high + 1, width))
    shares = np.bincount((sizes - low) // width, minlength=len(starts)) / sizes.size
    names = [str(start) if width == 1 else f"{start}–{start + width - 1}" for start in starts]
    mean = decimal(float(sizes.mean()), 1)
    span = counted(low, "feature") if low == high else f"From {low} to {high} features"
    told = f"{span} over {counted(sizes.size, 'draw')}, {mean} on average."
    return figure(
        bar_chart("feature-counts", "Number of features over draws", told, names, shares.tolist()),
        f"How to read it: the share of draws with so many features. {told} Draws may hold small or fleeting features; "
        f"the point estimate that the next sections describe has {len(material.features)}.",
        title="How many features?",
    )
