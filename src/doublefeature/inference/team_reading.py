"""A folder of ratings files read by a team: every worker reads some of the files, and nobody holds all ratings.

First every worker reads its files and says which ids and values it met; who asks numbers them over all files. Then
ratings go to the worker that has their user, which sorts them and takes out those that are kept out of the fit. Ids,
levels, order, duplicates and split are those of `read_ratings` and `Ratings.split` on the whole folder.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from doublefeature._delimited import display_name
from doublefeature._parts import as_ids, join_labels, part_files, ratings_of
from doublefeature._rows import MAX_RATINGS, Column, RawRows, encode, id_problem, order_ids
from doublefeature.errors import RatingsError
from doublefeature.inference.placing import IntArray, even_cut
from doublefeature.inference.reading_work import (
    HELDOUT,
    TRAIN,
    Met,
    Specimen,
    find_label,
    find_pair,
    gather_users,
    keep_out,
    piece_of,
    read_files,
    recode,
)
from doublefeature.inference.teams import Team
from doublefeature.levels import Levels, infer_levels, level_positions, number
from doublefeature.outline import Outline, StreamedRatings, row_pointers
from doublefeature.posterior.rating_file import PIECE
from doublefeature.ratings import Duplicates, drawn_at_random
from doublefeature.readers import Reading


class Parts(NamedTuple):
    """Ratings that lie with a team, by user."""

    train: Outline
    heldout: Outline | None
    cut: IntArray  # users of worker r: cut[r], …, cut[r + 1] − 1


class _Labels(NamedTuple):
    """Labels of all files, and where those that a worker met are among them."""

    labels: list[Hashable]
    places: list[NDArray[np.uint32]]


def read_parts(
    team: Team,
    folder: Path,
    reading: Reading,
    *,
    duplicates: Duplicates = "error",
    holdout: float = 0.0,
    seed: int = 0,
) -> Parts:
    """Read a folder onto a team; a share of the ratings is kept out of the fit as `Ratings.split` does it."""
    source = display_name(folder)
    met: list[Met] = team.together(
        read_files, [(files,) for files in _share_out(part_files(folder), team.size, reading)]
    )
    users, user_maps = _ids(team, met, "users", source)
    items, item_maps = _ids(team, met, "items", source)
    levels, level_maps = _levels(team, met, reading.levels, (users, items), source)
    maps = [(*own, len(users)) for own in zip(user_maps, item_maps, level_maps, strict=True)]
    counts = np.sum(team.together(recode, maps), axis=0)
    if counts.sum() > MAX_RATINGS:
        raise RatingsError(f"{source}: {counts.sum()} ratings, {MAX_RATINGS} are possible.")
    cut = even_cut(row_pointers(counts), team.size)
    found = team.together(gather_users, [(cut, len(items), duplicates)] * team.size)
    if pair := next((again for _, again in found if again is not None), None):
        labels = users[pair[0]], items[pair[1]]
        twice = [row for rank in range(team.size) for row in team.ask(rank, find_pair, pair, labels, levels)]
        _refuse(twice[:2], levels, source)
    return _split(team, (users, items, levels), np.concatenate([counts for counts, _ in found]), cut, holdout, seed)


def stream_parts(team: Team, parts: Parts) -> tuple[StreamedRatings, StreamedRatings | None]:
    """Return the ratings to be fitted and those kept out, which pass here in pieces."""
    train = StreamedRatings(parts.train, _pieces(team, TRAIN, 0), _pieces(team, TRAIN, 1))
    if parts.heldout is None:
        return train, None
    return train, StreamedRatings(parts.heldout, _pieces(team, HELDOUT, 0), _pieces(team, HELDOUT, 1))


def _pieces(team: Team, name: str, column: int) -> Iterator[bytes]:
    for rank in range(team.size):
        start = 0
        while piece := team.ask(rank, piece_of, name, column, start, PIECE):
            start += PIECE
            yield piece


def _share_out(files: list[Path], size: int, reading: Reading) -> list[list[tuple[Path, Reading]]]:
    """Give every worker files that follow one another, about as many bytes each."""
    ends = np.cumsum([max(file.stat().st_size, 1) for file in files])
    owners = ((ends - 1) * size // ends[-1]).tolist()
    return [
        [(file, reading) for file, owner in zip(files, owners, strict=True) if owner == rank] for rank in range(size)
    ]


def _ids(team: Team, met: list[Met], role: str, source: str) -> tuple[Sequence[Hashable], list[NDArray[np.uint32]]]:
    """Return all ids of a role in order, and for every worker the codes of the labels it met."""
    joined = _Labels(*join_labels([getattr(one, role) for one in met]))
    if not joined.labels:
        raise RatingsError(f"{source}: there are no ratings. At least one is needed.")
    labels = as_ids(joined.labels, any(one.texts for one in met))
    for place, label in enumerate(labels):
        if id_problem(label):
            _refuse([_find(team, joined, place, role)], None, source)
    ordered, recoded = order_ids(labels)
    return ordered, [recoded[place] for place in joined.places]


def _levels(
    team: Team, met: list[Met], declared: Levels | None, ids: tuple[Sequence[Hashable], ...], source: str
) -> tuple[Levels, list[NDArray[np.uint8]]]:
    """Return the levels, and for every worker the codes of the values it met."""
    joined = _Labels(*join_labels([one.values for one in met]))
    for place, label in enumerate(joined.labels):
        if declared is None and not np.isfinite(number(label)):
            _refuse([_with_ids(_find(team, joined, place, "values"), ids)], None, source)
    n_rows = sum(one.rows for one in met)
    levels = infer_levels(joined.labels, n_rows, source) if declared is None else declared
    positions = level_positions(joined.labels, levels)
    if (positions < 0).any():
        row = _find(team, joined, int((positions < 0).argmax()), "values")
        _refuse([_with_ids(row, ids)], levels, source)
    return levels, [positions[place].astype(np.uint8) for place in joined.places]


def _find(team: Team, joined: _Labels, place: int, role: str) -> Specimen:
    """Return the first row of all files with a label."""
    own = [(rank, np.flatnonzero(places == place)) for rank, places in enumerate(joined.places)]
    rank, codes = next((rank, codes) for rank, codes in own if codes.size)
    found: Specimen = team.ask(rank, find_label, role, int(codes[0]))
    return found


def _with_ids(row: Specimen, ids: tuple[Sequence[Hashable], ...]) -> Specimen:
    """Return a row with its ids as they are known, where it has them as they are written."""
    known = [
        int(label) if isinstance(label, str) and isinstance(table[0], int) else label
        for label, table in zip((row.user, row.item), ids, strict=True)
    ]
    return row._replace(user=known[0], item=known[1])


def _refuse(rows: list[Specimen], levels: Levels | None, source: str) -> NoReturn:
    """Raise what is wrong with some rows, in the words of who reads them all."""
    places, users, items, values = zip(*rows, strict=True)
    shown = RawRows(_plain(users), _plain(items), encode(values), source, list(places).__getitem__)
    ratings_of(shown, levels, "error")
    raise RatingsError(f"{source}, {places[0]}: this row cannot be used.")


def _plain(labels: Sequence[Hashable]) -> Column:
    return encode([label.strip() if isinstance(label, str) else label for label in labels])


def _split(
    team: Team,
    names: tuple[Sequence[Hashable], Sequence[Hashable], Levels],
    counts: IntArray,
    cut: IntArray,
    holdout: float,
    seed: int,
) -> Parts:
    """Take out what is kept out of the fit, and say how the rest lies."""
    user_ptr = row_pointers(counts)
    marks = np.zeros(int(user_ptr[-1]) if holdout else 0, bool)
    if holdout:
        marks[drawn_at_random(marks.size, holdout, seed)] = True
    own = [np.packbits(marks[user_ptr[cut[r]] : user_ptr[cut[r + 1]]]) for r in range(team.size)]
    found = team.together(keep_out, [(packed, len(names[1])) for packed in own])
    outlines = []
    for which in range(2 if holdout else 1):
        of_users = np.concatenate([counts[which][0] for counts in found])
        of_items = np.sum([counts[which][1] for counts in found], axis=0)
        outlines.append(Outline(*names, row_pointers(of_users), row_pointers(of_items)))
    return Parts(outlines[0], outlines[1] if holdout else None, cut)
