"""How commands print: aligned text for people, CSV, JSON and Parquet for programs."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from doublefeature.errors import EnvironmentProblem, InputError, MissingExtraError, show
from doublefeature.posterior.disk import write_whole

Row = Mapping[str, Any]


class Interrupted(Exception):
    """The work was stopped by a signal, after a checkpoint; says how to go on."""


def say(text: str) -> None:
    """Print a message for people, on stderr."""
    typer.echo(text, err=True)


def print_json(value: object) -> None:
    """Print one JSON value on stdout."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=False))


def print_table(rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    """Print rows as aligned text; `columns` maps keys to headings."""
    cells = [[_cell(row.get(key, "")) for key in columns] for row in rows]
    table = [list(columns.values()), *cells]
    widths = [max(len(line[k]) for line in table) for k in range(len(columns))]
    right = [all(_is_number(row.get(key, "")) for row in rows) for key in columns]
    for line in table:
        parts = [text.rjust(w) if r else text.ljust(w) for text, w, r in zip(line, widths, right, strict=True)]
        typer.echo("  ".join(parts).rstrip())


def write_rows(rows: Sequence[Row], out: Path | None) -> None:
    """Write rows as CSV to stdout, or to a file whose ending says how: .csv, .json or .parquet."""
    if out is None:
        typer.echo(_csv_text(rows), nl=False)
        return
    ending = out.suffix.lower()
    if ending == ".parquet":
        write_whole(out, _parquet_bytes(rows))
    elif ending == ".json":
        write_whole(out, json.dumps(list(rows), ensure_ascii=False, default=_plain).encode())
    elif ending == ".csv":
        write_whole(out, _csv_text(rows).encode())
    else:
        raise InputError(f"{show(str(out))}: the ending says the format. Use .csv, .json or .parquet.")


def check_writable(path: Path) -> None:
    """Raise now, not after the work, if a file cannot be written there."""
    check_place(path)
    if path.is_dir():
        raise InputError(f"{path}: this is a folder. Give a file name.")


def check_place(path: Path) -> None:
    """Raise now, not after the work, if the folder that a file or folder is to be in cannot be written to."""
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder. Make it first, or choose another place.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise EnvironmentProblem(f"{folder}: cannot be written ({reason}). Choose another place.") from None


def _csv_text(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _safe(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _safe(value: Any) -> Any:
    """Keep spreadsheets from running text as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value else value


def _parquet_bytes(rows: Sequence[Row]) -> bytes:
    try:
        import polars as pl
    except ImportError:
        raise MissingExtraError("writing Parquet", "io") from None
    text = io.BytesIO()
    pl.DataFrame(list(rows), infer_schema_length=None).write_parquet(text)
    return text.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return " ".join(str(value).split())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """Turn NumPy values into JSON's."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    return str(value)


def interval(mass: float) -> dict[str, str]:
    """Return headings of the ends of an interval, which say how likely it holds the truth."""
    return {"lower": f"{100 * mass:g}% from", "upper": "to"}


def print_items(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print items as a table, with titles where there are any; nothing without items."""
    if not rows:
        return
    titled = {"title": "title"} if any(row["title"] for row in rows) else {}
    print_table(rows, {"item": "item", **titled, **columns})
