"""An order of rows in which features fall into few pieces, for pictures of users × items."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

_MOST_PASSES = 50


def arrange(members: BoolArray, weights: NDArray[np.integer]) -> IntArray:
    """Return an order of rows in which features fall into few pieces, rows in no feature last.

    Rows with the same memberships stay together. A border between two kinds of rows costs the weights of the features
    that start or end there; a tour of all kinds, closed through the empty one, is shortened until no turn helps.
    """
    kinds, kind_of = np.unique(members, axis=0, return_inverse=True)
    if kinds[0].any():
        kinds, kind_of = np.concatenate([np.zeros((1, members.shape[1]), bool), kinds]), kind_of + 1
    differ = kinds[:, None, :] != kinds[None, :, :]
    tour = shortest_tour(differ @ np.maximum(weights, 1).astype(np.float64))
    rank = np.empty(tour.size, np.int64)
    rank[tour] = np.arange(tour.size)
    rank[0] = tour.size
    return np.argsort(rank[kind_of.ravel()], kind="stable")


def shortest_tour(distances: FloatArray) -> IntArray:
    """Return a short closed tour from place 0: nearest neighbours first, then stretches turned while that helps."""
    left = list(range(1, distances.shape[0]))
    tour = [0]
    while left:
        tour.append(min(left, key=lambda place: float(distances[tour[-1], place])))
        left.remove(tour[-1])
    path = np.array([*tour, 0])
    for _ in range(_MOST_PASSES):
        if not _turn_stretches(path, distances):
            break
    return path[:-1]


def _turn_stretches(path: IntArray, distances: FloatArray) -> bool:
    """Reverse, from each place on, the stretch that shortens the path most; say whether one did."""
    turned = False
    for first in range(1, path.size - 2):
        before, here = path[first - 1], path[first]
        ends, after = path[first:-1], path[first + 1 :]
        change = distances[before, ends] + distances[here, after] - distances[before, here] - distances[ends, after]
        best = int(change.argmin())
        if change[best] < -1e-9:
            path[first : first + best + 1] = path[first : first + best + 1][::-1].copy()
            turned = True
    return turned


def thin(codes: IntArray, most: int) -> IntArray:
    """Return at most so many codes, evenly spaced."""
    return np.asarray(codes[spread_evenly(codes.size, most)])


def spread_evenly(size: int, most: int) -> IntArray:
    """Return at most so many places among `size`, evenly spaced, the first and the last among them."""
    return np.linspace(0, size - 1, min(size, most)).round().astype(np.int64)
