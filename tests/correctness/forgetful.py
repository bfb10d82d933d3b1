"""A bug for tests to plant: a block drawn from its prior, as if there were no ratings."""

from __future__ import annotations

from doublefeature._jit import kernel
from doublefeature.kernels.bits import active_slots, has_bit
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.streams import new_stream, seek, tick, uniform
from doublefeature.kernels.sweep import prepare
from doublefeature.kernels.variates import normal
from doublefeature.model.state import GRADE_SD, ITEM_SD, REMAINDER_SD, USER_GRADE_SD, USER_SD

NOTHING, GRADES, USER_GRADES, CUTPOINTS, REMAINDER, OFFSETS = range(6)
_FORGETTING = 202


@kernel
def forget_ratings(scene: Scene, block: int) -> None:
    """Draw a block from its prior."""
    state, hyper = scene.state, scene.state.hyper
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, _FORGETTING, 0), 0)
    for slot in active_slots(state.active):
        for item in range(state.item_effect.shape[0] * (block == GRADES)):
            if has_bit(state.item_words, item, slot):
                state.item_effect[item, slot] = state.effect[slot] + hyper[GRADE_SD] * normal(stream)
        for user in range(state.user_grade.shape[0] * (block == USER_GRADES)):
            if has_bit(state.user_words, user, slot):
                state.user_grade[user, slot] = 1.0 + hyper[USER_GRADE_SD] * normal(stream)
    if block == CUTPOINTS:
        one, two = 1.0 + 3.0 * uniform(stream), 1.0 + 3.0 * uniform(stream)
        state.cutpoints[2], state.cutpoints[3] = min(one, two), max(one, two)
    if block == REMAINDER:
        for user in range(state.user_factor.shape[0]):
            for d in range(state.user_factor.shape[1]):
                state.user_factor[user, d] = hyper[REMAINDER_SD] * normal(stream)
    if block == OFFSETS:
        for user in range(state.user_offset.size):
            state.user_offset[user] = scene.model.user_offset_mean[user] + hyper[USER_SD] * normal(stream)
        for item in range(state.item_offset.size):
            state.item_offset[item] = scene.model.item_offset_mean[item] + hyper[ITEM_SD] * normal(stream)
    prepare(scene)
