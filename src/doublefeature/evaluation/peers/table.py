"""A comparison as tables: models in rows, the best of each column in bold; for a terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from doublefeature.evaluation.bootstrap import Estimate
from doublefeature.evaluation.peers.comparison import Comparison
from doublefeature.evaluation.peers.runner import show_settings
from doublefeature.evaluation.splits import PROTOCOLS
from doublefeature.evaluation.tables import look_of, ordered, shown

if TYPE_CHECKING:
    from rich.table import Table

BEGIN, END = "<!-- compare: begin -->", "<!-- compare: end -->"
"""Between these lines of a Markdown page the tables are put, in place of what is there."""
_LEADING = ("log_score", "rps", "rmse", "mae", "exact", "within_one", "pairs_authors", "pairs_strict", "pairs_auc")
_HEADS = {
    "log_score": "log score",
    "rps": "RPS",
    "rmse": "RMSE",
    "mae": "MAE",
    "exact": "exact, %",
    "within_one": "within one, %",
    "pairs_authors": "pairs (authors), %",
    "pairs_strict": "pairs (strict), %",
    "pairs_auc": "pairs (AUC), %",
}


class Grid(NamedTuple):
    """A table of texts; `best` marks cells by row and column."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    best: set[tuple[int, int]]


def grids(comparison: Comparison) -> list[Grid]:
    """Return the tables of a comparison: scores, differences, the remaining scores, cost and settings."""
    models = ranked(comparison)
    every = {model: comparison.summary(model) for model in models}
    names = ordered({name: estimate for estimates in every.values() for name, estimate in estimates.items()})
    first = [name for name in _LEADING if name in names]
    rest = [name for name in names if name not in first]
    lead = {model: comparison.leads[model] for model in models if model in comparison.leads}
    title = f"{comparison.reference} minus the model, paired, ± one standard error"
    return [
        _scores("scores on held-out ratings, ± one standard error over users", every, first),
        *([_scores(title, lead, first, mark=False)] if lead else []),
        _scores("calibration and lists", every, rest),
        _costs(comparison, models),
    ]


def ranked(comparison: Comparison) -> list[str]:
    """Return the models from the best log score to the worst."""
    return sorted(comparison.scores, key=lambda model: -comparison.summary(model)["log_score"].value)


def heading(comparison: Comparison) -> list[str]:
    """Return what a comparison is about, as lines of text."""
    first, seeds = comparison.splits[0], ", ".join(str(facts.seed) for facts in comparison.splits)
    return [
        f"protocol {comparison.protocol}: held out is {PROTOCOLS[comparison.protocol]}",
        f"{first.users} users × {first.items} items; {first.train_ratings} ratings to learn from, "
        f"{first.test_ratings} held out; seeds {seeds}; split {first.fingerprint[:12]}",
        *([f"learnt from besides: {first.given_ratings} ratings of the users held out"] if first.given_ratings else []),
        *comparison.notes,
        *(f"{name} is left out: {why}" for name, why in comparison.left_out.items()),
    ]


def rich_tables(comparison: Comparison) -> list[Table]:
    """Return the tables for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    tables = []
    for grid in grids(comparison):
        table = Table(title=grid.title, title_justify="left", show_edge=False, pad_edge=False)
        for column, head in enumerate(grid.heads):
            table.add_column(head, justify="left" if column == 0 else "right")
        for number, row in enumerate(grid.rows):
            table.add_row(
                *(f"[bold]{escape(c)}[/bold]" if (number, k) in grid.best else escape(c) for k, c in enumerate(row))
            )
        tables.append(table)
    return tables


def markdown(comparison: Comparison) -> str:
    """Return the comparison as a part of a Markdown page."""
    parts = ["\n".join(f"- {line}" for line in heading(comparison))]
    for grid in grids(comparison):
        lines = [grid.heads, ["---", *["---:"] * (len(grid.heads) - 1)]]
        lines += [[f"**{c}**" if (n, k) in grid.best else c for k, c in enumerate(r)] for n, r in enumerate(grid.rows)]
        parts.append(f"**{grid.title[:1].upper()}{grid.title[1:]}**")
        parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))
    return "\n\n".join(parts) + "\n"


def put_into(page: str, text: str) -> str:
    """Return a page with the text between its markers, or the text alone when the page has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n\n{text}\n{end}{after}" if begin and end else text


def _scores(
    title: str, columns: Mapping[str, Mapping[str, Estimate]], names: Sequence[str], *, mark: bool = True
) -> Grid:
    unknown = Estimate(math.nan, math.nan)
    table = [[estimates.get(name, unknown) for name in names] for estimates in columns.values()]
    rows = [
        [model, *(shown(name, cell) for name, cell in zip(names, row, strict=True))]
        for model, row in zip(columns, table, strict=True)
    ]
    best = {
        (row, column + 1)
        for column, name in enumerate(names)
        for row in (_best([line[column].value for line in table], look_of(name).better) if mark else ())
    }
    return Grid(title, ["model", *(_head(name) for name in names)], rows, best)


def _head(name: str) -> str:
    look = look_of(name)
    return _HEADS.get(name, f"{look.label}{', %' if look.percent else ''}")


def _best(values: Sequence[float], better: str) -> Iterable[int]:
    """Return the rows with the best value."""
    told = [value for value in values if math.isfinite(value)]
    if better == "neither" or len(told) < 2:
        return []
    choose: Callable[[Iterable[float]], float] = max if better == "higher" else min
    best = choose(told)
    return [row for row, value in enumerate(values) if value == best]


def _costs(comparison: Comparison, models: Sequence[str]) -> Grid:
    rows = []
    for model in models:
        cost, cells = comparison.cost(model), comparison.cells[model]
        times = (cost.fit_seconds, cost.fit_cpu_seconds, cost.tuning_seconds)
        chosen = "; ".join(dict.fromkeys(show_settings(cell.settings) for cell in cells))
        rows.append([model, *(f"{number:.1f}" for number in times), f"{cost.peak_megabytes:.0f}", chosen])
    heads = ["model", "fit, s", "fit, CPU s", "tuning, s", "memory, MB", "settings"]
    return Grid("cost of the last fit, of tuning before it, and the settings chosen", heads, rows, set())
