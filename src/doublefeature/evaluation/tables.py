"""Scores as a table for people: one row per score, one column per method, the best in bold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from doublefeature.evaluation.bootstrap import Estimate
from doublefeature.evaluation.evaluate import Evaluation
from doublefeature.evaluation.ranking import MOST_USERS
from doublefeature.evaluation.splits import PROTOCOLS
from doublefeature.levels import Level

if TYPE_CHECKING:
    from rich.table import Table

Better = Literal["higher", "lower", "neither"]


class Look(NamedTuple):
    """How a score is shown."""

    label: str
    better: Better
    percent: bool = False


LOOKS = {
    "log_score": Look("log score", "higher"),
    "rps": Look("ranked probability score", "lower"),
    "rmse": Look("RMSE (mean)", "lower"),
    "mae": Look("MAE (median)", "lower"),
    "exact": Look("exact (mode)", "higher", True),
    "within_one": Look("within one level (window)", "higher", True),
    "pairs_authors": Look("pairs, authors' rule", "higher", True),
    "pairs_strict": Look("pairs without ties", "higher", True),
    "pairs_auc": Look("pairs, area under curve", "higher", True),
    "coverage_50": Look("50 % sets cover", "neither", True),
    "coverage_80": Look("80 % sets cover", "neither", True),
    "coverage_95": Look("95 % sets cover", "neither", True),
    "width_50": Look("levels in 50 % sets", "neither"),
    "width_80": Look("levels in 80 % sets", "neither"),
    "width_95": Look("levels in 95 % sets", "neither"),
    "calibration_error": Look("calibration error", "lower", True),
    "ndcg": Look("nDCG", "higher"),
    "precision": Look("precision", "higher", True),
    "recall": Look("recall", "higher", True),
}
"""Every score, in the order of the table; those of lists go by the name before the length."""


def look_of(name: str) -> Look:
    """Return how a score is shown; `ndcg_10` is nDCG at 10."""
    if name in LOOKS:
        return LOOKS[name]
    kind, _, length = name.rpartition("_")
    look = LOOKS[kind]
    return look._replace(label=f"{look.label} at {length}")


def ordered(names: Mapping[str, Estimate]) -> list[str]:
    """Return names of scores in the order of the table."""
    order = list(LOOKS)
    return sorted(names, key=lambda name: order.index(name if name in LOOKS else name.rpartition("_")[0]))


def shown(name: str, estimate: Estimate) -> str:
    """Return a score with its standard error as text: shares in percent, all else with three decimals."""
    if not math.isfinite(estimate.value):
        return "–"
    factor, digits = (100.0, 1) if look_of(name).percent else (1.0, 3)
    text = f"{factor * estimate.value:.{digits}f}"
    return f"{text} ± {factor * estimate.error:.{digits}f}" if math.isfinite(estimate.error) else text


def score_table(columns: Mapping[str, Mapping[str, Estimate]], title: str | None = None) -> Table:
    """Return the scores of several methods as a rich table."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("score")
    for method in columns:
        table.add_column(method, justify="right", no_wrap=True)
    names = {name: estimate for estimates in columns.values() for name, estimate in estimates.items()}
    for name in ordered(names):
        row = {method: estimates.get(name, Estimate(math.nan, math.nan)) for method, estimates in columns.items()}
        best = _best(name, row)
        cells = [f"[bold]{shown(name, row[m])}[/bold]" if m in best else shown(name, row[m]) for m in row]
        label = look_of(name)
        table.add_row(f"{label.label}{', %' if label.percent else ''}", *cells)
    return table


def how_lists_are_judged(relevant: Level) -> str:
    """Return what top-n lists are made of and what counts in them, as a line of text."""
    return (
        f"lists: over all items the user had not rated, for {MOST_USERS} users at most; "
        f"relevant is a held-out rating of {relevant} or more"
    )


def heading(evaluation: Evaluation) -> list[str]:
    """Return what an evaluation is about, as lines of text."""
    first, n_splits = evaluation.splits[0], len(evaluation.splits)
    sizes = f"{first.train_ratings} ratings to learn from, {first.test_ratings} held out of {first.test_users} users"
    fingerprint = first.fingerprint[:12]
    lines = [
        f"protocol {evaluation.protocol}: held out is {PROTOCOLS[evaluation.protocol]}",
        f"{first.users} users × {first.items} items; {sizes}"
        + (f"; mean of {n_splits} splits, the first {fingerprint}" if n_splits > 1 else f"; split {fingerprint}"),
        "± one standard error over users",
    ]
    if any(name.startswith("ndcg_") for parts in evaluation.scores.values() for name in parts[0].estimates):
        lines.append(how_lists_are_judged(evaluation.relevant))
    if first.given_ratings:
        lines.append(f"folded in before the others were judged: {first.given_ratings} ratings of these users")
    if first.unseen_users or first.unseen_items:
        lines.append(
            f"without any training rating, so that the prior answers: {first.unseen_users} of the users held out, "
            f"{first.unseen_items} of the items held out"
        )
    return lines


def evaluation_table(evaluation: Evaluation) -> Table:
    """Return the scores of the model and of the simple rules as a rich table."""
    return score_table(evaluation.summaries)


def _best(name: str, row: Mapping[str, Estimate]) -> set[str]:
    """Return the methods with the best value as it is shown."""
    better = look_of(name).better
    told = {method: estimate.value for method, estimate in row.items() if math.isfinite(estimate.value)}
    if better == "neither" or len(told) < 2:
        return set()
    best = (max if better == "higher" else min)(told.values())
    return {method for method, value in told.items() if value == best}
