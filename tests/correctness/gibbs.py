"""Dense references for blocks that only draw: laws read off values of the joint density, and nothing else.

Given the latent scores the log density is quadratic in grades, offsets, factors and weights: a few of its values give
mean and precision. What a kernel drew, whitened by that law, has to be the random numbers it used. Memberships and
scales are few enough to be listed. Every reference can carry a bug: a term added to the log density.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from doublefeature.config import Priors
from doublefeature.kernels.grades import update_grades_and_offsets
from doublefeature.kernels.memberships import update_items
from doublefeature.kernels.orders import scan_order
from doublefeature.kernels.remainder import move_remainder, update_remainder
from doublefeature.kernels.scales import update_user_scales
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.streams import (
    GRADES,
    OFFSETS,
    ORDER,
    REMAINDER,
    TRAITS,
    USER_GRADES,
    tick,
)
from doublefeature.kernels.traits import _OF_ITEM_OFFSETS, _OF_USER_OFFSETS, update_traits
from doublefeature.kernels.user_grades import update_user_grades
from doublefeature.model.generative import base_of, log_prior
from doublefeature.model.parameters import Parameters, parameters_of
from doublefeature.model.state import copy_state, members
from tests.correctness.cases import Case
from tests.correctness.conditionals import fresh_scene, replayed, replayed_normals
from tests.correctness.graded import normal_log_density
from tests.correctness.tiny import batch_z

Place = tuple[str, tuple[int, ...]]
"""One number among the parameters: the name of its array, and where it stands there."""
Bug = Callable[[Case, Parameters], float]
Pairs = Iterator[tuple[np.ndarray, np.ndarray]]
"""A whitened draw, and the random numbers it was made from."""


def no_bug(case: Case, p: Parameters) -> float:
    return 0.0


class Normal(NamedTuple):
    """A normal law by mean and precision."""

    mean: np.ndarray
    precision: np.ndarray

    def whiten(self, drawn: np.ndarray) -> np.ndarray:
        return np.linalg.cholesky(self.precision).T @ (drawn - self.mean)


def put(p: Parameters, places: list[Place], values: np.ndarray) -> Parameters:
    arrays = {name: getattr(p, name).copy() for name, _ in places}
    for (name, where), value in zip(places, values, strict=True):
        arrays[name][where] = value
    return replace(p, **arrays)


@dataclass
class Trial:
    """A kernel's one run on a case: the scene it left, and the density that its draws are held against."""

    case: Case
    scene: Scene
    latent: np.ndarray
    bug: Bug

    @property
    def after(self) -> Parameters:
        return parameters_of(self.scene.state, scaled=self.case.priors.user_scales)

    def scores(self, p: Parameters) -> np.ndarray:
        return p.scores(*self.case.observed[:2], base_of(self.case.priors, self.case.n_levels))

    def density(self, p: Parameters) -> float:
        """Log density of parameters and latent scores."""
        fit = float(normal_log_density(self.latent, self.scores(p), p.noise_of(self.case.observed[0])).sum())
        return fit + log_prior(p, self.case.priors, self.case.traits) + self.bug(self.case, p)

    def law(self, p: Parameters, places: list[Place]) -> Normal:
        """The law of some numbers given all others: second differences of a quadratic are exact."""
        eye = np.eye(len(places))
        start, up, down = ([self.density(put(p, places, row)) for row in rows] for rows in (eye[:1] * 0.0, eye, -eye))
        precision = np.diag(2.0 * start[0] - np.array(up) - np.array(down))
        for a, b in itertools.combinations(range(len(places)), 2):
            both = self.density(put(p, places, eye[a] + eye[b]))
            precision[a, b] = precision[b, a] = up[a] + up[b] - start[0] - both
        return Normal(np.linalg.solve(precision, 0.5 * (np.array(up) - np.array(down))), precision)

    def whitened(self, p: Parameters, places: list[Place]) -> np.ndarray:
        after = self.after
        return self.law(p, places).whiten(np.array([getattr(after, name)[where] for name, where in places]))


def _left(start: Scene, update: Callable[[Scene], None], sweep: int) -> Scene:
    """The scene an update leaves. All but the remainder's own see scores and latent scores without the remainder."""
    scores, latent = start.scores.copy(), start.latent.copy()
    scene = start._replace(sweep=sweep, scores=scores, latent=latent, state=copy_state(start.state))
    if update is not update_remainder:
        move_remainder(scene, -1.0)
    update(scene)
    return scene


def run(case: Case, update: Callable[[Scene], None], bug: Bug) -> Trial:
    """Run an update on made-up latent scores."""
    start = fresh_scene(case, with_latent=True)
    return Trial(case, _left(start, update, 0), start.latent, bug)


