"""The paper's simulated design: can the sampler find what was planted, starting from nothing?

`recover` is the short answer, `measure` the long one. A *cell* is what is kept of one simulated data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.evaluation.scores import set_shares
from doublefeature.inference.chain import Start, run_chain, sample
from doublefeature.inference.progress import ProgressCallback
from doublefeature.model.generative import base_of, draw_levels, draw_parameters, log_prior
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.parameters import Parameters, parameters_of, state_of
from doublefeature.posterior.alignment import Metric, match, pack_members
from doublefeature.posterior.draws import Draw, Posterior, gather
from doublefeature.posterior.features import Allocation, estimate
from doublefeature.posterior.predict import predict_levels
from doublefeature.ratings import Ratings
from doublefeature.studies.factorisation import Tuned

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Codes = NDArray[np.int64]

MASSES = (0.5, 0.8, 0.95)
"""Probability that prediction sets are asked to hold."""
FROM_TRUTH = 1_000
"""Number of the chain that starts at the truth: no other chain of a study has it."""
LARGE = 5
"""Features that at least so many users and so many items hold are expected to be found."""


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


class Trial(NamedTuple):
    """A simulated data set, split at random, and the posterior given its training part."""

    design: Design
    truth: Parameters
    train: Ratings
    test: Ratings
    posterior: Posterior

    def predicted(self, part: Ratings) -> FloatArray:
        """Return the posterior probability of every level for every rating of a part."""
        users, items, _ = codes_of(part)
        return predict_levels(self.posterior, users, items)

    def oracle(self, part: Ratings) -> FloatArray:
        """Return the probability of every level under the true parameters."""
        users, items, _ = codes_of(part)
        scores = self.truth.scores(users, items, base_of(self.design.priors(), self.design.levels))
        return level_probabilities(scores, self.truth.noise, level_cutpoints(self.design.levels))


@dataclass(frozen=True)
class Cell:
    """What is kept of one data set: plain values, ready for JSON. Shares lie between 0 and 1."""

    tau: float
    seed: int
    scores: dict[str, float]
    chosen: dict[str, float]  # rank and penalty of the peer
    by_user: dict[str, dict[str, list[float | None]]]  # by measure, then by method
    coverage: dict[str, float]
    recovery: dict[str, float | None]
    ceiling: dict[str, float | None]  # the same of a chain started at the truth
    truth: dict[str, Any]  # see `Columns.to_dict`; feature k of the truth is feature k of the estimate
    estimate: dict[str, Any]
    n_features: list[list[int]]  # K after every sweep of every chain


class Columns(NamedTuple):
    """Features as columns."""

    user_members: BoolArray  # (users, K)
    item_members: BoolArray  # (items, K)
    effect: FloatArray  # (K,)

    def take(self, which: Sequence[int] | Codes) -> Columns:
        """Return some columns in the order asked for, an empty one for −1."""
        chosen = np.asarray(which, np.int64)
        there = chosen >= 0
        user_members, item_members = (
            np.zeros((members.shape[0], chosen.size), bool) for members in (self.user_members, self.item_members)
        )
        effect = np.zeros(chosen.size)
        user_members[:, there] = self.user_members[:, chosen[there]]
        item_members[:, there] = self.item_members[:, chosen[there]]
        effect[there] = self.effect[chosen[there]]
        return Columns(user_members, item_members, effect)

    def large(self) -> BoolArray:
        """Return which features at least `LARGE` users and as many items hold."""
        held: BoolArray = np.minimum(self.user_members.sum(axis=0), self.item_members.sum(axis=0)) >= LARGE
        return held

    def to_dict(self) -> dict[str, Any]:
        """Return the members of every feature and its effect as plain values."""
        users, items = (
            [np.flatnonzero(column).tolist() for column in members.T]
            for members in (self.user_members, self.item_members)
        )
        sizes = {"n_users": self.user_members.shape[0], "n_items": self.item_members.shape[0]}
        return {**sizes, "users": users, "items": items, "effect": self.effect.tolist()}


def simulate(design: Design, seed: int) -> tuple[Ratings, Parameters]:
    """Draw parameters from the prior, with τ fixed by the design, and a rating for every pair."""
    rng = np.random.default_rng(seed)
    priors = design.priors()
    parameters = draw_parameters(priors, design.users, design.items, rng, design.levels)
    parameters.noise = design.tau
    users = np.repeat(np.arange(design.users), design.items)
    items = np.tile(np.arange(design.items), design.users)
    scores = parameters.scores(users, items, base_of(priors, design.levels))
    levels = draw_levels(scores, design.tau, level_cutpoints(design.levels), rng)
    ratings = Ratings.from_codes(
        users.astype(np.uint32),
        items.astype(np.uint32),
        levels.astype(np.uint8),
        users=range(design.users),
        items=range(design.items),
        levels=range(1, design.levels + 1),
    )
    return ratings, parameters


def run_trial(
    design: Design,
    seed: int,
    schedule: Schedule,
    moves: Moves | None = None,
    progress: ProgressCallback | None = None,
    priors: Priors | None = None,
) -> Trial:
    """Simulate, hold out ratings at random, and fit the rest from no features, with the design's priors or others."""
    ratings, truth = simulate(design, seed)
    train, test = ratings.split(design.test_share, seed=seed)
    posterior = sample(train, priors or design.priors(), schedule, moves, seed=seed, progress=progress)
    return Trial(design, truth, train, test, posterior)


