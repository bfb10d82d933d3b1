"""What a block update sees: the ratings from both sides, the state, the likelihood, the random stream.

All block updates share one signature, `update_<block>(scene)`.

Every kernel that treats one side's rows independently is written once and called with either side. Rows are
handed out in chunks that do not depend on the number of threads, and sums are taken chunk by chunk, in order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from doublefeature._jit import leaf
from doublefeature.kernels.likelihood import Likelihood
from doublefeature.model.state import Model, State
from doublefeature.ratings import RatingArrays

FloatArray = NDArray[np.float64]

CHUNKS = 64
"""Pieces the rows of a side are cut into (fewer when there are fewer rows)."""
PARTS = 16
"""Groups of chunks with sums of their own, where what is summed is too large to keep per chunk."""


class Side(NamedTuple):
    """Row e holds the ratings `ptr[e]:ptr[e+1]`; `other` is the row they have on the other side."""

    ptr: NDArray[np.int64]
    other: NDArray[np.uint32]
    positions: NDArray[np.uint32]  # where each rating stands in user order; empty: they are in user order
    levels: NDArray[np.uint8]  # (ratings,) in user order
    of_users: bool


class Scene(NamedTuple):
    """Everything a block update reads or changes. Arrays as long as the ratings are in user order."""

    users: Side
    items: Side
    state: State
    model: Model
    like: Likelihood
    scores: FloatArray  # η
    latent: FloatArray  # Z
    tally: NDArray[np.int64]  # (moves, 2) tried, accepted
    key: np.uint64
    sweep: int
    threads: int


(
    PRIOR_SINGLETON,
    COLLAPSED_BIRTH,
    COLLAPSED_DEATH,
    BIRTH,
    DEATH,
    REGROW,
    SPLIT,
    MERGE,
    USER_COMPLEMENT,
    ITEM_COMPLEMENT,
    OFFSET_FLIP,
    EFFECT,
) = range(12)
"""Rows of `Scene.tally`."""
MOVE_NAMES = (
    "prior singleton",
    "collapsed birth",
    "collapsed death",
    "birth",
    "death",
    "regrow",
    "split",
    "merge",
    "user complement",
    "item complement",
    "offset flip",
    "effect",
)


@leaf
def note(tally: NDArray[np.int64], move: int, accepted: bool) -> None:
    """Count a try of a move, and whether it was accepted."""
    tally[move, 0] += 1
    if accepted:
        tally[move, 1] += 1


@register_jitable
def with_state(scene: Scene, state: State) -> Scene:
    """Return the scene with another state in it (needed when the state had to grow); plain Python outside kernels."""
    return Scene(
        scene.users,
        scene.items,
        state,
        scene.model,
        scene.like,
        scene.scores,
        scene.latent,
        scene.tally,
        scene.key,
        scene.sweep,
        scene.threads,
    )


def user_side(data: RatingArrays) -> Side:
    """Return the ratings by user."""
    return Side(data.user_ptr, data.item_codes, np.empty(0, np.uint32), data.levels, True)


def item_side(data: RatingArrays) -> Side:
    """Return the ratings by item."""
    return Side(data.item_ptr, data.user_codes, data.positions, data.levels, False)


@leaf
def place_of(side: Side, j: int) -> int:
    """Return where the side's j-th rating stands in user order."""
    if side.positions.size == 0:
        return j
    return np.int64(side.positions[np.uint64(j)])


@leaf
def chunk_count(side: Side) -> int:
    """Return the number of chunks the rows of a side are cut into."""
    return min(CHUNKS, side.ptr.size - 1)


@leaf
def chunk_start(side: Side, chunk: int) -> int:
    """Return the first row of a chunk; rows are cut so that chunks hold about as many ratings and rows."""
    n_rows = side.ptr.size - 1
    chunks = chunk_count(side)
    if chunk >= chunks:
        return n_rows
    weight = chunk * (side.ptr[n_rows] + n_rows) // chunks
    low, high = 0, n_rows
    while low < high:
        middle = (low + high) // 2
        if side.ptr[middle] + middle < weight:
            low = middle + 1
        else:
            high = middle
    return low


@leaf
def part_start(side: Side, part: int) -> int:
    """Return the first row of a part (with few rows, some parts are empty)."""
    return chunk_start(side, part * chunk_count(side) // PARTS)


@leaf
def longest_row(side: Side, low: int, high: int) -> int:
    """Return the length of the longest row among low, …, high − 1."""
    longest = 0
    for row in range(low, high):
        longest = max(longest, side.ptr[row + 1] - side.ptr[row])
    return longest