def repeat(case: Case, update: Callable[[Scene], None], places: list[Place], n_draws: int) -> tuple[Trial, np.ndarray]:
    """Run an update again and again from one state; return (draws, places) what came out."""
    start = fresh_scene(case, with_latent=True)
    states = (_left(start, update, t).state for t in range(n_draws))
    out = [[getattr(state, name)[where] for name, where in places] for state in states]
    return Trial(case, start, start.latent, no_bug), np.array(out)


def moments_z(law: Normal, draws: np.ndarray) -> np.ndarray:
    """The z of means and covariances of draws of a normal law."""
    covariance = np.linalg.inv(law.precision)
    variance = np.diag(covariance)
    gaps = draws - law.mean
    error = np.sqrt(np.outer(variance, variance) + covariance**2)
    z = [gaps.mean(axis=0) / np.sqrt(variance), *((gaps.T @ gaps / len(draws) - covariance) / error)]
    return np.concatenate(z) * math.sqrt(len(draws))


def user_places(p: Parameters, priors: Priors, user: int) -> list[Place]:
    """A user's grades, if there are any, and offset."""
    inside = np.flatnonzero(p.user_members[user]) if p.user_grade is not None else ()
    grades: list[Place] = [("user_grade", (user, k)) for k in inside]
    return grades + [("user_offset", (user,))] * priors.user_offsets


def item_places(p: Parameters, priors: Priors, item: int, order: np.ndarray) -> list[Place]:
    """An item's effects, features in this order, and offset."""
    effects: list[Place] = [("item_effect", (item, k)) for k in order if p.item_members[item, k]]
    return effects + [("item_offset", (item,))] * priors.item_offsets


def _user_rows(trial: Trial, p: Parameters) -> Pairs:
    block, step = (OFFSETS, 1) if p.user_grade is None else (USER_GRADES, 0)
    for user in range(p.user_offset.size):
        if places := user_places(p, trial.case.priors, user):
            yield trial.whitened(p, places), replayed_normals(trial.scene, block, step, user, len(places))[::-1]


def user_grades(case: Case, bug: Bug) -> Pairs:
    yield from _user_rows(run(case, update_user_grades, bug), case.parameters)


def remainders(case: Case, bug: Bug) -> Pairs:
    """Users' factors given the items' old ones, then items' given the users' new ones."""
    trial = run(case, update_remainder, bug)
    rank = range(case.priors.remainder)
    half = replace(case.parameters, user_factor=trial.after.user_factor)
    for step, (name, p) in enumerate((("user_factor", case.parameters), ("item_factor", half))):
        for row in range(getattr(p, name).shape[0]):
            numbers = replayed_normals(trial.scene, REMAINDER, step, row, len(rank))[::-1]
            yield trial.whitened(p, [(name, (row, d)) for d in rank]), numbers
    np.testing.assert_allclose(trial.scene.scores, trial.scores(trial.after), rtol=0.0, atol=1e-12)


def _order(trial: Trial) -> np.ndarray:
    return scan_order(trial.scene.state.active, trial.scene.key, np.uint64(tick(trial.scene.sweep, ORDER, 1)))


def _item_numbers(trial: Trial, item: int, order: np.ndarray) -> np.ndarray:
    """The random numbers of an item: in its scan a uniform per feature and a normal if it is in, then normals."""
    inside = trial.after.item_members[item]
    kinds = [kind for k in order for kind in ([0, 1] if inside[k] else [0])]
    kinds += [1] * int(inside.sum() + trial.case.priors.item_offsets)
    return replayed(trial.scene, GRADES, 0, item, np.array(kinds, np.uint8))


def grades_and_offsets(case: Case, bug: Bug) -> Pairs:
    """Every item's effects and offset given its new memberships, features' own effects, then users."""
    trial = run(case, update_grades_and_offsets, bug)
    after, order = trial.after, _order(trial)
    p = replace(case.parameters, item_members=after.item_members, item_effect=after.item_effect)
    for item in range(case.sizes[1]):
        if places := item_places(p, case.priors, item, order):
            yield trial.whitened(p, places), _item_numbers(trial, item, order)[-len(places) :][::-1]
    p = replace(p, item_offset=after.item_offset)
    for k, number in enumerate(replayed_normals(trial.scene, GRADES, 1, 0, p.n_features)):
        yield trial.whitened(p, [("effect", (k,))]), np.array([number])
    yield from _user_rows(trial, replace(p, effect=after.effect))