def recover(
    design: Design,
    seed: int,
    schedule: Schedule,
    moves: Moves | None = None,
    progress: ProgressCallback | None = None,
) -> Recovery:
    """Simulate, hold out ratings at random, fit from no features, and compare on what was held out."""
    return compare(run_trial(design, seed, schedule, moves, progress), seed)


def compare(trial: Trial, seed: int) -> Recovery:
    """Hold the posterior's predictions against the truth and trivial rules on what was held out."""
    users, items, levels = codes_of(trial.test)
    by_item, by_user = _modes(trial.train)
    return Recovery(
        seed=seed,
        oracle=accuracy(trial.oracle(trial.test), levels),
        model=accuracy(trial.predicted(trial.test), levels),
        majority=float((trial.train.level_counts.argmax() == levels).mean()),
        item_mode=float((by_item[items] == levels).mean()),
        user_mode=float((by_user[users] == levels).mean()),
        true_features=trial.truth.n_features,
        mean_features=float(trial.posterior.n_features.mean()),
    )


def measure(trial: Trial, peer: Tuned, seed: int) -> Cell:
    """Compare posterior and peer with the truth on the held-out ratings, and the features with those planted."""
    users, items, levels = codes_of(trial.test)
    labels = np.array(trial.test.levels, np.float64)
    tables = {"doublefeature": trial.predicted(trial.test), "oracle": trial.oracle(trial.test)}
    means = {name: table @ labels for name, table in tables.items()}
    means["factorisation"] = peer.model.predict(users, items)
    guesses = {name: table.argmax(axis=1) for name, table in tables.items()}
    guesses["factorisation"] = np.abs(means["factorisation"][:, None] - labels).argmin(axis=1)
    guesses["majority"] = np.full(levels.size, trial.train.level_counts.argmax())
    scores = {name: float((guess == levels).mean()) for name, guess in guesses.items()}
    scores |= {f"{name}_rmse": float(np.sqrt(((mean - labels[levels]) ** 2).mean())) for name, mean in means.items()}
    scores["train"] = accuracy(trial.predicted(trial.train), codes_of(trial.train)[2])
    given, n_users = (users, levels), trial.train.n_users
    by_user = {
        "accuracy": {name: _plain(accuracy_by_user(guesses[name], *given, n_users)) for name in means},
        "top": {name: _plain(top_accuracy_by_user(means[name], *given, n_users)) for name in means},
    }
    planted = Columns(trial.truth.user_members, trial.truth.item_members, trial.truth.effect)
    truth, guessed = align(planted, _columns(estimate(best_chain(trial))))
    ceiling = _compare_features(*align(planted, _columns(estimate(from_truth(trial, seed)))), trial.design.tau)
    return Cell(
        tau=trial.design.tau,
        seed=seed,
        scores=scores,
        chosen={"rank": peer.rank, "penalty": peer.penalty},
        by_user=by_user,
        coverage={str(mass): coverage(tables["doublefeature"], levels, mass) for mass in MASSES},
        recovery=_compare_features(truth, guessed, trial.design.tau),
        ceiling=ceiling,
        truth=truth.to_dict(),
        estimate=guessed.to_dict(),
        n_features=[trace.n_features.tolist() for trace in trial.posterior.traces],
    )


def best_chain(trial: Trial) -> Posterior:
    """Return the draws of the chain whose log joint density with the training ratings is highest on average.

    Chains stay near the mode they found. Densities hundreds apart mean that the others' modes hold next to none of
    the posterior's mass: their predictions are worth averaging, their features are not.
    """
    priors = trial.design.priors()

    def height(draws: Sequence[Draw]) -> float:
        return float(np.mean([d.log_likelihood + log_prior(parameters_of(d.to_state()), priors) for d in draws]))

    return gather(trial.posterior.base, [max(trial.posterior.chains, key=height)], scales=trial.posterior.scales)


def from_truth(trial: Trial, seed: int) -> Posterior:
    """Return draws of a chain started at the planted features: what it loses, no sampler can find."""
    schedule = Schedule(sweeps=400, warmup=100, thin=6, chains=1, threads=1)
    priors = trial.design.priors()
    start = Start(state_of(trial.truth, priors, trial.design.levels))
    stream = (seed, FROM_TRUTH)
    draws = list(run_chain(trial.train, priors, schedule, Moves(settle=0), stream=stream, start=start))
    return gather(trial.posterior.base, [draws], scales=trial.posterior.scales)


def _columns(found: Allocation) -> Columns:
    return Columns(found.user_members, found.item_members, found.effect)


