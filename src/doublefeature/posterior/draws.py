"""Draws kept from the chains, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.model.state import State, members, state_from_parts, words_of

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]


class Draw(NamedTuple):
    """One stored state, its features packed into slots 0, 1, …, K − 1."""

    chain: int
    sweep: int
    log_likelihood: float
    user_words: WordArray  # (users, words)
    item_words: WordArray  # (items, words)
    effect: FloatArray  # (K,)
    item_rate: FloatArray  # (K,)
    item_offset: FloatArray
    user_offset: FloatArray
    user_scale: NDArray[np.uint8]
    cutpoints: FloatArray
    hyper: FloatArray

    @property
    def n_features(self) -> int:
        """K."""
        return int(self.effect.size)

    def to_state(self) -> State:
        """Return the state to go on from."""
        slots = np.arange(self.n_features)
        start = State(
            user_words=self.user_words,
            item_words=self.item_words,
            active=np.zeros(0, np.uint8),
            effect=np.zeros(0),
            item_effect=np.zeros((0, 0)),
            item_rate=np.zeros(0),
            item_offset=self.item_offset,
            user_offset=self.user_offset,
            user_scale=self.user_scale,
            cutpoints=self.cutpoints,
            hyper=self.hyper,
        )
        inside = members(self.user_words, slots), members(self.item_words, slots)
        return state_from_parts(start, *inside, self.effect, self.item_rate)


def draw_of(state: State, chain: int, sweep: int, log_likelihood: float) -> Draw:
    """Return a draw that shares no memory with the state."""
    slots = np.flatnonzero(state.active)
    n_words = max(1, -(-slots.size // 64))
    return Draw(
        chain=chain,
        sweep=sweep,
        log_likelihood=log_likelihood,
        user_words=words_of(members(state.user_words, slots), n_words),
        item_words=words_of(members(state.item_words, slots), n_words),
        effect=state.effect[slots].copy(),
        item_rate=state.item_rate[slots].copy(),
        item_offset=state.item_offset.copy(),
        user_offset=state.user_offset.copy(),
        user_scale=state.user_scale.copy(),
        cutpoints=state.cutpoints.copy(),
        hyper=state.hyper.copy(),
    )


class Trace(NamedTuple):
    """One chain, sweep by sweep, warm-up included: what convergence is judged by."""

    chain: int
    log_likelihood: FloatArray  # (sweeps,)
    n_features: NDArray[np.int64]  # (sweeps,)
    hyper: FloatArray  # (sweeps, 6)  see `doublefeature.model.state.NOISE` and its neighbours
    tally: NDArray[np.int64]  # (moves, 2)  tries and acceptances of the moves named in `move_names`
    move_names: tuple[str, ...]


@dataclass
class Posterior:
    """The draws of all chains, in order of chain and sweep, and the base score b0 they share."""

    base: float
    draws: list[Draw] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.draws)

    def __iter__(self) -> Iterator[Draw]:
        return iter(self.draws)

    @property
    def chains(self) -> list[list[Draw]]:
        """The draws of each chain, in order of the chains' numbers."""
        numbers = sorted({draw.chain for draw in self.draws})
        return [[draw for draw in self.draws if draw.chain == number] for number in numbers]

    @property
    def n_features(self) -> NDArray[np.int64]:
        """K of every draw."""
        return np.array([draw.n_features for draw in self.draws])

    @property
    def noise(self) -> FloatArray:
        """τ of every draw."""
        return np.array([draw.hyper[0] for draw in self.draws])


def gather(base: float, chains: Sequence[Sequence[Draw]], traces: Sequence[Trace] = ()) -> Posterior:
    """Return the draws of several chains as one posterior."""
    return Posterior(base, [draw for chain in chains for draw in chain], list(traces))
