"""Draws kept from the chains, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.model.state import State, members, state_from_parts, words_of

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
Codes = NDArray[np.int64]

ONE_SCALE: FloatArray = np.ones(1)
"""The factors of users' noise when all users have the same."""
_NO_EFFECTS: FloatArray = np.zeros(0)
_NO_FACTORS: FloatArray = np.zeros((0, 0))


class Draw(NamedTuple):
    """One stored state, its features packed into slots 0, 1, …, K − 1.

    Graded, an item's effect w in a feature is kept for its memberships only: item by item, features ascending. A user's
    grades s, where users have them, are kept likewise.
    """

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
    item_effect: FloatArray = _NO_EFFECTS  # (item memberships,) w when graded, else (0,)
    graded: bool = False  # tells the two apart where no item belongs to a feature
    user_grade: FloatArray = _NO_EFFECTS  # (user memberships,) s when users have grades, else (0,)
    user_graded: bool = False
    user_factor: FloatArray = _NO_FACTORS  # (users, rank) u of the remainder; rank 0 without
    item_factor: FloatArray = _NO_FACTORS  # (items, rank) v
    item_shares: FloatArray = _NO_EFFECTS  # (items,) of all ratings, where strange items go by them; known, not drawn

    @property
    def n_features(self) -> int:
        """K."""
        return int(self.effect.size)

    @property
    def rank(self) -> int:
        """Rank of the remainder."""
        return int(self.user_factor.shape[1])

    def effects_of(self, rows: slice | Codes = slice(None)) -> FloatArray:
        """Return what each feature adds to the scores of items, (rows, K): w, or θ when not graded; 0 outside."""
        words = self.item_words[rows]
        if self.graded:
            return spread_effects(words, member_starts(self.item_words)[:-1][rows], self.item_effect, self.n_features)
        effects: FloatArray = members(words, np.arange(self.n_features)) * self.effect
        return effects

    def grades_of(self, rows: slice | Codes = slice(None)) -> FloatArray:
        """Return how strongly users hold each feature, (rows, K): s, or 1 when they have no grades; 0 outside."""
        words = self.user_words[rows]
        if self.user_graded:
            return spread_effects(words, member_starts(self.user_words)[:-1][rows], self.user_grade, self.n_features)
        return members(words, np.arange(self.n_features)).astype(np.float64)

    def user_loads(self, rows: slice | Codes = slice(None)) -> FloatArray:
        """Return grades, and factors of the remainder beside them: (rows, K + rank)."""
        return np.hstack([self.grades_of(rows), self.user_factor[rows]]) if self.rank else self.grades_of(rows)

    def item_loads(self, rows: slice | Codes = slice(None)) -> FloatArray:
        """Return effects, and factors of the remainder beside them: features' part of scores is user @ item loads."""
        return np.hstack([self.effects_of(rows), self.item_factor[rows]]) if self.rank else self.effects_of(rows)

    def to_state(self) -> State:
        """Return the state to go on from; weights of users' traits are not kept, and start anew."""
        slots = np.arange(self.n_features)
        start = State(
            user_words=self.user_words,
            item_words=self.item_words,
            active=np.zeros(0, np.uint8),
            effect=np.zeros(0),
            item_effect=np.zeros((0, 0)),
            user_grade=np.zeros((0, 0)),
            item_rate=np.zeros(0),
            item_offset=self.item_offset,
            user_offset=self.user_offset,
            user_scale=self.user_scale,
            cutpoints=self.cutpoints,
            user_weights=np.zeros((0, 0)),
            item_weights=np.zeros((0, 0)),
            user_offset_weights=np.zeros(0),
            item_offset_weights=np.zeros(0),
            user_factor=self.user_factor if self.rank else np.zeros((self.user_offset.size, 0)),
            item_factor=self.item_factor if self.rank else np.zeros((self.item_offset.size, 0)),
            hyper=self.hyper,
        )
        inside = members(self.user_words, slots), members(self.item_words, slots)
        effects = self.effects_of() if self.graded else None
        grades = self.grades_of() if self.user_graded else None
        return state_from_parts(start, *inside, self.effect, self.item_rate, effects, grades)