def _compare_features(truth: Columns, guessed: Columns, tau: float) -> dict[str, float | None]:
    """Return sizes and agreement of aligned features. A feature is plain to see when its effect exceeds the noise."""
    large = truth.large()
    plain = large & (np.abs(truth.effect) > tau)
    agreement = share_right(truth, guessed, large), share_right(truth, guessed, plain), overlap(truth, guessed, large)
    right, right_plain, shared = _plain(np.array(agreement))
    return {
        "planted": int(truth.user_members.any(axis=0).sum()),
        "planted_large": int(large.sum()),
        "planted_plain": int(plain.sum()),
        "right_plain": right_plain,
        "found": int(guessed.user_members.any(axis=0).sum()),
        "found_large": int(guessed.large().sum()),
        "right": right,
        "overlap": shared,
    }


def _plain(values: FloatArray) -> list[float | None]:
    """Return floats for JSON, None for what is not a number."""
    return [None if np.isnan(value) else float(value) for value in values]


def codes_of(ratings: Ratings) -> tuple[Codes, Codes, Codes]:
    """Return user, item and level codes in stored order, ready to index with."""
    users, items, levels = ratings.triples()
    return users.astype(np.int64), items.astype(np.int64), levels.astype(np.int64)


def accuracy(table: FloatArray, levels: Codes) -> float:
    """Return the share of ratings whose most probable level is the one given."""
    return float((table.argmax(axis=1) == levels).mean())


def coverage(table: FloatArray, levels: Codes, mass: float) -> float:
    """Return how often a set of levels that holds exactly this mass contains the level given (see `set_shares`)."""
    return float(set_shares(table, mass)[np.arange(levels.size), levels].mean())


def accuracy_by_user(guessed: Codes, users: Codes, levels: Codes, n_users: int) -> FloatArray:
    """Return each user's share of ratings guessed right; not a number for users without any."""
    counts = np.bincount(users, minlength=n_users)
    right = np.bincount(users, weights=guessed == levels, minlength=n_users)
    return np.where(counts > 0, right / np.maximum(counts, 1), np.nan)


def top_accuracy_by_user(means: FloatArray, users: Codes, levels: Codes, n_users: int, n: int = 10) -> FloatArray:
    """Return how much of each user's top n is found among the user's ratings by ranking predicted means.

    Ratings tie, so a user has many top n: all items above some level, and enough of those at it. Of these the one
    that agrees best with the n highest predicted means counts. A user with at most n ratings is left out.
    """
    out = np.full(n_users, np.nan)
    for user in range(n_users):
        mine = np.flatnonzero(users == user)
        if mine.size <= n:
            continue
        given = levels[mine]
        border = np.sort(given)[-n]
        chosen = given[np.argsort(-means[mine], kind="stable")[:n]]
        free = n - np.count_nonzero(given > border)
        found = np.count_nonzero(chosen > border) + min(np.count_nonzero(chosen == border), free)
        out[user] = found / n
    return out


def align(truth: Columns, estimate: Columns) -> tuple[Columns, Columns]:
    """Return both with column k the same feature, empty on the side that does not have it.

    The pairing has the fewest memberships that differ in all, users and items counted alike. The truth's features
    come first, the largest (users × items) in front, then those of the estimate that have no counterpart.
    """
    n_users, n_items = truth.user_members.shape[0], truth.item_members.shape[0]
    metric = Metric(user_weight=n_users / (n_users + n_items), sign_penalty=0.0, complement=False)
    partner = match(pack_members(*estimate), pack_members(*truth), metric).partner
    order = np.argsort(-truth.user_members.sum(axis=0) * truth.item_members.sum(axis=0), kind="stable")
    found = {int(to): number for number, to in enumerate(partner) if to >= 0}
    alone = np.flatnonzero(partner < 0).tolist()
    columns = [found.get(int(k), -1) for k in order] + alone
    return truth.take([*order.tolist(), *[-1] * len(alone)]), estimate.take(columns)


def share_right(truth: Columns, estimate: Columns, which: BoolArray) -> float:
    """Return the share of memberships on which aligned features agree; not a number when there are no features."""
    same = [(one == two)[:, which] for one, two in zip(truth[:2], estimate[:2], strict=True)]
    return float(np.concatenate(same).mean()) if which.any() else float("nan")


def overlap(truth: Columns, estimate: Columns, which: BoolArray) -> float:
    """Return members in both over members in either, averaged over aligned features and over users and items."""
    ratios = []
    for one, two in ((truth.user_members, estimate.user_members), (truth.item_members, estimate.item_members)):
        both, either = (one & two).sum(axis=0)[which], (one | two).sum(axis=0)[which]
        ratios.append(both / np.maximum(either, 1))
    return float(np.concatenate(ratios).mean()) if which.any() else float("nan")


def _modes(train: Ratings) -> tuple[Codes, Codes]:
    """Return the most frequent level of every item and of every user."""
    users, items, levels = train.triples()
    by_item = np.zeros((train.n_items, train.n_levels))
    by_user = np.zeros((train.n_users, train.n_levels))
    np.add.at(by_item, (items, levels), 1)
    np.add.at(by_user, (users, levels), 1)
    return by_item.argmax(axis=1), by_user.argmax(axis=1)
