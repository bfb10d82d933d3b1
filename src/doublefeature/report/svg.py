"""Small charts as inline SVG that fit any width: places across are in per cent, so text keeps its size on a phone.

Colours come from the page's style sheet. Every chart carries a title and a description for those who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.report.markup import Html, join, tag

FloatArray = NDArray[np.float64]

N_COLOURS = 8
MOST_POINTS = 400
"""Points drawn per line."""

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_STRIP_HEIGHT = 22
_LABEL_ROOM = 44  # characters that fit under a chart on a phone


@dataclass(frozen=True)
class Axis:
    """A stretch of numbers shown from 0 to 100 per cent."""

    low: float
    high: float
    share: bool = False
    """Whether the numbers are shares, written as percentages."""
    zero: bool = False
    """Whether zero is a border worth a line of its own."""
    marks: tuple[tuple[float, str], ...] = ()
    """What is written where, in place of round numbers."""

    def place(self, value: float) -> float:
        """Return where a value stands, in per cent, at the nearer end when it lies outside."""
        return 100.0 * min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def ticks(self, about: int) -> list[float]:
        """Return round numbers within the axis, about so many."""
        raw = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(raw))
        step = unit * next(step for step in _STEPS if unit * step >= raw * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]

    def labels(self, about: int = 4) -> list[tuple[float, str]]:
        """Return places with what is written there: the marks, or round numbers with equally many digits."""
        if self.marks:
            return list(self.marks)
        ticks = self.ticks(about)
        numbers = [100.0 * tick for tick in ticks] if self.share else ticks
        digits = next((d for d in range(6) if all(abs(n - round(n, d)) < 1e-9 * max(1, abs(n)) for n in numbers)), 6)
        unit = "\u00a0%" if self.share else ""
        return [(tick, f"{n:,.{digits}f}{unit}".replace("-", "−")) for tick, n in zip(ticks, numbers, strict=True)]


def axis_around(values: Sequence[float] | FloatArray, *, pad: float = 0.05, least: float = 1e-3) -> Axis:
    """Return an axis that holds all finite values with some room on both sides."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = max(pad * (high - low), least * max(1.0, abs(low), abs(high)))
    return Axis(low - room, high + room)


class Line(NamedTuple):
    """One line of a line chart: its values at 1, 2, …."""

    name: str
    values: FloatArray


class Dot(NamedTuple):
    """A mark on a strip: where, and the style class that says what it is."""

    place: float
    kind: str


def chart(name: str, title: str, description: str, *parts: object, height: int, class_: str = "chart") -> Html:
    """Return the frame of a chart: `name` must be its own on the page."""
    heads = tag("title", title, id=f"{name}-title"), tag("desc", description, id=f"{name}-desc")
    labels = f"{name}-title {name}-desc"
    return tag("svg", *heads, *parts, role="img", aria_labelledby=labels, class_=class_, width="100%", height=height)


def line_chart(
    name: str, title: str, description: str, lines: Sequence[Line], *, across: Axis, up: Axis, shaded: float = 0.0
) -> Html:
    """Return lines over 1, 2, …, with the part before `shaded` on a grey ground; what leaves the axis is cut off."""
    height = 200
    ground = tag("rect", class_="shade", x=0, y=0, width=f"{across.place(shaded):.2f}%", height=height)
    drawn = [_polyline(line.values, across, up, k % N_COLOURS) for k, line in enumerate(lines)]
    inside = tag("svg", *drawn, viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height=height)
    frame = join(_rows_of_grid(up, height), _foot(across, height))
    return chart(name, title, description, ground if shaded > across.low else None, frame, inside, height=height)


def bar_chart(name: str, title: str, description: str, labels: Sequence[str], values: Sequence[float]) -> Html:
    """Return upright bars; of many labels only some are written."""
    height = 180
    up = Axis(0.0, max(*values, 1e-9) * 1.08, share=True)
    wide = 100.0 / len(values)
    bars, feet = [], []
    every = math.ceil(len(values) * (1 + max(map(len, labels))) / _LABEL_ROOM)
    for k, (label, value) in enumerate(zip(labels, values, strict=True)):
        tall = height * up.place(value) / 100.0
        thick = min(0.8 * wide, 14.0)
        left = (k + 0.5) * wide - 0.5 * thick
        bars.append(tag("rect", class_="bar", x=f"{left:.2f}%", y=height - tall, width=f"{thick:.2f}%", height=tall))
        if k % every == 0:
            feet.append(_below(label, (k + 0.5) * wide, height))
    return chart(name, title, description, _rows_of_grid(up, height), *bars, *feet, height=height)


