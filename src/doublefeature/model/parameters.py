"""Everything the model does not observe as plain matrices, from a sampler's state and back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Priors
from doublefeature.model.state import (
    EFFECT_SD,
    GRADE_SD,
    ITEM_SD,
    MASS,
    NOISE,
    RATE,
    REMAINDER_SD,
    SCALE_SD,
    SCALES,
    USER_GRADE_SD,
    USER_SD,
    State,
    empty_state,
    members,
    state_from_parts,
)

FloatArray = NDArray[np.float64]
BoolMatrix = NDArray[np.bool_]
Codes = NDArray[np.int64]


@dataclass
class Parameters:
    """Everything the model does not observe, as plain matrices."""

    user_members: BoolMatrix  # (users, K)
    item_members: BoolMatrix  # (items, K)
    effect: FloatArray  # (K,)
    item_rate: FloatArray  # (K,)
    item_offset: FloatArray  # (items,)
    user_offset: FloatArray  # (users,)
    noise: float
    mass: float
    rate: float
    effect_sd: float
    item_sd: float
    user_sd: float
    grade_sd: float
    scale_sd: float
    item_effect: FloatArray | None  # (items, K) where features are graded
    user_scale: NDArray[np.uint8]  # (users,)
    scales: FloatArray  # (scales,) what `user_scale` points into
    cutpoints: FloatArray  # (levels + 1,)
    remainder_sd: float = 1.0
    user_factor: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))  # (users, rank)
    item_factor: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))  # (items, rank)
    user_grade_sd: float = 1.0
    user_grade: FloatArray | None = None  # (users, K) where users hold features more or less strongly
    user_weights: FloatArray | None = None  # (K, 1 + traits) users' log odds where traits shift them
    item_weights: FloatArray | None = None  # (K, 1 + traits) items' log odds where traits shift them
    user_offset_weights: FloatArray = field(default_factory=lambda: np.zeros(0))  # (traits,)
    item_offset_weights: FloatArray = field(default_factory=lambda: np.zeros(0))  # (traits,)

    @property
    def n_features(self) -> int:
        """K."""
        return self.effect.size

    def scores(self, users: Codes, items: Codes, base: float) -> FloatArray:
        """Return η for pairs."""
        shared = self.user_members[users] & self.item_members[items]
        effects = self.effect if self.item_effect is None else self.item_effect[items]
        if self.user_grade is not None:
            effects = effects * self.user_grade[users]
        scores: FloatArray = base + self.item_offset[items] + self.user_offset[users] + (shared * effects).sum(axis=1)
        if self.user_factor.size:
            scores += (self.user_factor[users] * self.item_factor[items]).sum(axis=1)
        return scores

    def noise_of(self, users: Codes) -> FloatArray:
        """Return the noise scale of each user."""
        noise: FloatArray = self.noise * self.scales[self.user_scale[users]]
        return noise


def parameters_of(state: State, scaled: bool = False) -> Parameters:
    """Return a state's contents as plain matrices. `scaled`: users have noise scales of their own."""
    slots = np.flatnonzero(state.active)
    return Parameters(
        user_members=members(state.user_words, slots),
        item_members=members(state.item_words, slots),
        effect=state.effect[slots].copy(),
        item_rate=state.item_rate[slots].copy(),
        item_offset=state.item_offset.copy(),
        user_offset=state.user_offset.copy(),
        noise=float(state.hyper[NOISE]),
        mass=float(state.hyper[MASS]),
        rate=float(state.hyper[RATE]),
        effect_sd=float(state.hyper[EFFECT_SD]),
        item_sd=float(state.hyper[ITEM_SD]),
        user_sd=float(state.hyper[USER_SD]),
        grade_sd=float(state.hyper[GRADE_SD]),
        scale_sd=float(state.hyper[SCALE_SD]),
        item_effect=state.item_effect[:, slots].copy() if state.item_effect.shape[0] else None,
        remainder_sd=float(state.hyper[REMAINDER_SD]),
        user_factor=state.user_factor.copy(),
        item_factor=state.item_factor.copy(),
        user_grade_sd=float(state.hyper[USER_GRADE_SD]),
        user_grade=state.user_grade[:, slots].copy() if state.user_grade.shape[0] else None,
        user_scale=state.user_scale.copy(),
        scales=SCALES.copy() if scaled else np.ones(1),
        cutpoints=state.cutpoints.copy(),
        user_weights=state.user_weights[slots] if state.user_weights.shape[1] else None,
        item_weights=state.item_weights[slots] if state.item_weights.shape[1] else None,
        user_offset_weights=state.user_offset_weights.copy(),
        item_offset_weights=state.item_offset_weights.copy(),
    )


def state_of(parameters: Parameters, priors: Priors, n_levels: int) -> State:
    """Return the state that holds these parameters."""
    p = parameters
    start = empty_state(priors, p.user_offset.size, p.item_offset.size, n_levels)
    spreads = (p.effect_sd, p.item_sd, p.user_sd, p.grade_sd, p.scale_sd, p.user_grade_sd, p.remainder_sd)
    start.hyper[:] = (p.noise, p.mass, p.rate, *spreads)
    start.item_offset[:] = p.item_offset
    start.user_offset[:] = p.user_offset
    start.user_scale[:] = p.user_scale
    start.cutpoints[:] = p.cutpoints
    if p.user_factor.size:
        start = start._replace(user_factor=p.user_factor.copy(), item_factor=p.item_factor.copy())
    offset_weights = p.user_offset_weights.copy(), p.item_offset_weights.copy()
    start = start._replace(user_offset_weights=offset_weights[0], item_offset_weights=offset_weights[1])
    features = (p.user_members, p.item_members, p.effect, p.item_rate)
    return state_from_parts(start, *features, p.item_effect, p.user_grade, p.user_weights, p.item_weights)
