"""One chain run by several workers, each of which holds the ratings of some users and of some items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.inference.chain import Start, Sweep
from doublefeature.inference.links import Link
from doublefeature.inference.progress import ProgressCallback
from doublefeature.model.state import Traits
from doublefeature.ratings import NO_COVARIATES, Covariates


class RatingSlice(NamedTuple):
    """The ratings one worker holds: of its users, and of its items. Row pointers are those of all rows.

    Which rows are its own follows from the pointers, its rank and the number of workers (see `own_rows`).
    """

    user_ptr: NDArray[np.int64]  # (n_users + 1,) of all users
    item_codes: NDArray[np.uint32]  # rated items of its users, ascending within a user
    user_levels: NDArray[np.uint8]  # level codes, in the order of item_codes
    item_ptr: NDArray[np.int64]  # (n_items + 1,) of all items
    user_codes: NDArray[np.uint32]  # raters of its items, ascending within an item
    item_levels: NDArray[np.uint8]  # level codes, in the order of user_codes


def own_rows(ptr: NDArray[np.int64], rank: int, size: int) -> tuple[int, int]:
    """Return first and last (excluded) row that a worker holds, given the pointers of all rows of a side."""
    n = ptr.size - 1
    return n * rank // size, n * (rank + 1) // size


def run_slices(
    part: RatingSlice,
    link: Link,
    priors: Priors,
    schedule: Schedule,
    moves: Moves | None = None,
    *,
    n_levels: int,
    stream: tuple[int, int] = (0, 0),
    start: Start | None = None,
    progress: ProgressCallback | None = None,
    covariates: Covariates = NO_COVARIATES,
    traits: Traits | None = None,
) -> Iterator[Sweep]:
    """Run one chain with other workers and yield after every sweep: the same states as `run_sweeps` on all ratings."""
    from doublefeature.inference.chain import run_sweeps
    from doublefeature.levels import Levels
    from doublefeature.ratings import Ratings

    codes = np.concatenate([np.frombuffer(x, np.uint32) for x in link.exchange(part.item_codes.tobytes())])
    levels = np.concatenate([np.frombuffer(x, np.uint8) for x in link.exchange(part.user_levels.tobytes())])
    raters = np.concatenate([np.frombuffer(x, np.uint32) for x in link.exchange(part.user_codes.tobytes())])
    back = np.concatenate([np.frombuffer(x, np.uint8) for x in link.exchange(part.item_levels.tobytes())])
    users = np.repeat(np.arange(part.user_ptr.size - 1), np.diff(part.user_ptr))
    whole = Ratings.from_codes(
        users,
        codes,
        levels,
        users=range(part.user_ptr.size - 1),
        items=range(part.item_ptr.size - 1),
        levels=Levels(range(n_levels)),
    )
    assert (whole.arrays.user_codes == raters).all() and (whole.arrays.item_ptr == part.item_ptr).all()
    assert (whole.arrays.levels[whole.arrays.positions] == back).all()
    from dataclasses import replace

    whole = replace(whole, covariates=covariates)
    for sweep in run_sweeps(whole, priors, schedule, moves, stream=stream, start=start, progress=progress):
        link.exchange(b"sweep")
        yield sweep