def _log_sum(trial: Trial, p: Parameters, place: Place) -> tuple[float, float, float]:
    """Log of the density with one number integrated out, and mean and standard deviation of that number."""
    mean, precision = trial.law(p, [place])
    sd = precision[0, 0] ** -0.5
    return trial.density(put(p, [place], mean)) + math.log(sd * math.sqrt(2.0 * math.pi)), mean[0], sd


def graded_flips(case: Case, bug: Bug) -> Iterator[tuple[float, float, bool]]:
    """Chance of every item's membership given those before it in the scan, the uniform it met, and what it became."""
    trial = run(case, update_grades_and_offsets, bug)
    for item, inside in enumerate(trial.after.item_members):
        p = replace(case.parameters, item_members=case.parameters.item_members.copy())
        numbers = iter(_item_numbers(trial, item, _order(trial)))
        for k in _order(trial):
            p.item_members[item, k] = True
            there, mean, sd = _log_sum(trial, p, ("item_effect", (item, k)))
            p.item_members[item, k] = False
            p = put(p, [("item_effect", (item, k))], np.zeros(1))
            yield 1.0 / (1.0 + math.exp(trial.density(p) - there)), next(numbers), bool(inside[k])
            if inside[k]:
                p.item_members[item, k] = True
                p = put(p, [("item_effect", (item, k))], np.array([mean + sd * next(numbers)]))


def offset_weights(case: Case, bug: Bug) -> Pairs:
    """How traits shift offsets, given the offsets, and the means that follow."""
    trial = run(case, update_traits, bug)
    traits, model = case.traits, trial.scene.model
    of_users = np.hstack([traits.users, traits.user_offsets])
    for name, step, own, mean in (
        ("user_offset_weights", _OF_USER_OFFSETS, of_users, model.user_offset_mean),
        ("item_offset_weights", _OF_ITEM_OFFSETS, traits.items, model.item_offset_mean),
    ):
        if own.shape[1]:
            numbers = replayed_normals(trial.scene, TRAITS, step, 0, own.shape[1])[::-1]
            yield trial.whitened(case.parameters, [(name, (t,)) for t in range(own.shape[1])]), numbers
            np.testing.assert_allclose(mean, own @ getattr(trial.after, name), rtol=0.0, atol=1e-12)


def _chances(case: Case, choices: list[Parameters], bug: Bug) -> np.ndarray:
    """Probabilities of some choices, from the density at each of them."""
    logs = np.array([case.density(p) + bug(case, p) for p in choices])
    return np.exp(logs - np.logaddexp.reduce(logs))


def scale_z(case: Case, n_draws: int, bug: Bug) -> Iterator[float]:
    """The z of every frequency of a user's multiples of τ that is large enough to have one."""
    scene = fresh_scene(case)
    codes = np.empty((n_draws, case.sizes[0]), np.int64)
    for t in range(n_draws):
        scene.state.hyper[:] = case.scene.state.hyper
        update_user_scales(scene._replace(sweep=t))
        codes[t] = scene.state.user_scale
    for user in range(case.sizes[0]):
        choices = np.tile(case.parameters.user_scale, (case.parameters.scales.size, 1))
        choices[:, user] = np.arange(len(choices))
        chance = _chances(case, [replace(case.parameters, user_scale=choice) for choice in choices], bug)
        variance = n_draws * chance * (1.0 - chance)
        gaps = np.bincount(codes[:, user], minlength=chance.size) - n_draws * chance
        yield from (gaps / np.sqrt(variance))[variance > 20.0]


def item_z(case: Case, n_sweeps: int, bug: Bug) -> np.ndarray:
    """The z of memberships, sizes and likely sets of items along a chain that updates nothing else."""
    n_items, n_features = case.parameters.item_members.shape
    columns = [np.array(bits) for bits in itertools.product((False, True), repeat=n_items)][1:]
    sets = np.array([np.stack(some, axis=1) for some in itertools.product(columns, repeat=n_features)])
    chances = _chances(case, [replace(case.parameters, item_members=one) for one in sets], bug)
    sizes = (sets.sum(axis=1)[:, :, None] == np.arange(1, n_items + 1)).reshape(len(sets), -1)
    of_sets = np.hstack([sets.reshape(len(sets), -1), sizes, np.eye(len(sets))])
    index = {one.tobytes(): place for place, one in enumerate(sets)}
    scene = fresh_scene(case)
    visited = np.empty(n_sweeps, np.int64)
    for t in range(n_sweeps):
        update_items(scene._replace(sweep=t))
        visited[t] = index[members(scene.state.item_words, np.arange(n_features)).tobytes()]
    truth = chances @ of_sets
    common = n_sweeps * np.minimum(truth, 1.0 - truth) > 100.0
    batches = of_sets[visited].reshape(50, -1, truth.size).mean(axis=1)
    return batch_z(batches[:, common], truth[common])
