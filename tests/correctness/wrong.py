"""Wrong samplers that the enumeration must reject. Each has one defect; the rest is the library's."""

from __future__ import annotations

import math

import numpy as np

from doublefeature._jit import kernel
from doublefeature.kernels.bits import active_slots, close_slot, count_members, has_bit, with_free_slots
from doublefeature.kernels.memberships import Scan, flip_side, no_tilt, update_items, update_users_serial
from doublefeature.kernels.orders import scan_order
from doublefeature.kernels.renewal import put_fresh, try_fresh, update_prior_singletons
from doublefeature.kernels.scene import Scene, with_state
from doublefeature.kernels.scores import rebuild_scores
from doublefeature.kernels.singletons import private_slots, private_words, update_collapsed_singletons
from doublefeature.kernels.streams import ITEM_FLIPS, USER_FLIPS, new_stream, seek, tick
from doublefeature.kernels.variates import beta_logit, poisson
from doublefeature.model.state import MASS, RATE, State
from tests.correctness.enumeration import BATCHES, FUNCTIONALS, ITEMS, USERS, exact, functionals, tiny_scene
from tests.correctness.geweke import at_sweep
from tests.correctness.tiny import batch_z

(ITEMS_FOR_USERS, PRIOR_CANCELS, HALF_RATE, FROM_ZERO, LAST_ONLY, EMPTIES_DROPPED, APPENDED, CONTROL) = range(8)
WRONG = {
    "Pois(λ/n) births": ITEMS_FOR_USERS,
    "missing (1 − m/m)": PRIOR_CANCELS,
    "Bern(0.5) births": HALF_RATE,
    "B rebuilt from zero": FROM_ZERO,
    "only last singleton dropped": LAST_ONLY,
    "π with empties dropped": EMPTIES_DROPPED,
    "births at the end of the scan": APPENDED,
}
SUBTLE = "births at the end of the scan"
"""Needs some five million sweeps to stand out."""
CONTROL_NAME = "the same scan in random order"
_PLACE = 220


@kernel
def _literal_users(scene: Scene) -> None:
    """The paper's step 1 read literally: the prior cancels."""
    words = scene.state.user_words
    counts = count_members(words)
    order = scan_order(scene.state.active, scene.key, tick(scene.sweep, _PLACE, 0))
    first = np.zeros(counts.size, np.uint64)
    odds = np.zeros(counts.size)
    for user in range(USERS):
        keys = np.zeros(USERS, np.uint64)
        keys[user] = 1
        for slot in order:
            alone = counts[slot] - np.int64(has_bit(words, user, slot)) == 0
            first[slot] = np.uint64(1) if alone else np.uint64(0)
        scan = Scan(order, odds, *no_tilt(USERS), keys, first, scene.key, tick(scene.sweep, USER_FLIPS, user))
        flip_side(scene.users, scene.state, scene.like, scene.scores, scan, 1)
        counts = count_members(words)


@kernel
def _all_users_free(scene: Scene) -> None:
    """Every user flips given the rates, and features that become empty are dropped."""
    counts = count_members(scene.state.user_words)
    order = scan_order(scene.state.active, scene.key, tick(scene.sweep, _PLACE, 0))
    odds = np.zeros(counts.size)
    stream = new_stream()
    seek(stream, scene.key, tick(scene.sweep, _PLACE, 1), 0)
    for slot in order:
        odds[slot] = beta_logit(stream, float(counts[slot]), float(USERS - counts[slot] + 1))
    first = np.zeros(counts.size, np.uint64)
    scan = Scan(
        order, odds, *no_tilt(USERS), np.ones(USERS, np.uint64), first, scene.key, tick(scene.sweep, USER_FLIPS, 0)
    )
    flip_side(scene.users, scene.state, scene.like, scene.scores, scan, 1)
    counts = count_members(scene.state.user_words)
    for slot in order:
        if counts[slot] == 0:
            close_slot(scene.state, slot)


@kernel
def _items_from_zero(scene: Scene) -> None:
    """Items are drawn starting from no memberships at all."""
    scene.state.item_words[:] = np.uint64(0)
    rebuild_scores(scene)
    update_items(scene)


@kernel
def _last_singleton(scene: Scene) -> State:
    """Renewal of private features in which only the last one is taken out."""
    stream = new_stream()
    private = private_words(scene.state)
    for user in range(USERS):
        seek(stream, scene.key, tick(scene.sweep, _PLACE, 2), user)
        owned = private_slots(scene.state, private, user)
        fresh = poisson(stream, scene.state.hyper[MASS] / USERS)
        if owned.size > 0 or fresh > 0:
            last = owned[max(owned.size - 1, 0) :]
            scene = with_state(scene, with_free_slots(scene.state, fresh))
            again = stream.copy()
            if try_fresh(scene, user, last, fresh, stream):
                scene = with_state(scene, put_fresh(scene, user, last, fresh, again))
    return scene.state


