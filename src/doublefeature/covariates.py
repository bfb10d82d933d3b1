"""Columns of users and items as numbers a model can use: years, genres, ages, occupations.

A column of numbers becomes one number of mean 0 and variance 1. Any other column becomes a number for each of its
categories, 1 where a row has it and 0 where not, less the mean; a cell may hold several categories between `|`. A
missing cell is 0 throughout: it says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from doublefeature.column_names import year_at_end
from doublefeature.errors import SettingsError, show
from doublefeature.outline import Covariates, Outline
from doublefeature.ratings import Ratings
from doublefeature.readers import RatingsFolder

FloatArray = NDArray[np.float64]
Rows = Mapping[Hashable, Mapping[str, str]]

NUMBER, CATEGORY = "number", "category"
YEAR = "year"
MOST = 60
"""Most numbers per side: weights for all of them are drawn jointly for every feature."""
RAREST = 5
"""A category that fewer rows have is left out."""
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "\\n", "?", "(no genres listed)"})


R = TypeVar("R", Ratings, RatingsFolder)


def with_covariates(
    ratings: R,
    *,
    users: Rows | None = None,
    items: Rows | None = None,
    user_covariates: str | Sequence[str] = (),
    item_covariates: str | Sequence[str] = (),
    unrated: bool = True,
) -> R:
    """Return the ratings, or files of them, with columns of tables beside them, for a model to use.

    Parameters
    ----------
    users, items
        Columns by raw id, as `read_items` and `read_users` return them. Ids without a row are missing throughout.
    user_covariates, item_covariates
        Names of columns, or one text with commas between them; `name:number` or `name:category` where the kind is not
        what the cells look like. `year` is taken from titles that end in a year where there is no such column.
    unrated
        Users and items of the tables that have no ratings become known ones too, so that a model can answer for them
        by their columns.
    """
    of_user, of_item = _names(user_covariates, "user"), _names(item_covariates, "item")

    def describe(outline: Outline) -> Outline:
        if of_user:
            check_match(users, outline.users, "user")
        if of_item:
            check_match(items, outline.items, "item")
        if unrated:
            outline = outline.with_unrated(users if of_user and users else (), items if of_item and items else ())
        user_names, of_users = _encode(users, outline.users, of_user, "user")
        item_names, of_items = _encode(items, outline.items, of_item, "item")
        return replace(outline, covariates=Covariates(of_users, of_items, user_names, item_names))

    if isinstance(ratings, RatingsFolder):
        return replace(ratings, describe=describe)
    return ratings.with_outline(describe(ratings.outline))


def check_match(table: Rows | None, ids: Sequence[Hashable], role: str) -> int:
    """Return how many of the ids have a row in the table; none at all are refused."""
    if table is None:
        raise SettingsError(f"{role} covariates need a table of {role}s. Give it with --{role}s or {role}s=.")
    found = sum(label in table for label in ids)
    if not found:
        given = f"{show(next(iter(ids)))} in the ratings, {show(next(iter(table), None))} in the table"
        raise SettingsError(f"no {role} of the ratings is in the table of {role}s ({given}). Are the ids the same?")
    return found


def _names(given: str | Sequence[str], role: str) -> list[str]:
    """Return names of columns; a text holds them with commas between."""
    if not isinstance(given, str):
        return list(given)
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise SettingsError(f"{role} covariates {show(given)} name no column. Give names such as genres,year.")
    return names


def _encode(
    table: Rows | None, ids: Sequence[Hashable], wanted: Sequence[str], role: str
) -> tuple[tuple[str, ...], FloatArray | None]:
    if not wanted:
        return (), None
    rows = [(table or {}).get(label, {}) for label in ids]
    names: list[str] = []
    parts: list[FloatArray] = []
    for entry in wanted:
        name, _, kind = entry.partition(":")
        found, numbers = _column(_cells(rows, name, role), name, kind, role)
        names += found
        parts.append(numbers)
    if len(set(names)) < len(names):
        raise SettingsError(f"a {role} covariate comes twice in {show(list(wanted))}.")
    if len(names) > MOST:
        raise SettingsError(f"{len(names)} numbers per {role} are too many (most {MOST}). Choose fewer columns.")
    return tuple(names), np.asarray(np.round(np.hstack(parts), 9) + 0.0, np.float64)


def _cells(rows: list[Mapping[str, str]], name: str, role: str) -> list[str]:
    known = dict.fromkeys(column for row in rows for column in row)
    if name in known:
        return [row.get(name, "").strip() for row in rows]
    years = [year_at_end(row.get("title", "")) for row in rows]
    if name == YEAR and any(years):
        return years
    raise SettingsError(f"the table of {role}s has no column {show(name)}. It has {', '.join(map(str, known))}.")


def _column(cells: list[str], name: str, kind: str, role: str) -> tuple[list[str], FloatArray]:
    present = [cell.lower() not in _MISSING for cell in cells]
    numbers = [_number(cell) if there else math.nan for cell, there in zip(cells, present, strict=True)]
    all_numbers = not any(there and math.isnan(value) for value, there in zip(numbers, present, strict=True))
    if kind not in ("", NUMBER, CATEGORY):
        raise SettingsError(f"{role} covariate {show(name)} is of kind {show(kind)}: {NUMBER} or {CATEGORY}.")
    if not any(present):
        raise SettingsError(f"{role} column {show(name)} is empty.")
    if kind == NUMBER and not all_numbers:
        odd = next(cell for cell, value, there in zip(cells, numbers, present, strict=True) if there and value != value)
        raise SettingsError(f"{role} column {show(name)} holds {show(odd)}, which is not a number.")
    if kind == NUMBER or (all_numbers and kind != CATEGORY):
        return [name], _standardised(np.array(numbers))[:, None]
    return _categories(cells, present, name, role)


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _standardised(values: FloatArray) -> FloatArray:
    """Return numbers of mean 0 and variance 1, and 0 where one is missing."""
    there = ~np.isnan(values)
    sd = values[there].std()
    if sd == 0.0:
        return np.zeros(values.size)
    standard: FloatArray = np.where(there, (values - values[there].mean()) / sd, 0.0)
    return standard


def _categories(cells: list[str], present: list[bool], name: str, role: str) -> tuple[list[str], FloatArray]:
    sets = [
        frozenset(part.strip() for part in cell.split("|") if part.strip()) if there else frozenset()
        for cell, there in zip(cells, present, strict=True)
    ]
    counts: dict[str, int] = {}
    for row in sets:
        for category in row:
            counts[category] = counts.get(category, 0) + 1
    kept = sorted(category for category, count in counts.items() if count >= RAREST)
    if not kept:
        raise SettingsError(f"no category of {role} column {show(name)} is shared by {RAREST} {role}s or more.")
    values = np.array([[float(category in row) for category in kept] for row in sets])
    there = np.array(present)
    values[there] -= values[there].mean(axis=0)
    return [f"{name}: {category}" for category in kept], values
