"""The paper's simulated design: can the sampler find what was planted, starting from nothing?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.inference.chain import sample
from doublefeature.inference.progress import ProgressCallback
from doublefeature.model.generative import Parameters, base_of, draw_levels, draw_parameters
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.posterior.predict import predict_levels
from doublefeature.ratings import Ratings

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Design:
    """A simulated data set; the defaults are section 5 of the paper."""

    users: int = 100
    items: int = 150
    mass: float = 3.0
    density: float = 0.2
    effect_sd: float = 2.0
    tau: float = 0.25
    levels: int = 5
    test_share: float = 0.2

    def priors(self) -> Priors:
        """Return the priors the data are drawn from and fitted with: no item offsets, τ² around the truth."""
        return Priors(mass=self.mass, item_rate=self.density, effect_sd=self.effect_sd, item_offsets=False)


@dataclass(frozen=True)
class Recovery:
    """Share of held-out ratings predicted exactly, by the model and by what it is held against."""

    seed: int
    oracle: float  # the true parameters
    model: float
    majority: float  # the most frequent training level
    item_mode: float  # the most frequent training level of the item
    user_mode: float
    true_features: int
    mean_features: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def simulate(design: Design, seed: int) -> tuple[Ratings, Parameters]:
    """Draw parameters from the prior, with τ fixed by the design, and a rating for every pair."""
    rng = np.random.default_rng(seed)
    priors = design.priors()
    parameters = draw_parameters(priors, design.users, design.items, rng)
    parameters.noise = design.tau
    users = np.repeat(np.arange(design.users), design.items)
    items = np.tile(np.arange(design.items), design.users)
    scores = parameters.scores(users, items, base_of(priors, design.levels))
    levels = draw_levels(scores, design.tau, design.levels, rng)
    ratings = Ratings.from_codes(
        users.astype(np.uint32),
        items.astype(np.uint32),
        levels.astype(np.uint8),
        users=range(design.users),
        items=range(design.items),
        levels=range(1, design.levels + 1),
    )
    return ratings, parameters


def recover(
    design: Design,
    seed: int,
    schedule: Schedule,
    moves: Moves | None = None,
    progress: ProgressCallback | None = None,
) -> Recovery:
    """Simulate, hold out ratings at random, fit from no features, and compare on what was held out."""
    ratings, truth = simulate(design, seed)
    train, test = ratings.split(design.test_share, seed=seed)
    posterior = sample(train, design.priors(), schedule, moves, seed=seed, progress=progress)
    users, items, levels = (column.astype(np.int64) for column in test.triples())
    table = predict_levels(posterior, users, items)
    scores = truth.scores(users, items, base_of(design.priors(), design.levels))
    oracle = level_probabilities(scores, truth.noise, level_cutpoints(design.levels))
    by_item, by_user = _modes(train)
    return Recovery(
        seed=seed,
        oracle=float((oracle.argmax(axis=1) == levels).mean()),
        model=float((table.argmax(axis=1) == levels).mean()),
        majority=float((train.level_counts.argmax() == levels).mean()),
        item_mode=float((by_item[items] == levels).mean()),
        user_mode=float((by_user[users] == levels).mean()),
        true_features=truth.n_features,
        mean_features=float(posterior.n_features.mean()),
    )


def _modes(train: Ratings) -> tuple[Codes, Codes]:
    """Return the most frequent level of every item and of every user."""
    users, items, levels = train.triples()
    by_item = np.zeros((train.n_items, train.n_levels))
    by_user = np.zeros((train.n_users, train.n_levels))
    np.add.at(by_item, (items, levels), 1)
    np.add.at(by_user, (users, levels), 1)
    return by_item.argmax(axis=1), by_user.argmax(axis=1)
