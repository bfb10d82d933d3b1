"""Where ratings lie in a team: first by user, as they came, then as slices of users and of items.

The first cut is any cut of users into as many runs as there are workers. From it every worker gets the ratings of its
own users and of its own items (see `slices.own_rows`), each straight from the worker that has them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._rows import sort_by_user
from doublefeature.inference.slices import RatingSlice, own_rows
from doublefeature.inference.teams import Desk, Team, TeamLink
from doublefeature.posterior.store import ModelFolder

IntArray = NDArray[np.int64]
RUN, SLICE = "run", "slice"
"""What a worker keeps: ratings of a run of users, and its slice."""


class Run(NamedTuple):
    """Ratings of some users that follow one another, in the order of all ratings by user."""

    item_codes: NDArray[np.uint32]
    levels: NDArray[np.uint8]


def even_cut(ptr: IntArray, size: int) -> IntArray:
    """Return rows 0, …, n at which to cut rows into so many runs of about as many ratings."""
    inner = np.searchsorted(ptr, ptr[-1] * np.arange(1, size) // size)
    return np.concatenate([[0], inner, [ptr.size - 1]]).astype(np.int64)


def place_folder(team: Team, folder: ModelFolder) -> None:
    """Give every worker its slice of the ratings in a model folder, which pass here in pieces."""
    user_ptr, file = folder.outline.user_ptr, folder.rating_file
    cut = even_cut(user_ptr, team.size)
    for rank in range(team.size):
        team.ask(rank, begin_run)
        for item_codes, levels in file.pieces(int(user_ptr[cut[rank]]), int(user_ptr[cut[rank + 1]])):
            team.ask(rank, add_to_run, item_codes, levels)
    cut_slices(team, user_ptr, folder.outline.item_ptr, cut)


def cut_slices(team: Team, user_ptr: IntArray, item_ptr: IntArray, cut: IntArray) -> None:
    """Make every worker's slice from the runs that workers hold."""
    team.together(take_slice, [(user_ptr, item_ptr, cut)] * team.size)


def begin_run(desk: Desk) -> None:
    """Forget ratings and wait for new ones."""
    desk.kept.clear()
    desk.kept[RUN] = []


def add_to_run(desk: Desk, item_codes: NDArray[np.uint32], levels: NDArray[np.uint8]) -> None:
    """Take more ratings of a run."""
    desk.kept[RUN].append(Run(item_codes, levels))


def take_slice(desk: Desk, user_ptr: IntArray, item_ptr: IntArray, cut: IntArray) -> None:
    """Trade ratings with the other workers and keep one's slice; the run is forgotten."""
    held = desk.kept.pop(RUN)
    desk.kept.clear()
    run = Run(*map(np.concatenate, zip(*held, strict=True))) if held else Run(np.empty(0, "u4"), np.empty(0, "u1"))
    of_users = _own_users(desk.link, run, user_ptr, cut)
    of_items = _own_items(desk.link, run, user_ptr, item_ptr, cut)
    desk.kept[SLICE] = RatingSlice(user_ptr.copy(), *of_users, item_ptr.copy(), *of_items)


def trade_arrays(link: TeamLink, pieces: list[NDArray[Any]]) -> NDArray[Any]:
    """Give every worker its array and return what all gave, in the order of ranks."""
    kind = pieces[0].dtype
    return np.concatenate([np.frombuffer(piece, kind) for piece in link.trade([piece.tobytes() for piece in pieces])])


def _own_users(link: TeamLink, run: Run, user_ptr: IntArray, cut: IntArray) -> Run:
    begin = user_ptr[cut[link.rank]]
    ranges = [user_ptr[list(own_rows(user_ptr, rank, link.size))] - begin for rank in range(link.size)]
    places = [slice(*np.clip(ends, 0, run.levels.size).tolist()) for ends in ranges]
    return Run(*(trade_arrays(link, [array[place] for place in places]) for array in run))


def _own_items(link: TeamLink, run: Run, user_ptr: IntArray, item_ptr: IntArray, cut: IntArray) -> Run:
    """Return raters and levels of one's items, by item and then by user."""
    low, high = cut[link.rank], cut[link.rank + 1]
    counts = np.diff(user_ptr[low : high + 1])
    users = np.repeat(np.arange(low, high, dtype=np.uint32), counts)
    rows = [own_rows(item_ptr, rank, link.size) for rank in range(link.size)]
    masks = [(run.item_codes >= first) & (run.item_codes < last) for first, last in rows]
    columns = (run.item_codes, users, run.levels)
    items, raters, levels = (trade_arrays(link, [column[mask] for mask in masks]) for column in columns)
    first, last = rows[link.rank]
    _, raters, levels = sort_by_user(items - np.uint32(first), raters, levels, last - first, user_ptr.size - 1)
    return Run(raters, levels)
