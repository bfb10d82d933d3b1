"""One chain run by several workers, each of which holds the ratings of some users and of some items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_seed
from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import SettingsError
from doublefeature.inference.chain import Start, Sweep, check_start, sweep_through
from doublefeature.inference.links import Gate, Link
from doublefeature.inference.progress import Progress, ProgressCallback
from doublefeature.kernels.scene import Side
from doublefeature.kernels.scene import own_rows as own_rows_of
from doublefeature.kernels.sweep import scene_of_sides
from doublefeature.model.choices import Choices, times, traits_from
from doublefeature.model.state import Traits, empty_state
from doublefeature.ratings import NO_COVARIATES, Covariates, RatingArrays

FloatArray = NDArray[np.float64]
Arrays = TypeVar("Arrays", "RatingSlice", Traits)


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
    none = np.empty(0, np.uint32)
    ptr = np.require(ptr, requirements=["C", "W"])
    side = Side(ptr, ptr, none, none, np.empty(0, np.uint8), np.empty(0), np.empty(0), True, 0, rank, size)
    low, high = own_rows_of(side)
    return int(low), int(high)


def cut_slice(arrays: RatingArrays, rank: int, size: int) -> RatingSlice:
    """Return one worker's slice of ratings that are all here."""
    by_user = slice(*arrays.user_ptr[list(own_rows(arrays.user_ptr, rank, size))])
    by_item = slice(*arrays.item_ptr[list(own_rows(arrays.item_ptr, rank, size))])
    return RatingSlice(
        arrays.user_ptr,
        arrays.item_codes[by_user].copy(),
        arrays.levels[by_user].copy(),
        arrays.item_ptr,
        arrays.user_codes[by_item].copy(),
        arrays.levels[arrays.positions[by_item]],
    )


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
    """Run one chain with other workers and yield after every sweep: the same states as `run_sweeps` on all ratings.

    All workers call it with the same arguments but for `part` and `link`, and have to stop after the same sweep.
    Raises what the link raised, after the sweep in which it happened.
    """
    moves = moves or Moves()
    if moves.user_scan == "serial" and link.size > 1:
        raise SettingsError("several workers scan users at once: user_scan must be 'parallel'.")
    n_users, n_items = part.user_ptr.size - 1, part.item_ptr.size - 1
    begin = start or Start(empty_state(priors, n_users, n_items, n_levels))
    check_start(begin, (n_users, n_items, n_levels))
    traits = _for_kernels(traits or shared_traits(part, link, priors, covariates))
    gate = Gate(link)
    seed, chain = check_seed(stream[0]), check_seed(stream[1])
    scene = scene_of_sides(_sides(part, link, gate.address), priors, moves, begin.state, (seed, chain), traits)

    def checked(news: Progress) -> None:
        gate.check()
        if progress is not None:
            progress(news)

    yield from sweep_through(scene, priors, schedule, moves, (chain, begin.sweep), checked)


def shared_traits(part: RatingSlice, link: Link, priors: Priors, covariates: Covariates = NO_COVARIATES) -> Traits:
    """Return what is known of users and items besides the ratings: for all workers what the first one finds."""
    rows = [_local(part.user_ptr, link), _local(part.item_ptr, link)]

    def by_user(right: FloatArray) -> FloatArray:
        return _joined(times(rows[0], part.item_codes, right), part.user_ptr, link)

    def by_item(left: FloatArray) -> FloatArray:
        return _joined(times(rows[1], part.user_codes, left), part.item_ptr, link)

    own = traits_from(Choices(part.user_ptr, part.item_ptr, by_user, by_item), priors, covariates)
    first = np.frombuffer(link.exchange(np.concatenate([one.ravel() for one in own]).tobytes())[0])
    ends = np.cumsum([one.size for one in own])
    return Traits(*(first[end - one.size : end].reshape(one.shape) for one, end in zip(own, ends, strict=True)))


def _joined(rows: FloatArray, ptr: NDArray[np.int64], link: Link) -> FloatArray:
    """Return rows of which every worker has filled its own."""
    low, high = own_rows(ptr, link.rank, link.size)
    found = link.exchange(rows[low:high].tobytes())
    joined: FloatArray = np.frombuffer(b"".join(found)).reshape(rows.shape)
    return joined


def _local(whole: NDArray[np.int64], link: Link) -> NDArray[np.int64]:
    """Return pointers into one worker's ratings: rows that are not its own are empty."""
    first, last = whole[list(own_rows(whole, link.rank, link.size))]
    local: NDArray[np.int64] = np.clip(whole - first, 0, last - first)
    return local


def _for_kernels(arrays: Arrays) -> Arrays:
    """Return arrays of the types kernels are compiled for: those that came as bytes may not be written to."""
    return type(arrays)(*(np.require(one, requirements=["C", "W"]) for one in arrays))  # type: ignore[arg-type]


def _sides(part: RatingSlice, link: Link, address: int) -> tuple[Side, Side]:
    none, place = np.empty(0, np.uint32), (address, link.rank, link.size)
    own, apart = (np.empty(0), np.empty(0)), (np.zeros(part.user_codes.size), np.zeros(part.user_codes.size))
    users, items = _local(part.user_ptr, link), _local(part.item_ptr, link)
    part = _for_kernels(part)
    return (
        Side(users, part.user_ptr, part.item_codes, none, part.user_levels, *own, True, *place),
        Side(items, part.item_ptr, part.user_codes, none, part.item_levels, *apart, False, *place),
    )
