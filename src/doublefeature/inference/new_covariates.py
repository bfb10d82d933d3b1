"""Columns of a new item as the numbers a model was fitted with.

A category column is 1 where a row has the category and 0 where not, less the mean: the two values it takes among the
items fitted on. A column of numbers was shifted and scaled: two items that differ in it tell how.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import SettingsError, show
from doublefeature.levels import number
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Rows = Mapping[Hashable, Mapping[str, str]]


def item_covariates(ratings: Ratings, items: Rows, given: Mapping[str, str | float]) -> FloatArray:
    """Return a new item's numbers; columns that are not given say nothing (0)."""
    table, names = ratings.covariates.items, ratings.covariates.item_names
    columns = [name.partition(": ")[0] for name in names]
    for column in given:
        if column not in columns:
            known = ", ".join(dict.fromkeys(columns)) or "none"
            raise SettingsError(f"the model has no item covariate {show(column)}. It has {known}.")
    out = np.zeros(len(names))
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        if table is None or column not in given:
            continue
        _, is_category, category = name.partition(": ")
        if is_category:
            has = category in [part.strip() for part in str(given[column]).split("|")]
            out[place] = table[:, place].max() if has else table[:, place].min()
        else:
            out[place] = _scaled(given[column], column, table[:, place], ratings, items)
    return out


def _scaled(given: str | float, column: str, fitted: FloatArray, ratings: Ratings, items: Rows) -> float:
    value = number(given)
    if not np.isfinite(value):
        raise SettingsError(f"item covariate {show(column)} is a number, got {show(given)}.")
    raw = np.array([number(items.get(item, {}).get(column, "")) for item in ratings.items])
    there = np.flatnonzero(np.isfinite(raw))
    low, high = (there[raw[there].argmin()], there[raw[there].argmax()]) if there.size else (0, 0)
    if not there.size or raw[low] == raw[high]:
        raise SettingsError(f"the model's item table does not tell how column {show(column)} was scaled. Leave it out.")
    slope = (fitted[high] - fitted[low]) / (raw[high] - raw[low])
    return float(fitted[low] + slope * (value - raw[low]))