def calibration_chart(name: str, title: str, description: str, points: Sequence[tuple[float, ...]]) -> Html:
    """Return points (predicted, observed, lower, upper), shares all, beside the line on which they should lie."""
    height = 320
    unit = Axis(0.0, 1.0, share=True)
    marks: list[Html] = []
    for predicted, observed, lower, upper in points:
        x = f"{unit.place(predicted):.2f}%"
        ends = (height * (1.0 - lower), height * (1.0 - upper))
        marks.append(tag("line", class_="whisker", x1=x, x2=x, y1=ends[0], y2=ends[1]))
        marks.append(tag("circle", class_="point", cx=x, cy=height * (1.0 - observed), r=5))
    diagonal = tag("line", class_="ideal", x1="0%", y1=height, x2="100%", y2=0)
    frame = join(_rows_of_grid(unit, height), _foot(unit, height))
    return chart(name, title, description, frame, diagonal, *marks, height=height, class_="chart square")


def strip(
    text: str,
    axis: Axis,
    *,
    span: tuple[float, float],
    middle: float,
    dots: Sequence[Dot] = (),
    colour: int | None = None,
) -> Html:
    """Return one row of a chart made of table rows: an interval with its middle, and further marks."""
    y = _STRIP_HEIGHT // 2
    ends = [f"{axis.place(end):.2f}%" for end in span]
    inside = tag("line", class_="span", x1=ends[0], x2=ends[1], y1=y, y2=y)
    caps = [tag("line", class_="cap", x1=end, x2=end, y1=y - 4, y2=y + 4) for end in ends]
    x = f"{axis.place(middle):.2f}%"
    centre = tag("line", class_="middle", x1=x, x2=x, y1=y - 6, y2=y + 6)
    extra = [_mark(dot, axis, y) for dot in dots]
    return _strip_frame(text, axis, inside, *caps, centre, *extra, colour=colour)


def bar_strip(text: str, share: float) -> Html:
    """Return one row of a bar chart made of table rows; `share` is the bar's part of the whole width."""
    return _strip_frame(text, None, tag("rect", class_="bar", x=0, y=4, width=f"{100 * share:.2f}%", height=14))


def axis_strip(axis: Axis) -> Html:
    """Return the scale above the strips."""
    texts = [
        tag("text", label, x=f"{axis.place(value):.2f}%", y=14, text_anchor="middle", class_="tick")
        for value, label in axis.labels()
    ]
    return tag("svg", *texts, class_="strip scale", width="100%", height=_STRIP_HEIGHT, aria_hidden="true")


def legend(names: Sequence[str]) -> Html:
    """Return the names of lines with their colours."""
    keys = [tag("li", tag("span", class_=f"key s{k % N_COLOURS}"), name) for k, name in enumerate(names)]
    return tag("ul", *keys, class_="legend")


def _strip_frame(text: str, axis: Axis | None, *parts: Html, colour: int | None = None) -> Html:
    guides = [] if axis is None else [_guide(tick, axis) for tick, _ in axis.labels()]
    class_ = "strip" if colour is None else f"strip s{colour % N_COLOURS}"
    inside = tag("title", text), *guides, *parts
    return tag("svg", *inside, role="img", class_=class_, width="100%", height=_STRIP_HEIGHT)


def _guide(tick: float, axis: Axis) -> Html:
    x = f"{axis.place(tick):.2f}%"
    return tag("line", class_="zero" if axis.zero and tick == 0 else "grid", x1=x, x2=x, y1=0, y2=_STRIP_HEIGHT)


def _mark(dot: Dot, axis: Axis, y: int) -> Html:
    x = f"{axis.place(dot.place):.2f}%"
    if dot.kind == "goal":
        return tag("line", class_="goal", x1=x, x2=x, y1=y - 8, y2=y + 8)
    if dot.kind == "kept":
        return tag("svg", tag("path", class_="dot kept", d="M-6 0L0-6L6 0L0 6Z"), x=x, y=y, overflow="visible")
    return tag("circle", class_=f"dot {dot.kind}", cx=x, cy=y, r=5)


def _polyline(values: FloatArray, across: Axis, up: Axis, colour: int) -> Html:
    chosen = np.unique(np.linspace(0, values.size - 1, min(values.size, MOST_POINTS)).round().astype(int))
    x = 1000.0 * (chosen + 1 - across.low) / (across.high - across.low)
    y = 1000.0 * (up.high - values[chosen]) / (up.high - up.low)
    shown = np.isfinite(y)
    dots = " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(x[shown], y[shown].clip(-1e5, 1e5), strict=True))
    return tag("polyline", points=dots, class_=f"line s{colour}", vector_effect="non-scaling-stroke")


def _rows_of_grid(up: Axis, height: int) -> Html:
    parts = []
    for tick, text in up.labels():
        y = height * (1.0 - up.place(tick) / 100.0)
        parts.append(tag("line", class_="grid", x1=0, x2="100%", y1=y, y2=y))
        parts.append(tag("text", text, class_="tick", x=-8, y=y + 4, text_anchor="end"))
    return join(*parts)


def _foot(across: Axis, height: int) -> Html:
    return join(*(_below(text, across.place(tick), height) for tick, text in across.labels()))


def _below(label: str, place: float, height: int) -> Html:
    return tag("text", label, class_="tick", x=f"{place:.2f}%", y=height + 18, text_anchor="middle")
