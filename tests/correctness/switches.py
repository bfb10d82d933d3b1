"""Recovery of every switch of the full model: what is planted by the prior with the switch on must be found again.

    python -m tests.correctness.switches [--effort 1.0] [--only WORD] [--seeds 3]

Parameters come from the prior, ratings from the parameters, and the same priors are fitted to four fifths of them or
fewer. Bars come from the posterior itself: under the model the truth is one more draw of it. A single number may lie 3
posterior standard deviations off, and the data must say at least as much about it as the prior does. A vector's
correlation with its posterior mean, and its distance from it, may be 3 standard deviations worse than those of draws.
Where it is meaningful, the model without the switch must lose log score on held-out ratings, beyond 2 standard errors.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import polygamma

from doublefeature.config import Priors, Schedule
from doublefeature.evaluation.scores import log_scores
from doublefeature.inference.chain import Job, Lane, Recorder, Sweep, run_chains
from doublefeature.model.choices import traits_of
from doublefeature.model.generative import base_of, draw_buffet_columns, draw_levels, draw_parameters
from doublefeature.model.parameters import Parameters
from doublefeature.model.state import OFFSET_WEIGHT_SD, SCALES, Traits, members, scales_of
from doublefeature.outline import Covariates
from doublefeature.posterior.draws import Draw, Posterior, gather
from doublefeature.posterior.predict import predict_levels, score_table
from doublefeature.ratings import Ratings
from tests.correctness.tiny import pairs, ratings_of

Figures = dict[str, tuple[float, bool]]
"""What was measured, by a name that ends with its bar: the value, and whether it holds."""
SPREADS = ("noise", "mass", "rate", "effect_sd", "item_sd", "user_sd", "grade_sd", "scale_sd", "user_grade_sd",
           "remainder_sd")  # fmt: skip
"""Names in `Parameters` of what `Draw.hyper` holds."""
TOLD = sqrt(0.5)
"""Largest share of the prior's standard deviation that may be left: the data then say as much as the prior."""
LARGE = 0.1
"""Share of users from which a feature is large."""


class Fit(NamedTuple):
    """Draws of the posterior, and of how traits shift offsets, which draws do not keep."""

    posterior: Posterior
    user_slopes: np.ndarray  # (draws, traits)
    item_slopes: np.ndarray

    def each(self, read: Callable[[Draw], object]) -> np.ndarray:
        """Return something of every draw."""
        return np.array([read(draw) for draw in self.posterior])


class Trial(NamedTuple):
    """The truth, its held-out ratings, and fits with the switch on and off to the others."""

    truth: Parameters
    priors: Priors
    traits: Traits
    test: tuple[np.ndarray, np.ndarray, np.ndarray]
    on: Fit
    off: Fit | None


@dataclass(frozen=True)
class Switch:
    """One switch: the model with it and without it, what is measured, and how ratings are laid out."""

    name: str
    on: Priors
    off: Priors | None
    measure: Callable[[Trial], Figures]
    sizes: tuple[int, int, int] = (300, 50, 5)
    columns: tuple[int, int] = (0, 0)  # of users and of items, in the model with the switch only
    unrated: int = 0  # items at the end that only held-out ratings have
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


def fit(ratings: Ratings, priors: Priors, schedule: Schedule, seed: int) -> Fit:
    """Sample the posterior from no features."""
    keepers = [_Keeper(schedule) for _ in range(schedule.chains)]
    run_chains(Job(ratings, priors, schedule, seed=seed), [Lane(chain, one) for chain, one in enumerate(keepers)])
    base = base_of(priors, ratings.n_levels)
    posterior = gather(base, [keeper.draws for keeper in keepers], scales=scales_of(priors))
    slopes = [pair for keeper in keepers for pair in keeper.slopes]
    return Fit(posterior, np.array([pair[0] for pair in slopes]), np.array([pair[1] for pair in slopes]))


