"""Counters in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the bins that request times are counted in."""
PREFIX = "doublefeature"

Gauge = tuple[str, str, Mapping[str, str], float]
"""Name, help, labels and value of something that is read when asked for."""


class Metrics:
    """How many requests there were of which route and outcome, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._bins: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(SECONDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        with self._lock:
            self._counts[method, route, status] += 1
            self._bins[route][bisect_left(SECONDS, seconds)] += 1
            self._sums[route] += seconds

    def text(self, gauges: Iterable[Gauge]) -> str:
        """Return everything as Prometheus reads it."""
        with self._lock:
            counts, sums = dict(self._counts), dict(self._sums)
            bins = {route: list(found) for route, found in self._bins.items()}
        name = f"{PREFIX}_requests_total"
        lines = [f"# HELP {name} Requests by method, route and status.", f"# TYPE {name} counter"]
        for (method, route, status), count in sorted(counts.items()):
            lines.append(_sample(name, {"method": method, "route": route, "status": str(status)}, count))
        name = f"{PREFIX}_request_seconds"
        lines += [f"# HELP {name} Time to answer.", f"# TYPE {name} histogram"]
        for route, found in sorted(bins.items()):
            total = 0
            for end, count in zip([*map(str, SECONDS), "+Inf"], found, strict=True):
                total += count
                lines.append(_sample(f"{name}_bucket", {"route": route, "le": end}, total))
            lines.append(_sample(f"{name}_sum", {"route": route}, round(sums[route], 6)))
            lines.append(_sample(f"{name}_count", {"route": route}, total))
        for short, told, labels, value in gauges:
            full = f"{PREFIX}_{short}"
            lines += [f"# HELP {full} {told}", f"# TYPE {full} gauge", _sample(full, labels, value)]
        return "\n".join(lines) + "\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
