"""Recovery of every switch of the full model: what the prior with the switch on has planted must be found again.

Parameters come from the prior, ratings from the parameters, and the same priors are fitted to a part of the ratings,
from no features. Bars come from the posterior itself, of which the truth is one more draw under the model. On every
data set a number may lie 4 posterior standard deviations off, and a vector's correlation with its posterior mean, and
its distance from it, may be 4 standard deviations worse than those of draws. In the mean over data sets, some of which
have little to find, the data must say at least as much about a number as the prior does, a vector must be found, and
the model without the switch must lose log score on the other ratings, by 2 standard errors, where that is meaningful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import polygamma

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.evaluation.scores import log_scores
from doublefeature.inference.chain import Job, Lane, Recorder, Sweep, run_chains
from doublefeature.model.generative import base_of, draw_buffet_columns
from doublefeature.model.parameters import Parameters
from doublefeature.model.state import SCALES, Traits, members, scales_of
from doublefeature.outline import Covariates
from doublefeature.posterior.draws import Draw, Posterior, gather
from doublefeature.posterior.predict import predict_levels, score_table
from doublefeature.ratings import Ratings
from tests.correctness.tiny import draw_all, known_traits, pairs, ratings_of

SEEDS = (3, 4, 5)  # data sets of the full tier; sizes and spreads of the designs were settled on others
HYPER = (  # what `Draw.hyper` holds, as `Parameters` calls it
    "noise", "mass", "rate", "effect_sd", "item_sd", "user_sd", "grade_sd", "scale_sd", "user_grade_sd", "remainder_sd",
)  # fmt: skip
MOST_Z = 4.0
TOLD = sqrt(0.5)  # share of the prior's standard deviation that may be left: the data then say as much as the prior


class Figure(NamedTuple):
    """What was measured, and its bar, for every data set or for the mean of several."""

    value: float
    least: float = -inf
    most: float = inf
    in_mean: bool = False

    @property
    def holds(self) -> bool:
        return self.least < self.value < self.most

    def over(self, values: list[float]) -> bool:
        """Return whether the bar holds over several data sets."""
        judged = [float(np.mean(values))] if self.in_mean else values
        return all(self._replace(value=value).holds for value in judged)


Figures = dict[str, Figure]


class Fit(NamedTuple):
    """Draws of the posterior, and of how traits shift offsets, which draws do not keep."""

    posterior: Posterior
    user_slopes: np.ndarray  # (draws, traits)
    item_slopes: np.ndarray

    def each(self, read: Callable[[Draw], object]) -> np.ndarray:
        """Return something of every draw."""
        return np.array([read(draw) for draw in self.posterior])


class Trial(NamedTuple):
    """The truth, its held-out ratings (users, items, levels), and fits to the others with the switch on and off."""

    truth: Parameters
    priors: Priors
    traits: Traits
    test: tuple[np.ndarray, np.ndarray, np.ndarray]
    on: Fit
    off: Fit | None
    unrated: int


@dataclass(frozen=True)
class Switch:
    """One switch: the model with it and without it, what is measured, and how ratings are laid out."""

    name: str
    on: Priors
    off: Priors | None
    measure: Callable[[Trial], Figures]
    sizes: tuple[int, int, int] = (300, 50, 5)
    columns: tuple[int, int] = (0, 0)  # of users and of items, in the model with the switch only
    unrated: int = 0  # items at the end that have held-out ratings only
    moves: Moves | None = None
    kinds: bool = False  # two kinds of users rate different items, few of which are seen


class _Keeper(Recorder):
    """Keeps slopes of offsets beside the draws."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.slopes: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, sweep: Sweep) -> None:
        before = len(self.draws)
        super().add(sweep)
        if len(self.draws) > before:
            self.slopes.append((sweep.state.user_offset_weights.copy(), sweep.state.item_offset_weights.copy()))


def fit(ratings: Ratings, priors: Priors, schedule: Schedule, moves: Moves | None, seed: int) -> Fit:
    """Sample the posterior from no features."""
    keepers = [_Keeper(schedule) for _ in range(schedule.chains)]
    run_chains(Job(ratings, priors, schedule, moves, seed), [Lane(chain, one) for chain, one in enumerate(keepers)])
    posterior = gather(base_of(priors, ratings.n_levels), [one.draws for one in keepers], scales=scales_of(priors))
    of_users, of_items = zip(*(pair for keeper in keepers for pair in keeper.slopes), strict=True)
    return Fit(posterior, np.array(of_users), np.array(of_items))