@kernel
def _aged_scan(scene: Scene, age: np.ndarray, users: bool) -> None:
    """Scan one side with features in the order of their age."""
    slots = active_slots(scene.state.active)
    order = slots[np.argsort(age[slots])]
    if age[age.size - 1] == -2:
        order = scan_order(scene.state.active, scene.key, tick(scene.sweep, _PLACE, 3 + users))
    n_rows = USERS if users else ITEMS
    counts = count_members(scene.state.user_words)
    odds = np.zeros(age.size)
    first = np.zeros(age.size, np.uint64)
    if not users:
        odds[:] = math.log(scene.state.hyper[RATE]) - math.log1p(-scene.state.hyper[RATE])
        keys = np.ones(n_rows, np.uint64)
        scan = Scan(order, odds, *no_tilt(n_rows), keys, first, scene.key, tick(scene.sweep, ITEM_FLIPS, 0))
        flip_side(scene.items, scene.state, scene.like, scene.scores, scan, 1)
        return
    for user in range(USERS):
        keys = np.zeros(USERS, np.uint64)
        keys[user] = 1
        for slot in order:
            others = counts[slot] - np.int64(has_bit(scene.state.user_words, user, slot))
            first[slot] = np.uint64(1) if others == 0 else np.uint64(0)
            odds[slot] = 0.0 if others == 0 else math.log(others) - math.log(USERS - others)
        scan = Scan(order, odds, *no_tilt(USERS), keys, first, scene.key, tick(scene.sweep, USER_FLIPS, user))
        flip_side(scene.users, scene.state, scene.like, scene.scores, scan, 1)
        counts = count_members(scene.state.user_words)


@kernel
def _update_ages(scene: Scene, age: np.ndarray, clock: int) -> int:
    """Forget the age of features that are gone; new ones come after all others."""
    for slot in range(age.size):
        if scene.state.active[slot] == 0:
            age[slot] = min(age[slot], -1)
        elif age[slot] < 0:
            age[slot] = clock
            clock += 1
    return clock


@kernel
def wrong_chain(scene: Scene, defect: int, n_sweeps: int, out: np.ndarray) -> None:
    """Run a sampler with one defect; average the functionals in batches."""
    per_batch = n_sweeps // out.shape[0]
    mass = scene.state.hyper[MASS]
    rate = scene.state.hyper[RATE]
    age = np.full(scene.state.active.size, -1)
    clock = 0
    if defect == CONTROL:
        age[age.size - 1] = -2
    for t in range(per_batch * out.shape[0]):
        scene = at_sweep(scene, t)
        if defect == PRIOR_CANCELS:
            _literal_users(scene)
        elif defect == EMPTIES_DROPPED:
            _all_users_free(scene)
        elif defect >= APPENDED:
            _aged_scan(scene, age, True)
        else:
            update_users_serial(scene)
        scene.state.hyper[MASS] = mass * USERS / ITEMS if defect == ITEMS_FOR_USERS else mass
        scene.state.hyper[RATE] = 0.5 if defect == HALF_RATE else rate
        if defect >= APPENDED:
            for more in range(3):
                at = at_sweep(scene, 3 * t + more)
                scene = with_state(scene, update_collapsed_singletons(at, 1.0))
                clock = _update_ages(scene, age, clock)
        elif defect == LAST_ONLY:
            scene = with_state(scene, _last_singleton(scene))
        else:
            scene = with_state(scene, update_prior_singletons(scene))
        scene.state.hyper[MASS] = mass
        scene.state.hyper[RATE] = rate
        for slot in active_slots(scene.state.active):
            scene.state.item_rate[slot] = rate
        if defect == FROM_ZERO:
            _items_from_zero(scene)
        elif defect >= APPENDED:
            _aged_scan(scene, age, False)
        else:
            update_items(scene)
        functionals(scene, out[t // per_batch])
    out /= per_batch


def wrong_z(name: str, n_sweeps: int, seed: int = 5) -> np.ndarray:
    """Return the z of every functional for a wrong sampler."""
    batches = np.zeros((BATCHES, len(FUNCTIONALS)))
    wrong_chain(tiny_scene(seed), CONTROL if name == CONTROL_NAME else WRONG[name], n_sweeps, batches)
    return batch_z(batches, exact())
