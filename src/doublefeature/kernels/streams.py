"""Random numbers by counter: what is drawn depends on where it is used, never on what was drawn before.

The Philox4x32-10 bijection (Salmon, Moraes, Dror & Shaw, 2011) of a counter made of the sweep, the block, a step
inside the block and the entity (user, item, …), under a key made of seed and chain, gives 128 bits. They start a
SplitMix stream (Steele, Lea & Flood, 2014), one half as its state and one as its odd step, so that draw n of an
entity is a fixed function of state + n · step. Threads, shards and interruptions therefore cannot change a result,
and resuming needs no state. Philox alone for every draw would cost five times as much.

A stream is a small array that holds one state and step; `seek` points it at an entity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import inlined, kernel, leaf
from doublefeature.kernels.bits import count_bits

Stream = NDArray[np.uint64]

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_8 = np.uint64(8)
_1 = np.uint64(1)
_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_12 = np.uint64(12)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TO_UNIT = 1.0 / 4503599627370496.0

_STATE, _STEP = range(2)
_FEWEST_CHANGES = 24

(
    ORDER,
    USER_RATES,
    USER_FLIPS,
    PRIOR_SINGLETONS,
    COLLAPSED_SINGLETONS,
    ITEM_FLIPS,
    OFFSET_FLIPS,
    FEATURE_MOVES,
    LAUNCH_USERS,
    LAUNCH_ITEMS,
    COMPLEMENTS,
    EFFECTS,
    NOISE_SCALE,
    LATENT,
    GAUSSIAN,
    OFFSETS,
    HYPER,
    COLUMN,
    GRADES,
    USER_SCALES,
    CUTPOINTS,
    TRAITS,
    USER_GRADES,
    REMAINDER,
) = range(24)
"""Block numbers: every use of randomness in a sweep has its own."""


@inlined
def _mix(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@leaf
def stream_key(seed: int, chain: int) -> np.uint64:
    """Return the key of a chain: seed and chain scrambled into 64 bits."""
    return _mix(_mix(np.uint64(seed) + _GOLDEN) + _GOLDEN * (np.uint64(chain) + _1))


@leaf
def tick(sweep: int, block: int, step: int) -> np.uint64:
    """Return the part of the counter that names a place in the run: sweep, block, step (below 2^24)."""
    return (np.uint64(sweep) << _32) | (np.uint64(step) << _8) | np.uint64(block)


@kernel
def new_stream() -> Stream:
    """Return a stream that points nowhere yet."""
    return np.zeros(2, np.uint64)


@leaf
def philox(key: np.uint64, low: np.uint64, high: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return 128 random bits, low half first, for a 128-bit counter under a key (Philox4x32-10)."""
    c0 = low & _LOW
    c1 = low >> _32
    c2 = high & _LOW
    c3 = high >> _32
    k0 = key & _LOW
    k1 = key >> _32
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return (c1 << _32) | c0, (c3 << _32) | c2


@leaf
def odd_step(bits: np.uint64) -> np.uint64:
    """Return an odd number whose binary digits change often enough to step a stream by (Steele et al., 2014)."""
    step = bits | _1
    if count_bits(step ^ (step >> _1)) < _FEWEST_CHANGES:
        step ^= np.uint64(0xAAAAAAAAAAAAAAAA)
    return step


@leaf
def seek(stream: Stream, key: np.uint64, place: np.uint64, entity: int) -> None:
    """Point a stream at the first draw of an entity at a place (see `tick`)."""
    state, step = philox(key, np.uint64(entity) << _32, place)
    stream[_STATE] = state
    stream[_STEP] = odd_step(step)


@kernel
def seeds_of(n_entities: int, key: np.uint64, place: np.uint64) -> NDArray[np.uint64]:
    """Return (entities, 2) states and steps that `seek` would give entities 0, 1, …, to be branched from."""
    seeds = np.empty((n_entities, 2), np.uint64)
    for entity in range(n_entities):
        seek(seeds[entity], key, place, entity)
    return seeds


@inlined
def branch(stream: Stream, seeds: NDArray[np.uint64], entity: int, twig: int) -> None:
    """Point a stream at the first draw of a pair: an entity, and a twig of its.

    Twigs start an odd number apart that has nothing to do with the entity's random step.
    """
    e = np.uint64(entity)
    stream[_STATE] = seeds[e, _STATE] + _GOLDEN * (np.uint64(twig) + _1)
    stream[_STEP] = seeds[e, _STEP]


@inlined
def random_bits(stream: Stream) -> np.uint64:
    """Return 64 random bits."""
    stream[_STATE] += stream[_STEP]
    return _mix(stream[_STATE])


@inlined
def to_unit(bits: np.uint64) -> float:
    """Return the number strictly between 0 and 1 that 64 bits stand for."""
    return (np.float64(bits >> _12) + 0.5) * _TO_UNIT


@inlined
def uniform(stream: Stream) -> float:
    """Return a uniform number strictly between 0 and 1."""
    return to_unit(random_bits(stream))


@leaf
def below(stream: Stream, limit: int) -> int:
    """Return an integer uniform on 0, …, limit − 1 (limit far below 2^53)."""
    return min(int(uniform(stream) * limit), limit - 1)


@leaf
def shuffle(stream: Stream, values: NDArray[np.int64]) -> None:
    """Put the values into a uniformly random order."""
    for j in range(values.size - 1, 0, -1):
        other = below(stream, j + 1)
        values[j], values[other] = values[other], values[j]
