"""Free inner cutpoints, one after the other by slice, with the latent scores integrated out.

The first and the last inner cutpoint are fixed: they set place and unit of the score axis. Given the latent scores a
cutpoint could hardly move, so these are never used.
"""

from __future__ import annotations

import math

from doublefeature._jit import kernel
from doublefeature.kernels.likelihood import refresh
from doublefeature.kernels.scene import Scene, rating_count
from doublefeature.kernels.scores import try_cutpoint
from doublefeature.kernels.streams import CUTPOINTS, new_stream, seek, tick, uniform
from doublefeature.kernels.variates import exponential

_MOST_SHRINKS = 200


@kernel
def cutpoint_log_target(scene: Scene, place: int, cutpoint: float) -> float:
    """Return the log likelihood with one cutpoint put here, where it is left, up to a constant."""
    scene.state.cutpoints[place] = cutpoint
    return try_cutpoint(scene, place)


@kernel
def update_cutpoints(scene: Scene) -> None:
    """Update every free cutpoint by a slice between its neighbours, stepping out and shrinking (Neal, 2003)."""
    cutpoints = scene.state.cutpoints
    stream = new_stream()
    for place in range(2, cutpoints.size - 2):
        seek(stream, scene.key, tick(scene.sweep, CUTPOINTS, 0), place)
        floor, ceiling = cutpoints[place - 1], cutpoints[place + 1]
        width = 5.0 * scene.state.hyper[0] / math.sqrt(10.0 + rating_count(scene.users))
        here = cutpoints[place]
        bar = cutpoint_log_target(scene, place, here) - exponential(stream)
        low = here - width * uniform(stream)
        high = low + width
        while low > floor and cutpoint_log_target(scene, place, low) > bar:
            low -= width
        while high < ceiling and cutpoint_log_target(scene, place, high) > bar:
            high += width
        low, high = max(low, floor), min(high, ceiling)
        moved = False
        for _ in range(_MOST_SHRINKS):
            there = low + (high - low) * uniform(stream)
            if floor < there < ceiling and cutpoint_log_target(scene, place, there) > bar:
                moved = True
                break
            if there < here:
                low = there
            else:
                high = there
        if not moved:
            cutpoint_log_target(scene, place, here)
    refresh(scene.like, scene.state, scene.model)
