"""Small random states for comparing kernels with the reference density."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import lgamma, log, log1p

import numpy as np

from doublefeature.config import Moves, Priors
from doublefeature.kernels.scene import Scene
from doublefeature.model.choices import traits_of
from doublefeature.model.generative import base_of, draw_levels, draw_parameters, log_joint, log_prior
from doublefeature.model.parameters import Parameters
from doublefeature.model.state import Traits
from tests.correctness.tiny import ratings_of, scene_of

DIRECT, TABLE = 10**9, 1
"""Numbers of ratings from which likelihoods are read off a table: never, always."""


@dataclass
class Case:
    """A small random state with ratings, seen by the kernels and by the reference."""

    priors: Priors
    parameters: Parameters
    observed: tuple[np.ndarray, np.ndarray, np.ndarray]
    n_levels: int
    scene: Scene
    rng: np.random.Generator
    traits: Traits

    def density(self, parameters: Parameters) -> float:
        """Log joint density of an unordered set of features."""
        joint = log_joint(parameters, self.priors, *self.observed, self.n_levels, self.traits)
        return joint + lgamma(parameters.n_features + 1)

    def likelihood(self, parameters: Parameters) -> float:
        joint = log_joint(parameters, self.priors, *self.observed, self.n_levels, self.traits)
        return joint - log_prior(parameters, self.priors, self.traits)

    def gain(self, users: np.ndarray, items: np.ndarray, effect: float) -> float:
        """Log likelihood gained by one more feature."""
        more = with_feature(self.parameters, users, items, effect, 0.5)
        return self.likelihood(more) - self.likelihood(self.parameters)

    @property
    def sizes(self) -> tuple[int, int]:
        return self.parameters.user_offset.size, self.parameters.item_offset.size


def random_priors(rng: np.random.Generator) -> Priors:
    values = ((), (), (), (-1.2, 1.2, 0.5), (-0.8, 0.8))[rng.integers(5)]
    priors = Priors(
        mass=rng.uniform(0.3, 1.5),
        item_rate=rng.uniform(0.2, 0.6),
        effect_sd=rng.uniform(0.5, 1.5),
        item_offsets=bool(rng.random() < 0.7),
        item_offset_sd=rng.uniform(0.4, 1.2),
        user_offsets=bool(rng.random() < 0.6),
        user_offset_sd=rng.uniform(0.3, 1.0),
        noise_rate=rng.uniform(2.0, 5.0),
        noise_scale=None if rng.random() < 0.7 else rng.uniform(0.5, 1.5),
        base=None if rng.random() < 0.5 else rng.uniform(1.0, 3.0),
        item_rate_by_feature=bool(rng.random() < 0.3),
        effect_values=values,
    )
    return priors.with_everything_learnt() if rng.random() < 0.5 else priors


def random_graded_priors(rng: np.random.Generator) -> Priors:
    """Draw priors of the full model, some switches off."""
    more = {name: bool(rng.random() < 0.6) for name in ("user_scales", "free_cutpoints", "user_grades")}
    spread = {"grade_sd": rng.uniform(0.3, 0.9), "user_scale_sd": rng.uniform(0.2, 0.5)}
    priors = replace(random_priors(rng), effect_values=(), learn=(), graded=True, **more, **spread)
    if rng.random() < 0.2:
        priors = replace(priors, item_prior="ibp", item_rate_by_feature=False)
    if rng.random() < 0.5:
        return priors
    both = bool(rng.random() < 0.6) and priors.item_prior == "bernoulli"
    sides = {"user_offsets": True, "item_offsets": both or priors.item_offsets}
    sides["item_rate_by_feature"] = priors.item_rate_by_feature and not both
    return replace(priors, choices=int(rng.integers(1, 3)), choice_sd=0.5, item_choices=both, **sides)


def random_case(
    rng: np.random.Generator,
    table_from: int = DIRECT,
    draw_priors: Callable[[np.random.Generator], Priors] = random_priors,
) -> Case:
    """Draw sizes, priors, parameters and ratings (half of the time ratings that ignore the parameters)."""
    priors = draw_priors(rng)
    n_users, n_items, n_levels = int(rng.integers(3, 8)), int(rng.integers(2, 7)), int(rng.integers(2, 7))
    chosen = np.flatnonzero(rng.random(n_users * n_items) < rng.uniform(0.3, 1.0))
    users, items = chosen // n_items, chosen % n_items
    pairs = ratings_of(users, items, np.zeros_like(users), n_users, n_items, n_levels)
    traits = traits_of(pairs.arrays, priors)
    parameters = draw_parameters(priors, n_users, n_items, rng, n_levels, traits)
    while parameters.n_features > 5:
        parameters = draw_parameters(priors, n_users, n_items, rng, n_levels, traits)
    if rng.random() < 0.5:
        scores = parameters.scores(users, items, base_of(priors, n_levels))
        levels = draw_levels(scores, parameters.noise_of(users), parameters.cutpoints, rng)
    else:
        levels = rng.integers(n_levels, size=users.size)
    observed = (users, items, levels)
    moves = Moves(table_from=table_from)
    scene = scene_of(parameters, priors, moves, observed, n_levels, (int(rng.integers(2**31)), 0))
    return Case(priors, parameters, observed, n_levels, scene, rng, traits)


def with_feature(p: Parameters, users: np.ndarray, items: np.ndarray, effect: float, rate: float) -> Parameters:
    return replace(
        p,
        user_members=np.column_stack([p.user_members, users.astype(bool)]),
        item_members=np.column_stack([p.item_members, items.astype(bool)]),
        effect=np.append(p.effect, effect),
        item_rate=np.append(p.item_rate, rate),
    )


def flipped(p: Parameters, side: str, row: int, k: int) -> Parameters:
    matrix = getattr(p, side).copy()
    matrix[row, k] ^= True
    return replace(p, **{side: matrix})


def log_odds(rate: float) -> float:
    return log(rate) - log1p(-rate)


def log_sigmoid(x: float) -> float:
    return -float(np.logaddexp(0.0, -x))


def log_beta_density(logit: float, inside: float, outside: float) -> float:
    """Log density in the rate itself, given its log odds."""
    constant = lgamma(inside + outside) - lgamma(inside) - lgamma(outside)
    return constant + (inside - 1.0) * log_sigmoid(logit) + (outside - 1.0) * log_sigmoid(-logit)
