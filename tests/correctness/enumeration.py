"""Exact posterior of a tiny model by listing every configuration, and chains that must match it.

Three users, two items, effects −1.2 or 1.6, offsets and noise fixed: a feature is one of 7 × 4 × 2 = 56 kinds.
The number of features of each kind is an independent Poisson variable before the data, so all multisets of up
to six features (61 million) are summed; at mass 0.35 the rest has no weight that shows.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from doublefeature._jit import kernel
from doublefeature.config import Moves, Priors
from doublefeature.kernels.bits import active_slots, has_bit
from doublefeature.kernels.features import update_features
from doublefeature.kernels.likelihood import log_probability
from doublefeature.kernels.memberships import update_items, update_users_parallel, update_users_serial
from doublefeature.kernels.renewal import update_prior_singletons
from doublefeature.kernels.scene import Scene, with_state
from doublefeature.kernels.scores import score_of
from doublefeature.kernels.singletons import update_collapsed_singletons
from doublefeature.kernels.sweep import build_scene
from doublefeature.model.ordinal import level_cutpoints, level_log_probability
from doublefeature.model.state import empty_state
from tests.correctness.geweke import at_sweep
from tests.correctness.tiny import batch_z, ratings_of

USERS, ITEMS, LEVELS = 3, 2, 5
EFFECTS = np.array([-1.2, 1.6])
OFFSETS = np.array([0.3, -0.4])
NOISE, MASS, RATE = 0.8, 0.35, 0.3
OBSERVED = ((0, 0, 4), (0, 1, 2), (1, 0, 4), (1, 1, 0), (2, 1, 3))
HELD_OUT = (2, 0)
MOST = 6
BATCHES = 100
FUNCTIONALS = ("P(K=0)", "P(K=1)", "P(K=2)", "P(K=3)", "P(K=4)", "P(K=5)", "E K", "shared", "A=B=1") + tuple(
    f"P(r={level})" for level in range(1, LEVELS + 1)
)


@kernel
def sum_over_multisets(
    intensity: np.ndarray,
    touches: np.ndarray,
    sign: np.ndarray,
    likelihood: np.ndarray,
    predictive: np.ndarray,
) -> np.ndarray:
    """Sum weights × functionals over all multisets, depth first, kinds in non-decreasing order."""
    out = np.zeros(15)
    kinds = np.zeros(MOST + 1, np.int64)
    weight = np.ones(MOST + 1)
    repeat = np.zeros(MOST + 1, np.int64)
    low = np.zeros((MOST + 1, USERS * ITEMS), np.int64)
    high = np.zeros((MOST + 1, USERS * ITEMS), np.int64)
    shared = np.zeros(MOST + 1, np.int64)
    inside = np.zeros(MOST + 1, np.int64)
    depth = 0
    kinds[0] = -1
    fresh = True
    while depth >= 0:
        if fresh:
            total = weight[depth]
            for c in range(likelihood.shape[0]):
                total *= likelihood[c, low[depth, c], high[depth, c]]
            out[14] += total
            if depth < 6:
                out[depth] += total
            out[6] += depth * total
            out[7] += total * (shared[depth] > 0)
            out[8] += total * (inside[depth] > 0)
            for r in range(LEVELS):
                out[9 + r] += total * predictive[r, low[depth, USERS * ITEMS - 1], high[depth, USERS * ITEMS - 1]]
            fresh = False
        if depth < MOST:
            # descend into the next kind not yet tried below this node
            nxt = kinds[depth + 1]
            if nxt < intensity.size:
                child = depth + 1
                repeat[child] = repeat[depth] + 1 if (depth > 0 and kinds[depth] == nxt) else 1
                weight[child] = weight[depth] * intensity[nxt] / repeat[child]
                for c in range(USERS * ITEMS):
                    low[child, c] = low[depth, c] + (touches[nxt, c] and sign[nxt] == 0)
                    high[child, c] = high[depth, c] + (touches[nxt, c] and sign[nxt] == 1)
                shared[child] = shared[depth] + touches[nxt, USERS * ITEMS]
                inside[child] = inside[depth] + touches[nxt, 0]
                depth = child
                if depth < MOST:
                    kinds[depth + 1] = nxt
                fresh = True
                continue
        depth -= 1
        if depth >= 0:
            kinds[depth + 1] += 1
    return out


def _cells() -> list[tuple[int, int]]:
    """The observed pairs, then the held-out one."""
    return [(u, i) for u, i, _ in OBSERVED] + [HELD_OUT]


@cache
def exact() -> np.ndarray:
    """Return the exact posterior value of the functionals."""
    cells = _cells()
    intensity, touches, sign = [], [], []
    for owners in range(1, 2**USERS):
        s = [u for u in range(USERS) if owners >> u & 1]
        mu = MASS * math.factorial(len(s) - 1) * math.factorial(USERS - len(s)) / math.factorial(USERS)
        for chosen in range(2**ITEMS):
            t = [i for i in range(ITEMS) if chosen >> i & 1]
            for e in range(EFFECTS.size):
                intensity.append(mu * RATE ** len(t) * (1 - RATE) ** (ITEMS - len(t)) / EFFECTS.size)
                touches.append([u in s and i in t for u, i in cells] + [0 in s and 1 in s])
                sign.append(e)
    counts = np.arange(MOST + 1)
    shift = counts[:, None] * EFFECTS[0] + counts[None, :] * EFFECTS[1]
    cutpoints = level_cutpoints(LEVELS)

    def table(level: int, item: int) -> np.ndarray:
        scores = LEVELS / 2 + OFFSETS[item] + shift
        return np.array([[math.exp(level_log_probability(level, x, NOISE, cutpoints)) for x in row] for row in scores])

    # the first cell must be (0, 0): functional "A=B=1" looks at it
    likelihood = np.array([table(r, i) for _, i, r in OBSERVED])
    predictive = np.array([table(r, HELD_OUT[1]) for r in range(LEVELS)])
    sums = sum_over_multisets(np.array(intensity), np.array(touches, np.int64), np.array(sign), likelihood, predictive)
    return sums[:14] / sums[14]


@kernel
def functionals(scene: Scene, out: np.ndarray) -> None:
    """Add the functionals of the current state."""
    state = scene.state
    slots = active_slots(state.active)
    if slots.size < 6:
        out[slots.size] += 1.0
    out[6] += slots.size
    shared = False
    inside = False
    for slot in slots:
        shared = shared or (has_bit(state.user_words, 0, slot) and has_bit(state.user_words, 1, slot))
        inside = inside or (has_bit(state.user_words, 0, slot) and has_bit(state.item_words, 0, slot))
    out[7] += shared
    out[8] += inside
    score = score_of(state, scene.model, HELD_OUT[0], HELD_OUT[1])
    for r in range(LEVELS):
        out[9 + r] += math.exp(log_probability(scene.like, 0, r, score))


SETS = {
    "corrected paper": (True, True, False, False),
    "parallel A": (False, True, False, False),
    "collapsed singletons": (True, False, True, False),
    "feature moves": (True, False, False, True),
    "all together": (False, True, True, True),
}


@kernel
def right_chain(scene: Scene, chosen: tuple[bool, bool, bool, bool], n_sweeps: int, out: np.ndarray) -> None:
    """Run the blocks of a kernel set; average the functionals in batches."""
    serial, prior, collapsed, moves = chosen
    per_batch = n_sweeps // out.shape[0]
    for t in range(per_batch * out.shape[0]):
        scene = at_sweep(scene, t)
        if serial:
            update_users_serial(scene)
        else:
            update_users_parallel(scene)
        if prior:
            scene = with_state(scene, update_prior_singletons(scene))
        if collapsed:
            scene = with_state(scene, update_collapsed_singletons(scene, 1.0))
        update_items(scene)
        if moves:
            scene = with_state(scene, update_features(scene, np.int64(0), np.bool_(False)))
        functionals(scene, out[t // per_batch])
    out /= per_batch


def tiny_scene(seed: int) -> Scene:
    """Return the scene of the enumerated model, without features."""
    priors = Priors(mass=MASS, item_rate=RATE, item_offsets=False, noise_scale=NOISE, effect_values=tuple(EFFECTS))
    users, items, levels = (np.array(column) for column in zip(*OBSERVED, strict=True))
    data = ratings_of(users, items, levels, USERS, ITEMS, LEVELS).arrays
    start = empty_state(priors, USERS, ITEMS, LEVELS)
    start.item_offset[:] = OFFSETS
    return build_scene(data, priors, Moves(), start, (seed, 0))


def enumeration_z(name: str, n_sweeps: int, seed: int = 3) -> np.ndarray:
    """Return the z of every functional for a kernel set."""
    batches = np.zeros((BATCHES, len(FUNCTIONALS)))
    right_chain(tiny_scene(seed), SETS[name], n_sweeps, batches)
    return batch_z(batches, exact())
