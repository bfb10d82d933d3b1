"""What workers give each other: rows they have filled, and sums by parts, always added in the same order.

Every worker holds the ratings of some parts of the users and of some parts of the items, and a copy of the whole state.
A block fills what its own ratings decide and then shares it. Alone, a worker owns all parts and shares nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.link import gather
from doublefeature.kernels.scene import PARTS, Side, chunk_count, first_part, part_start

FloatArray = NDArray[np.float64]


@kernel
def share_rows(side: Side, rows: Any) -> None:
    """Let every worker have all rows of an array with a row for every row of a side."""
    if side.size == 1:
        return
    borders = np.empty(side.size + 1, np.int64)
    for rank in range(borders.size):
        borders[rank] = part_start(side, first_part(rank, side.size))
    gather(side.address, rows, borders)


@kernel
def share_chunks(side: Side, rows: Any) -> None:
    """Let every worker have all rows of an array with a row for every chunk of a side."""
    if side.size == 1:
        return
    borders = np.empty(side.size + 1, np.int64)
    for rank in range(borders.size):
        borders[rank] = first_part(rank, side.size) * chunk_count(side) // PARTS
    gather(side.address, rows, borders)


@kernel
def share_listed(side: Side, listed: NDArray[np.int64], rows: Any) -> None:
    """Let every worker have all rows of an array with a row for every listed row of a side, in ascending order."""
    if side.size == 1:
        return
    borders = np.empty(side.size + 1, np.int64)
    for rank in range(borders.size):
        borders[rank] = np.count_nonzero(listed < part_start(side, first_part(rank, side.size)))
    gather(side.address, rows, borders)


@leaf
def fair_share(side: Side, n_rows: int) -> tuple[int, int]:
    """Return first and last (excluded) of the rows that a worker takes where any worker could."""
    return side.rank * n_rows // side.size, (side.rank + 1) * n_rows // side.size


@kernel
def share_fairly(side: Side, rows: Any) -> None:
    """Let every worker have all rows of an array of which each has filled its fair share."""
    if side.size == 1:
        return
    gather(side.address, rows, np.arange(side.size + 1) * rows.shape[0] // side.size)


@kernel
def from_owner(side: Side, row: int, value: float) -> float:
    """Return the number that the worker who holds a row has found."""
    if side.size == 1:
        return value
    values = np.zeros(side.size)
    values[side.rank] = value
    gather(side.address, values, np.arange(side.size + 1))
    owner = 0
    while row >= part_start(side, first_part(owner + 1, side.size)):
        owner += 1
    return values[owner]


@leaf
def _owner_of_part(part: int, size: int) -> int:
    return ((part + 1) * size - 1) // PARTS


@leaf
def _is_one_owners(part: int, count: int, size: int) -> bool:
    """Whether so many parts from this one on are all held by one worker."""
    return _owner_of_part(part, size) == _owner_of_part(part + count - 1, size)


@leaf
def _is_head(part: int, size: int) -> bool:
    """Whether a part holds a sum that its owner has not added to another part's."""
    width = part & -part
    return part == 0 or not _is_one_owners(part - width, 2 * width, size)


@leaf
def _add_pairs(side: Side, sums: FloatArray, within: bool) -> None:
    """Add up neighbours, then neighbouring pairs, and so on: those within this worker's parts, or those across."""
    width = 1
    while width < PARTS:
        for part in range(0, PARTS, 2 * width):
            together = _is_one_owners(part, 2 * width, side.size)
            if (within and together and _owner_of_part(part, side.size) == side.rank) or not (within or together):
                for j in range(sums.shape[1]):
                    sums[part, j] += sums[part + width, j]
        width *= 2


@kernel
def _share_heads(side: Side, sums: FloatArray) -> None:
    """Let every worker have the sums that owners of parts have not added to others."""
    borders = np.zeros(side.size + 1, np.int64)
    heads = np.empty(PARTS, np.int64)
    count = 0
    for part in range(PARTS):
        if _is_head(part, side.size):
            heads[count] = part
            count += 1
            borders[_owner_of_part(part, side.size) + 1 :] = count
    rows = np.zeros((count, sums.shape[1]))
    for n in range(borders[side.rank], borders[side.rank + 1]):
        rows[n] = sums[heads[n]]
    gather(side.address, rows, borders)
    for n in range(count):
        sums[heads[n]] = rows[n]


@kernel
def add_parts(side: Side, sums: Any) -> None:
    """Add sums by part, (PARTS, …), into those of part 0: pairwise, in an order that is the same for all cuts."""
    flat = sums.reshape((PARTS, sums.size // PARTS))
    _add_pairs(side, flat, True)
    if side.size > 1:
        _share_heads(side, flat)
        _add_pairs(side, flat, False)
