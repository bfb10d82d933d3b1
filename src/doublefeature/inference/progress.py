"""What a running chain tells, and two ways to show it: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO


class Progress(NamedTuple):
    """One sweep's news."""

    chain: int
    sweep: int  # sweeps done
    sweeps: int  # sweeps to do
    n_features: int
    log_likelihood: float
    acceptance: dict[str, float]  # share of tries accepted so far, per move
    seconds_left: float

    def line(self) -> str:
        """Return the news as one plain line."""
        return (
            f"chain {self.chain}  sweep {self.sweep}/{self.sweeps}  K {self.n_features}  "
            f"log-likelihood {self.log_likelihood:.1f}  births {self.acceptance.get('birth', 0.0):.0%}  "
            f"{clock(self.seconds_left)} left"
        )


ProgressCallback = Callable[[Progress], None]


def clock(seconds: float) -> str:
    """Return seconds as 1:02 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class PlainProgress:
    """Writes a line per chain every so many seconds, and at its end."""

    def __init__(self, stream: TextIO, every: float = 10.0) -> None:
        self._stream = stream
        self._every = every
        self._last: dict[int, float] = {}

    def __call__(self, news: Progress) -> None:
        """Show the news if the last line of this chain is old enough."""
        now = time.monotonic()
        last = self._last.setdefault(news.chain, now)
        if news.sweep == news.sweeps or now - last >= self._every:
            self._last[news.chain] = now
            print(news.line(), file=self._stream, flush=True)


class LiveProgress:
    """Keeps one bar per chain up to date on a terminal."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._tasks: dict[int, Any] = {}

    def __call__(self, news: Progress) -> None:
        """Move the chain's bar."""
        if news.chain not in self._tasks:
            self._tasks[news.chain] = self._display.add_task(f"chain {news.chain}", total=news.sweeps, detail="")
        detail = f"K {news.n_features}  log-likelihood {news.log_likelihood:.0f}"
        births = f"births {news.acceptance.get('birth', 0.0):.0%}"
        self._display.update(
            self._tasks[news.chain],
            completed=news.sweep,
            detail=f"{detail}  {births}  {clock(news.seconds_left)} left",
        )


@contextmanager
def shown_progress(stream: TextIO | None = None) -> Iterator[ProgressCallback]:
    """Show progress while the block runs: bars by rich on a terminal, plain lines otherwise."""
    out = sys.stderr if stream is None else stream
    if not out.isatty():
        yield PlainProgress(out)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Display

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Display(*columns, console=Console(file=out), transient=True) as display:
        yield LiveProgress(display)
