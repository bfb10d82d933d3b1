"""The assignment problem: give every row a column of its own at the least total cost."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel
from doublefeature.errors import SettingsError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@kernel
def shortest_paths(cost: FloatArray) -> IntArray:
    """Return the column of every row; rows join one by one along the cheapest alternating path.

    Prices y (rows) and z (columns) keep every reduced cost c_ij − y_i − z_j non-negative and that of every
    assigned pair zero, so a shortest path by reduced costs (Dijkstra) is the cheapest way to seat one row more.
    """
    n_rows, n_columns = cost.shape
    row_price, column_price = np.zeros(n_rows), np.zeros(n_columns)
    row_of = np.full(n_columns, -1)
    for start in range(n_rows):
        reach = np.full(n_columns, math.inf)
        before = np.full(n_columns, -1)
        settled = np.zeros(n_columns, np.bool_)
        row, column, length = start, -1, 0.0
        while row >= 0:
            nearest, shortest = -1, math.inf
            for j in range(n_columns):
                if settled[j]:
                    continue
                through = length + cost[row, j] - row_price[row] - column_price[j]
                if through < reach[j]:
                    reach[j] = through
                    before[j] = column
                if reach[j] < shortest:
                    nearest, shortest = j, reach[j]
            column, length = nearest, shortest
            settled[column] = True
            row = row_of[column]
        row_price[start] += length
        for j in range(n_columns):
            if settled[j] and j != column:
                row_price[row_of[j]] += length - reach[j]
                column_price[j] -= length - reach[j]
        while column >= 0:
            row_of[column] = start if before[column] < 0 else row_of[before[column]]
            column = before[column]
    column_of = np.full(n_rows, -1)
    for j in range(n_columns):
        if row_of[j] >= 0:
            column_of[row_of[j]] = j
    return column_of


def assign(cost: FloatArray) -> IntArray:
    """Return the column of each row that minimises the total cost of an (n, m) matrix, n ≤ m, in O(n² m)."""
    matrix = np.ascontiguousarray(cost, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] > matrix.shape[1]:
        raise SettingsError(f"a cost matrix needs at least as many columns as rows, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise SettingsError("a cost matrix must hold finite numbers only.")
    return shortest_paths(matrix)
