"""What a block update sees: the ratings from both sides, the state, the likelihood, the random stream.

All block updates share one signature, `update_<block>(scene)`.

Every kernel that treats one side's rows independently is written once and called with either side. Rows are
handed out in chunks that do not depend on the number of threads, and sums are taken chunk by chunk, in order.

Several workers may run one chain together. Then a side holds the ratings of this worker's rows only; other rows look
empty. The items' side has scores and latent scores of its own, in its own order. In one process there is one array of
either, in user order, and the items' side goes through `positions`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from doublefeature._jit import kernel, leaf
from doublefeature.kernels.likelihood import Likelihood
from doublefeature.model.state import Model, State
from doublefeature.ratings import RatingArrays

FloatArray = NDArray[np.float64]

CHUNKS = 64
"""Pieces the rows of a side are cut into (fewer when there are fewer rows)."""
PARTS = 16
"""Groups of chunks with sums of their own, where what is summed is too large to keep per chunk."""


ALONE = (0, 0, 1)
"""Address, rank and size of a worker without others."""


class Side(NamedTuple):
    """Row e holds the ratings `ptr[e]:ptr[e+1]`; `other` is the row they have on the other side."""

    ptr: NDArray[np.int64]
    whole: NDArray[np.int64]  # the pointers of all rows, whoever holds their ratings
    other: NDArray[np.uint32]
    positions: NDArray[np.uint32]  # where each rating's level and scores stand; empty: where it stands itself
    levels: NDArray[np.uint8]
    scores: FloatArray  # (ratings,) of a side that is apart; otherwise none (see `scores_of`)
    latent: FloatArray
    of_users: bool
    address: int  # of the function that lets workers share (see `doublefeature.kernels.link`)
    rank: int  # this worker's number
    size: int  # how many workers there are


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
    none = np.empty(0, np.uint32)
    return Side(
        data.user_ptr, data.user_ptr, data.item_codes, none, data.levels, np.empty(0), np.empty(0), True, *ALONE
    )


def item_side(data: RatingArrays) -> Side:
    """Return the ratings by item."""
    ptr, where = data.item_ptr, data.positions
    return Side(ptr, ptr, data.user_codes, where, data.levels, np.empty(0), np.empty(0), False, *ALONE)


@leaf
def is_apart(side: Side) -> bool:
    """Whether a side has scores of its own."""
    return not side.of_users and side.positions.size == 0


@kernel
def scores_of(scene: Scene, side: Side) -> FloatArray:
    """Return the scores of a side's ratings."""
    if is_apart(side):
        return side.scores
    return scene.scores


@kernel
def latent_of(scene: Scene, side: Side) -> FloatArray:
    """Return the latent scores of a side's ratings."""
    if is_apart(side):
        return side.latent
    return scene.latent


@leaf
def place_of(side: Side, j: int) -> int:
    """Return where level and scores of the side's j-th rating stand."""
    if side.positions.size == 0:
        return j
    return np.int64(side.positions[np.uint64(j)])


@leaf
def rating_count(side: Side) -> int:
    """Return the number of all ratings, whoever holds them."""
    return side.whole[side.whole.size - 1]


@leaf
def row_of_rating(side: Side, j: int) -> int:
    """Return the row that the j-th of all ratings belongs to."""
    low, high = 0, side.whole.size - 2
    while low < high:
        middle = (low + high + 1) // 2
        if side.whole[middle] <= j:
            low = middle
        else:
            high = middle - 1
    return low


@leaf
def chunk_count(side: Side) -> int:
    """Return the number of chunks the rows of a side are cut into."""
    return min(CHUNKS, side.whole.size - 1)


@leaf
def chunk_start(side: Side, chunk: int) -> int:
    """Return the first row of a chunk; rows are cut so that chunks hold about as many ratings and rows."""
    n_rows = side.whole.size - 1
    chunks = chunk_count(side)
    if chunk >= chunks:
        return n_rows
    weight = chunk * (side.whole[n_rows] + n_rows) // chunks
    low, high = 0, n_rows
    while low < high:
        middle = (low + high) // 2
        if side.whole[middle] + middle < weight:
            low = middle + 1
        else:
            high = middle
    return low


@leaf
def part_start(side: Side, part: int) -> int:
    """Return the first row of a part (with few rows, some parts are empty)."""
    return chunk_start(side, part * chunk_count(side) // PARTS)


@leaf
def first_part(rank: int, size: int) -> int:
    """Return the first part that a worker holds. A worker beyond the number of parts may hold none."""
    return rank * PARTS // size


@leaf
def own_parts(side: Side) -> tuple[int, int]:
    """Return first and last (excluded) part that this worker holds."""
    return first_part(side.rank, side.size), first_part(side.rank + 1, side.size)


@leaf
def own_chunks(side: Side) -> tuple[int, int]:
    """Return first and last (excluded) chunk that this worker holds."""
    low, high = own_parts(side)
    chunks = chunk_count(side)
    return low * chunks // PARTS, high * chunks // PARTS


@leaf
def own_rows(side: Side) -> tuple[int, int]:
    """Return first and last (excluded) row whose ratings this worker holds."""
    low, high = own_parts(side)
    return part_start(side, low), part_start(side, high)


@leaf
def longest_row(side: Side, low: int, high: int) -> int:
    """Return the length of the longest row among low, …, high − 1."""
    longest = 0
    for row in range(low, high):
        longest = max(longest, side.ptr[row + 1] - side.ptr[row])
    return longest