def layout(switch: Switch, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return users and items of all ratings, and which of them are seen."""
    n_users, n_items, _ = switch.sizes
    if not switch.kinds:
        users, items = pairs(n_users, n_items, int(0.4 * n_users * n_items), int(rng.integers(2**31)))
        return users, items, (rng.random(users.size) < 0.8) & (items < n_items - switch.unrated)
    each, seen = n_items // 2, n_items // 12  # the same number for all, so that only what they rate tells
    near = (np.arange(n_items) < each) == (np.arange(n_users)[:, None] % 2)
    keys = rng.gumbel(size=near.shape) + np.where(near, log(9.0), 0.0)
    items = rng.permuted(np.argsort(-keys, axis=1)[:, :each], axis=1)
    return np.repeat(np.arange(n_users), each), items.ravel(), np.tile(np.arange(each) < seen, n_users)


def run(switch: Switch, seed: int, schedule: Schedule) -> Trial:
    """Draw a truth and ratings, and fit the model with the switch and without it."""
    rng = np.random.default_rng([seed, 20])
    sizes, priors = switch.sizes, switch.on
    users, items, seen = layout(switch, rng)
    tables = [_standard(rng, *size) for size in zip(sizes[:2], switch.columns, strict=True)]
    covariates = Covariates(*tables, *(tuple(map(str, range(count))) for count in switch.columns))
    traits = known_traits(priors, users[seen], items[seen], sizes, covariates)
    truth, levels = draw_all(priors, users, items, sizes, rng, traits)
    ratings = ratings_of(users[seen], items[seen], levels[seen], *sizes)
    on = fit(replace(ratings, covariates=covariates), priors, schedule, switch.moves, seed)
    off = None if switch.off is None else fit(ratings, switch.off, schedule, switch.moves, seed)
    return Trial(truth, priors, traits, (users[~seen], items[~seen], levels[~seen]), on, off, switch.unrated)


def _standard(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray | None:
    values = rng.standard_normal((rows, columns))
    return (values - values.mean(axis=0)) / values.std(axis=0) if columns else None


def recovered(switch: Switch, seed: int, schedule: Schedule) -> Figures:
    """Return the figures of a switch on one simulated data set."""
    return switch.measure(run(switch, seed, schedule))


def numbers(name: str, draws: np.ndarray, truth: np.ndarray | float, prior_sd: float) -> Figures:
    """Hold numbers, (draws, numbers) or (draws,), against their posterior, and that against the prior: the worst."""
    sd = np.atleast_1d(draws.std(axis=0))
    z = np.atleast_1d(truth - draws.mean(axis=0)) / sd
    worst, left = float(z[np.abs(z).argmax()]), float(sd.max() / prior_sd)
    return {f"{name} z": Figure(worst, -MOST_Z, MOST_Z), f"{name} sd/prior's": Figure(left, most=TOLD, in_mean=True)}


def vector(name: str, draws: np.ndarray, truth: np.ndarray) -> Figures:
    """Hold a vector against its posterior mean, which must be as near as it is to draws."""
    mean = draws.mean(axis=0)
    found, usual = np.array(_nearness(truth, mean)), np.array([_nearness(draw, mean) for draw in draws])
    z_r, z_rmse = (found - usual.mean(axis=0)) / usual.std(axis=0)
    return {
        f"{name} r": Figure(float(found[0]), 0.5, in_mean=True),
        f"{name} r, z": Figure(float(z_r), -MOST_Z),
        f"{name} rmse, z": Figure(float(z_rmse), most=MOST_Z),
    }


def _nearness(values: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    return float(np.corrcoef(values, mean)[0, 1]), sqrt(((values - mean) ** 2).mean())


def gain(trial: Trial, bar: float = 2.0) -> Figures:
    """Return what the switch gains in log score, in standard errors over users; of unrated items, over items."""
    first = trial.truth.item_offset.size - trial.unrated if trial.unrated else 0
    users, items, levels = (column[trial.test[1] >= first] for column in trial.test)
    on, off = (log_scores(predict_levels(one.posterior, users, items), levels) for one in (trial.on, trial.off))
    gained = on - off
    sums = np.bincount(items if trial.unrated else users, gained - gained.mean())
    z = float(gained.sum() / sqrt((sums**2).sum()))
    return {"log score gain, z": Figure(z, bar, in_mean=True)}


def hyper(trial: Trial, name: str) -> np.ndarray:
    return trial.on.each(lambda draw: draw.hyper[HYPER.index(name)])


def spread(trial: Trial, name: str) -> Figures:
    """Hold the logarithm of a learnt standard deviation against its posterior."""
    prior_sd = 0.5 * sqrt(polygamma(1, trial.priors.sd_shape))
    return numbers(f"log {name}", np.log(hyper(trial, name)), log(getattr(trial.truth, name)), prior_sd)


def scores(trial: Trial, name: str) -> Figures:
    """Scores of held-out ratings, a spread, and what they gain."""
    users, items, _ = trial.test
    posterior = trial.on.posterior
    found = vector("η", score_table(posterior, users, items), trial.truth.scores(users, items, posterior.base))
    return found | spread(trial, name) | (gain(trial) if trial.off else {})


def user_offsets(trial: Trial) -> Figures:
    found = vector("α", trial.on.each(lambda draw: draw.user_offset), trial.truth.user_offset)
    return found | spread(trial, "user_sd") | gain(trial)


def user_scales(trial: Trial) -> Figures:
    draws = np.log(trial.on.each(lambda draw: draw.hyper[0] * SCALES[draw.user_scale]))
    truth = np.log(trial.truth.noise_of(np.arange(draws.shape[1])))
    return vector("log τ_u", draws, truth) | spread(trial, "scale_sd") | gain(trial)


def cutpoints(trial: Trial) -> Figures:
    draws, truth = trial.on.each(lambda draw: draw.cutpoints[2:-2]), trial.truth.cutpoints
    prior_sd = (truth.size - 3) / sqrt(18.0)  # of either of two uniform numbers in order
    return numbers("cutpoints", draws, truth[2:-2], prior_sd) | gain(trial)


def learnt(trial: Trial) -> Figures:
    prior = trial.priors
    found = scores(trial, "effect_sd") | spread(trial, "item_sd") | spread(trial, "user_sd")
    mass = numbers("mass", hyper(trial, "mass"), trial.truth.mass, prior.mass / sqrt(prior.mass_shape))
    found["mass z"] = mass["mass z"]  # how many small features there are, ratings hardly say
    rate_sd = sqrt(prior.item_rate * (1.0 - prior.item_rate) / (prior.item_rate_weight + 1.0))
    return found | numbers("item_rate", hyper(trial, "rate"), trial.truth.rate, rate_sd)


def slopes(trial: Trial, side: str) -> Figures:
    """Slopes of the offsets of users or items on their traits, those that vary, and what they gain."""
    of_users = np.hstack([trial.traits.users, trial.traits.user_offsets])
    varied = (of_users if side == "user" else trial.traits.items).std(axis=0) > 0.0
    draws, truth = getattr(trial.on, f"{side}_slopes"), getattr(trial.truth, f"{side}_offset_weights")
    found = numbers("slopes", draws[:, varied], truth[varied], trial.priors.trait_offset_sd)
    if trial.unrated:
        draws = trial.on.each(lambda draw: draw.item_offset[-trial.unrated :])
        found |= vector("unrated ρ", draws, trial.truth.item_offset[-trial.unrated :])
    return found | gain(trial, -2.0 if trial.priors.item_choices else 2.0)  # items' own ratings say more than who rated


def remainder(trial: Trial) -> Figures:
    users, items, _ = trial.test
    draws = trial.on.each(lambda draw: (draw.user_factor[users] * draw.item_factor[items]).sum(axis=1))
    truth = (trial.truth.user_factor[users] * trial.truth.item_factor[items]).sum(axis=1)
    return vector("u·v", draws, truth) | spread(trial, "remainder_sd") | gain(trial)


def item_buffet(trial: Trial) -> Figures:
    """Log size of item sets, features weighted by n θ², n users; the other prior of items must not predict better."""

    def size(n_users: np.ndarray, n_items: np.ndarray, effect: np.ndarray) -> float:
        weights = n_users * effect**2
        return log((weights @ n_items + 1e-9) / (weights.sum() + 1e-9))

    def drawn(draw: Draw) -> float:
        inside = (members(words, np.arange(draw.n_features)) for words in (draw.user_words, draw.item_words))
        return size(*(matrix.sum(axis=0) for matrix in inside), draw.effect)

    truth, rng = trial.truth, np.random.default_rng(0)
    users, shape = truth.user_members.sum(axis=0), truth.item_members.shape
    alike = [size(users, draw_buffet_columns(*shape, rng).sum(axis=0), truth.effect) for _ in range(200)]
    right = size(users, truth.item_members.sum(axis=0), truth.effect)
    return numbers("log size", trial.on.each(drawn), right, float(np.std(alike))) | gain(trial, bar=-2.0)


PLAIN = Priors(mass=2.0, item_offset_sd=0.7, effect_sd=1.0)
DENSE = replace(PLAIN, item_rate=0.4)
MANY = replace(PLAIN, mass=6.0, mass_shape=6.0, item_rate=0.3, effect_sd=1.5)
GRADED = replace(PLAIN, mass=1.5, graded=True)
SCALED = replace(GRADED, user_scales=True, user_scale_sd=0.4, sd_shape=6.0, learn=("user_scale_sd",))
STRONG = replace(GRADED, mass=3.0, item_rate=0.4, effect_sd=1.5)
HELD = replace(STRONG, user_grades=True, user_grade_sd=0.8, learn=("user_grade_sd",))
EVEN = replace(GRADED, effect_sd=0.4, item_offset_sd=0.3, trait_offset_sd=0.5)
OFFSETS = replace(GRADED, user_offsets=True, user_offset_sd=0.3, trait_offset_sd=0.8)
CHOICES = replace(OFFSETS, choices=1, choice_sd=0.7, item_offset_sd=0.3)
SAME = Moves(collapsed_singletons=0.0, offset_flips=0.0)  # what both priors of items have
LEARNT = ("mass", "item_rate", "effect_sd", "item_offset_sd", "user_offset_sd")


def _on(priors: Priors, learn: str | tuple[str, ...] = (), **changes: object) -> Priors:
    return replace(priors, learn=(learn,) if isinstance(learn, str) else learn, **changes)


SWITCHES = (
    Switch("graded items", _on(DENSE, "grade_sd", grade_sd=0.8, graded=True), DENSE, partial(scores, name="grade_sd")),
    Switch("user grades", HELD, STRONG, partial(scores, name="user_grade_sd"), (300, 80, 5)),
    Switch("user offsets", _on(PLAIN, "user_offset_sd", user_offsets=True), PLAIN, user_offsets),
    Switch("user scales", SCALED, GRADED, user_scales),
    Switch("free cutpoints", _on(GRADED, free_cutpoints=True), GRADED, cutpoints),
    Switch("learnt spreads", _on(MANY, LEARNT, user_offsets=True), None, learnt),
    Switch("item columns", EVEN, EVEN, partial(slopes, side="item"), (200, 100, 5), columns=(0, 6), unrated=40),
    Switch("user columns", OFFSETS, OFFSETS, partial(slopes, side="user"), columns=(4, 0)),
    Switch("choices", CHOICES, replace(CHOICES, choices=0), partial(slopes, side="user"), kinds=True),
    Switch("item choices", _on(CHOICES, item_choices=True), CHOICES, partial(slopes, side="item"), kinds=True),
    Switch("remainder", _on(GRADED, "remainder_sd", remainder=2, remainder_sd=0.7), GRADED, remainder),
    Switch("item buffet", _on(PLAIN, item_prior="ibp"), PLAIN, item_buffet, moves=SAME),
)
BY_NAME = {switch.name: switch for switch in SWITCHES}


def schedule_of(effort: float) -> Schedule:
    """Return the schedule of a fit."""
    half = max(40, int(400 * effort))
    return Schedule(sweeps=2 * half, warmup=half, thin=4, chains=3, threads=1)


def switch_bar(name: str, effort: float) -> tuple[str, str, bool]:
    """Return what a switch's bar is called, its figures on three data sets, and whether all hold."""
    found = [recovered(BY_NAME[name], seed, schedule_of(effort)) for seed in SEEDS]
    values = {key: [one[key].value for one in found] for key in found[0]}
    held = {key: figure.over(values[key]) for key, figure in found[0].items()}
    figure = "; ".join(
        f"{key} {' '.join(f'{value:.2f}' for value in values[key])}{'' if held[key] else ' !'}" for key in held
    )
    return f"C7 recovery, {name}", figure, all(held.values())