def layout(switch: Switch, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return users and items of all ratings, and which of them are seen."""
    n_users, n_items, _ = switch.sizes
    if not switch.kinds:
        users, items = pairs(n_users, n_items, int(0.4 * n_users * n_items), int(rng.integers(2**31)))
        return users, items, (rng.random(users.size) < 0.8) & (items < n_items - switch.unrated)
    each, seen = n_items // 2, n_items // 6  # the same number for all, so that only what they rate tells
    near = (np.arange(n_items) < each) == (np.arange(n_users)[:, None] % 2)
    keys = rng.gumbel(size=near.shape) + np.where(near, log(9.0), 0.0)
    items = rng.permuted(np.argsort(-keys, axis=1)[:, :each], axis=1)
    return np.repeat(np.arange(n_users), each), items.ravel(), np.tile(np.arange(each) < seen, n_users)


def run(switch: Switch, seed: int, schedule: Schedule) -> Trial:
    """Draw a truth and ratings, and fit the model with the switch and without it."""
    rng = np.random.default_rng([seed, 20])
    sizes, priors = switch.sizes, switch.on
    users, items, seen = layout(switch, rng)
    tables = [_standard(rng, *size) for size in zip(sizes, switch.columns, strict=False)]
    names = [tuple(f"column {place}" for place in range(count)) for count in switch.columns]
    covariates = Covariates(*tables, *names)
    known = users[seen], items[seen]
    traits = traits_of(ratings_of(*known, np.zeros(known[0].size), *sizes).arrays, priors, covariates)
    truth = draw_parameters(priors, *sizes[:2], rng, sizes[2], traits)
    scores = truth.scores(users, items, base_of(priors, sizes[2]))
    levels = draw_levels(scores, truth.noise_of(users), truth.cutpoints, rng)
    ratings = ratings_of(*known, levels[seen], *sizes)
    on = fit(replace(ratings, covariates=covariates), priors, schedule, seed)
    off = None if switch.off is None else fit(ratings, switch.off, schedule, seed)
    return Trial(truth, priors, traits, (users[~seen], items[~seen], levels[~seen]), on, off)


def _standard(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray | None:
    values = rng.standard_normal((rows, columns))
    return (values - values.mean(axis=0)) / values.std(axis=0) if columns else None


def recovered(switch: Switch, seed: int, schedule: Schedule) -> Figures:
    """Return the figures of a switch on one simulated data set."""
    return switch.measure(run(switch, seed, schedule))


def number(name: str, draws: np.ndarray, truth: float, prior_sd: float) -> Figures:
    """Hold a number against its posterior, and the posterior against the prior."""
    z, left = float((truth - draws.mean()) / draws.std()), float(draws.std() / prior_sd)
    return {f"{name} |z| < 3": (z, abs(z) < 3.0), f"{name} sd/prior's < {TOLD:.2f}": (left, left < TOLD)}


def vector(name: str, draws: np.ndarray, truth: np.ndarray, least: float = 0.5) -> Figures:
    """Hold a vector against its posterior mean, as near as draws of it are."""
    mean = draws.mean(axis=0)
    r, rmse = _closeness(truth, mean)
    usual = np.array([_closeness(draw, mean) for draw in draws])
    z_r, z_rmse = (np.array([r, rmse]) - usual.mean(axis=0)) / usual.std(axis=0)
    return {
        f"{name} r > {least:g}": (r, r > least),
        f"{name} r, z > −3": (float(z_r), z_r > -3.0),
        f"{name} rmse, z < 3": (float(z_rmse), z_rmse < 3.0),
    }


def _closeness(values: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    return float(np.corrcoef(values, mean)[0, 1]), sqrt(((values - mean) ** 2).mean())


def gain(trial: Trial, bar: float = 2.0, unrated: int = 0) -> Figures:
    """Return what the switch gains in log score, in standard errors over users; over items where those are unrated."""
    users, items, levels = trial.test
    if unrated:
        chosen = items >= trial.truth.item_offset.size - unrated
        users, items, levels = users[chosen], items[chosen], levels[chosen]
    on, off = (log_scores(predict_levels(one.posterior, users, items), levels) for one in (trial.on, trial.off))
    gained = on - off
    sums = np.bincount(items if unrated else users, gained - gained.mean())
    z = float(gained.sum() / sqrt((sums**2).sum()))
    return {f"log score gain, z > {bar:g}": (z, z > bar)}


def spread(trial: Trial, name: str) -> Figures:
    """Hold the logarithm of a learnt standard deviation against its posterior."""
    draws = np.log(trial.on.each(lambda draw: draw.hyper[SPREADS.index(name)]))
    return number(
        f"log {name}", draws, log(getattr(trial.truth, name)), 0.5 * sqrt(polygamma(1, trial.priors.sd_shape))
    )


def scores(trial: Trial) -> Figures:
    """Hold scores of held-out ratings against their posterior."""
    users, items, _ = trial.test
    return vector(
        "η", score_table(trial.on.posterior, users, items), trial.truth.scores(users, items, trial.on.posterior.base)
    )


def slopes(draws: np.ndarray, truth: np.ndarray, traits: np.ndarray) -> Figures:
    """Hold weights of traits on offsets against their posterior, the worst of all; traits that do not vary say nothing."""
    varied = traits.std(axis=0) > 0.0
    z = (truth - draws.mean(axis=0))[varied] / draws.std(axis=0)[varied]
    worst, left = float(z[np.abs(z).argmax()]), float(draws.std(axis=0)[varied].max() / OFFSET_WEIGHT_SD)
    return {
        "worst slope |z| < 3": (worst, abs(worst) < 3.0),
        f"slope sd/prior's < {TOLD:.2f}": (left, left < TOLD),
    }


def user_slopes(trial: Trial) -> Figures:
    traits = np.hstack([trial.traits.users, trial.traits.user_offsets])
    return slopes(trial.on.user_slopes, trial.truth.user_offset_weights, traits) | gain(trial)


def item_slopes(trial: Trial, unrated: int = 0) -> Figures:
    found = slopes(trial.on.item_slopes, trial.truth.item_offset_weights, trial.traits.items)
    return found | gain(trial, unrated=unrated)


def graded(trial: Trial) -> Figures:
    return scores(trial) | spread(trial, "grade_sd") | gain(trial)


def user_grades(trial: Trial) -> Figures:
    return scores(trial) | spread(trial, "user_grade_sd") | gain(trial)


def user_offsets(trial: Trial) -> Figures:
    found = vector("α", trial.on.each(lambda draw: draw.user_offset), trial.truth.user_offset)
    return found | spread(trial, "user_sd") | gain(trial)


def user_scales(trial: Trial) -> Figures:
    draws = np.log(trial.on.each(lambda draw: draw.hyper[0] * SCALES[draw.user_scale]))
    truth = np.log(trial.truth.noise_of(np.arange(draws.shape[1])))
    return vector("log τ_u", draws, truth) | spread(trial, "scale_sd") | gain(trial)


def cutpoints(trial: Trial) -> Figures:
    draws, truth, found = trial.on.each(lambda draw: draw.cutpoints), trial.truth.cutpoints, gain(trial)
    for place in range(2, truth.size - 2):
        found |= number(f"c_{place}", draws[:, place], truth[place], (truth.size - 3) / sqrt(18.0))
    return found


def learnt(trial: Trial) -> Figures:
    found, prior = scores(trial), trial.priors
    for name in ("effect_sd", "item_sd", "user_sd"):
        found |= spread(trial, name)
    mass, rate = (trial.on.each(lambda draw, place=place: draw.hyper[place]) for place in (1, 2))
    found |= number("mass", mass, trial.truth.mass, prior.mass / sqrt(prior.mass_shape))
    rate_sd = sqrt(prior.item_rate * (1.0 - prior.item_rate) / (prior.item_rate_weight + 1.0))
    return found | number("item_rate", rate, trial.truth.rate, rate_sd)


def remainder(trial: Trial) -> Figures:
    users, items, _ = trial.test
    draws = trial.on.each(lambda draw: (draw.user_factor[users] * draw.item_factor[items]).sum(axis=1))
    truth = (trial.truth.user_factor[users] * trial.truth.item_factor[items]).sum(axis=1)
    return vector("u·v", draws, truth) | spread(trial, "remainder_sd") | gain(trial)


def item_buffet(trial: Trial) -> Figures:
    """Log sizes of large features' item sets, on average, and scores."""

    def size(user_members: np.ndarray, item_members: np.ndarray) -> float:
        large = user_members.mean(axis=0) >= LARGE
        return float(np.log(np.maximum(item_members[:, large].sum(axis=0), 1)).mean()) if large.any() else 0.0

    def drawn(draw: Draw) -> float:
        slots = np.arange(draw.n_features)
        return size(members(draw.user_words, slots), members(draw.item_words, slots))

    truth = trial.truth
    n_large = max(1, int((truth.user_members.mean(axis=0) >= LARGE).sum()))
    prior = np.log(draw_buffet_columns(truth.item_offset.size, 1_000, np.random.default_rng(0)).sum(axis=0))
    found = number(
        "log size", trial.on.each(drawn), size(truth.user_members, truth.item_members), prior.std() / sqrt(n_large)
    )
    return found | scores(trial) | gain(trial, bar=-2.0)


BASE = Priors(mass=1.5, item_offset_sd=0.7, effect_sd=1.0, graded=True)
OFFSETS = replace(BASE, user_offsets=True, user_offset_sd=0.3)
CHOICES = replace(OFFSETS, choices=1, choice_sd=0.7, item_offset_sd=0.3)
PLAIN = replace(BASE, mass=2.0, graded=False)
UNRATED = 40
SWITCHES = (
    Switch("graded items", replace(BASE, grade_sd=0.8, learn=("grade_sd",)), PLAIN, graded),
    Switch("user grades", replace(BASE, user_grades=True, user_grade_sd=0.8, learn=("user_grade_sd",)), BASE, user_grades),
    Switch("user offsets", replace(BASE, user_offsets=True, learn=("user_offset_sd",)), BASE, user_offsets),
    Switch("user scales", replace(BASE, user_scales=True, user_scale_sd=0.5, learn=("user_scale_sd",)), BASE, user_scales),
    Switch("free cutpoints", replace(BASE, free_cutpoints=True), BASE, cutpoints),
    Switch(
        "learnt spreads",
        replace(
            PLAIN, mass_shape=4.0, item_rate=0.3, effect_sd=1.2, user_offsets=True,
            learn=("mass", "item_rate", "effect_sd", "item_offset_sd", "user_offset_sd"),
        ),
        None,
        learnt,
    ),
    Switch(
        "item columns",
        replace(BASE, item_offset_sd=0.3),
        replace(BASE, item_offset_sd=0.3),
        partial(item_slopes, unrated=UNRATED),
        sizes=(200, 100, 5),
        columns=(0, 6),
        unrated=UNRATED,
    ),
    Switch("user columns", OFFSETS, OFFSETS, user_slopes, columns=(4, 0)),
    Switch("choices", CHOICES, replace(CHOICES, choices=0), user_slopes, kinds=True),
    Switch("item choices", replace(CHOICES, item_choices=True), CHOICES, item_slopes, kinds=True),
    Switch("remainder", replace(BASE, remainder=2, remainder_sd=0.7, learn=("remainder_sd",)), BASE, remainder),
    Switch("item buffet", replace(PLAIN, item_prior="ibp"), PLAIN, item_buffet),
)  # fmt: skip
BY_NAME = {switch.name: switch for switch in SWITCHES}


def schedule_of(effort: float) -> Schedule:
    """Return the schedule of a fit at an effort."""
    half = max(40, int(400 * effort))
    return Schedule(sweeps=2 * half, warmup=half, thin=4, chains=3, threads=1)


def switch_bar(name: str, effort: float, n_seeds: int = 3) -> tuple[str, str, bool]:
    """Return what a switch's bar is called, its figures by seed, and whether all hold."""
    found = [recovered(BY_NAME[name], seed, schedule_of(effort)) for seed in range(n_seeds)]
    texts = []
    for figure in found[0]:
        values = " ".join(f"{one[figure][0]:.2f}{'' if one[figure][1] else '!'}" for one in found)
        texts.append(f"{figure}: {values}")
    return f"C7 recovery, {name}", "; ".join(texts), all(holds for one in found for _, holds in one.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--only", default="", help="run the switches whose name contains this word")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    failed = 0
    for name in [name for name in BY_NAME if options.only in name]:
        begin = time.process_time()
        described, figure, passed = switch_bar(name, options.effort, options.seeds)
        failed += not passed
        took = time.process_time() - begin
        print(f"{'pass' if passed else 'FAIL'}  {described}: {figure} ({took:.0f} s)", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