def member_starts(words: WordArray) -> Codes:
    """Return where each row's memberships begin when they are put end to end, and where the last ends: (rows + 1,)."""
    starts = np.zeros(words.shape[0] + 1, np.int64)
    np.cumsum(np.bitwise_count(words).sum(axis=1, dtype=np.int64), out=starts[1:])
    return starts


def spread_effects(words: WordArray, first: Codes, packed: FloatArray, n_features: int) -> FloatArray:
    """Return (rows, K) effects, those of a row packed from its place `first` on; zero outside its features."""
    inside = members(words, np.arange(n_features))
    counts = inside.sum(axis=1)
    before = np.cumsum(counts) - counts
    spread = np.zeros(inside.shape)
    spread[inside] = packed[np.repeat(first - before, counts) + np.arange(counts.sum())]
    return spread


def draw_of(state: State, chain: int, sweep: int, log_likelihood: float) -> Draw:
    """Return a draw that shares no memory with the state."""
    slots = np.flatnonzero(state.active)
    n_words = max(1, -(-slots.size // 64))
    graded, user_graded = state.item_effect.shape[0] > 0, state.user_grade.shape[0] > 0
    user_members, item_members = members(state.user_words, slots), members(state.item_words, slots)
    return Draw(
        chain=chain,
        sweep=sweep,
        log_likelihood=log_likelihood,
        user_words=words_of(user_members, n_words),
        item_words=words_of(item_members, n_words),
        effect=state.effect[slots].copy(),
        item_rate=state.item_rate[slots].copy(),
        item_offset=state.item_offset.copy(),
        user_offset=state.user_offset.copy(),
        user_scale=state.user_scale.copy(),
        cutpoints=state.cutpoints.copy(),
        hyper=state.hyper.copy(),
        item_effect=state.item_effect[:, slots][item_members] if graded else np.zeros(0),
        graded=graded,
        user_grade=state.user_grade[:, slots][user_members] if user_graded else np.zeros(0),
        user_graded=user_graded,
        user_factor=state.user_factor.copy() if state.user_factor.shape[1] else _NO_FACTORS,
        item_factor=state.item_factor.copy() if state.item_factor.shape[1] else _NO_FACTORS,
    )


class Trace(NamedTuple):
    """One chain, sweep by sweep, warm-up included: what convergence is judged by."""

    chain: int
    log_likelihood: FloatArray  # (sweeps,)
    n_features: NDArray[np.int64]  # (sweeps,)
    hyper: FloatArray  # (sweeps, 10)  see `doublefeature.model.state.NOISE` and its neighbours
    tally: NDArray[np.int64]  # (moves, 2)  tries and acceptances of the moves named in `move_names`
    move_names: tuple[str, ...]


@dataclass
class Posterior:
    """The draws of all chains, in order of chain and sweep, and the base score b0 they share.

    `scales` are the factors of τ that `Draw.user_scale` points into.
    """

    base: float
    draws: list[Draw] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    scales: FloatArray = field(default_factory=ONE_SCALE.copy)

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
    def graded(self) -> bool:
        """Whether items have effects of their own in their features."""
        return any(draw.graded for draw in self.draws)

    @property
    def n_features(self) -> NDArray[np.int64]:
        """K of every draw."""
        return np.array([draw.n_features for draw in self.draws])

    @property
    def noise(self) -> FloatArray:
        """τ of every draw."""
        return np.array([draw.hyper[0] for draw in self.draws])


def gather(
    base: float, chains: Sequence[Sequence[Draw]], traces: Sequence[Trace] = (), scales: FloatArray = ONE_SCALE
) -> Posterior:
    """Return the draws of several chains as one posterior."""
    return Posterior(base, [draw for chain in chains for draw in chain], list(traces), scales.copy())


def with_item_shares(posterior: Posterior, item_ptr: Codes) -> Posterior:
    """Return the draws with each item's share of the ratings, by which strange items are drawn."""
    shares = np.diff(item_ptr) / max(int(item_ptr[-1]), 1)
    return replace(posterior, draws=[draw._replace(item_shares=shares) for draw in posterior])
