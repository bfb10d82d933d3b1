"""Simulation-based calibration: parameters from the prior must rank evenly among draws of their posterior.

    python -m tests.correctness.calibration 500          two processes; one line per quantity
    python -m tests.correctness.calibration 100 --wrong  the same fitted with a wrong prior, to be rejected

Unlike the joint test, chains here start with no features and have to find the posterior of real ratings.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise

import numpy as np
from scipy.stats import chi2

from doublefeature._jit import kernel, leaf
from doublefeature.config import Moves, Priors
from doublefeature.kernels.bits import active_slots, count_members
from doublefeature.kernels.scene import Scene, with_state
from doublefeature.kernels.scores import score_of
from doublefeature.kernels.sweep import Plan, build_plan, build_scene, close_sweep
from doublefeature.model.state import MASS, NOISE, RATE, empty_state
from tests.correctness.geweke import at_sweep, compiled_sweep
from tests.correctness.tiny import draw_all, ratings_of, scene_of

SIZES = (20, 15, 5)
DRAWS = 99
WARMUP = 300
THIN = 50
"""Leaves about 100 independent draws even of K, λ and the log likelihood, which mix slowest."""
SIMULATIONS = 4_000
"""Sets of even ranks that the largest difference between ranks and evenness is held against."""
BINS = 20
LEVEL = 0.01
SHARES = (0.5, 0.8, 0.95)
QUANTITIES = (
    "K", "ΣA", "ΣB", "Σθ²", "τ", "ρ₁", "ρ₂", "α₁", "λ", "p", "log-lik", "mean of cell 1", "mean of cell 2",
)  # fmt: skip
HELD_OUT = np.array([[17, 12], [18, 13], [19, 14]])
"""Pairs whose ratings no chain sees, in different rows and columns."""
PRIORS = Priors(
    mass=1.0, item_rate=0.3, effect_sd=1.0, item_offset_sd=0.7, user_offsets=True, user_offset_sd=0.7,
    learn=("mass", "item_rate"),
)  # fmt: skip
WRONG_PRIORS = Priors(**{**PRIORS.to_dict(), "mass": 2.0, "learn": ("item_rate",)})
"""A planted bug: twice the mass, taken for known."""
MOVES = Moves(settle=0, feature_moves=1)
PLAN = build_plan(MOVES, SIZES[0])._replace(collapsed_share=0.1)
"""Every kind of move; the dearest, which small data get for every user, for a tenth of them."""


@leaf
def mean_level(score: float, noise: float, cutpoints: np.ndarray) -> float:
    """Return the expected level (1, 2, …) of a score: one, and one more for every cutpoint passed."""
    total = 1.0
    for level in range(1, cutpoints.size - 1):
        total += 0.5 * math.erfc((cutpoints[level] - score) / (noise * math.sqrt(2.0)))
    return total


@kernel
def quantities(scene: Scene, log_lik: float, cells: np.ndarray, out: np.ndarray) -> None:
    """Fill in the quantities, and after them the scores of the held-out cells."""
    state = scene.state
    slots = active_slots(state.active)
    out[:] = 0.0
    out[0] = slots.size
    users = count_members(state.user_words)
    items = count_members(state.item_words)
    for slot in slots:
        out[1] += users[slot]
        out[2] += items[slot]
        out[3] += state.effect[slot] ** 2
    out[4] = state.hyper[NOISE]
    out[5] = state.item_offset[0]
    out[6] = state.item_offset[1]
    out[7] = state.user_offset[0]
    out[8] = state.hyper[MASS]
    out[9] = state.hyper[RATE]
    out[10] = log_lik
    for c in range(cells.shape[0]):
        score = score_of(state, scene.model, cells[c, 0], cells[c, 1])
        out[13 + c] = score
        if c < 2:
            out[11 + c] = mean_level(score, state.hyper[NOISE], state.cutpoints)


@kernel
def posterior_draws(scene: Scene, plan: Plan, warmup: int, thin: int, cells: np.ndarray, out: np.ndarray) -> None:
    """Run one chain; keep the quantities of every so many sweeps after the warm-up."""
    for t in range(warmup + thin * out.shape[0]):
        scene = at_sweep(scene, t)
        state, log_lik = compiled_sweep(scene, plan)
        scene = with_state(scene, state)
        after = t + 1 - warmup
        if after > 0 and after % thin == 0:
            quantities(scene, log_lik, cells, out[after // thin - 1])


def observed_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs but the held-out ones, in user order."""
    seen = np.ones(SIZES[:2], bool)
    seen[HELD_OUT[:, 0], HELD_OUT[:, 1]] = False
    return np.nonzero(seen)


def replicate(
    seed: int, replication: int, priors: Priors = PRIORS, *, n_draws: int = DRAWS, thin: int = THIN
) -> tuple[np.ndarray, np.ndarray]:
    """Return the true quantities of one simulated data set and (draws, quantities) of its chain."""
    rng = np.random.default_rng([seed, replication])
    users, items = observed_pairs()
    parameters, levels = draw_all(PRIORS, users, items, SIZES, rng)
    truth, draws = np.zeros(len(QUANTITIES) + 3), np.zeros((n_draws, len(QUANTITIES) + 3))
    right = scene_of(parameters, PRIORS, MOVES, (users, items, levels), SIZES[2])
    quantities(right, close_sweep(right), HELD_OUT, truth)
    data = ratings_of(users, items, levels, *SIZES).arrays
    scene = build_scene(data, priors, MOVES, empty_state(priors, *SIZES), (seed, replication))
    posterior_draws(scene, PLAN, WARMUP, thin, HELD_OUT, draws)
    return truth, draws


def ranks_with_scores(
    n_replications: int, seed: int, first: int = 0, wrong_prior: bool = False, thin: int = THIN
) -> np.ndarray:
    """Return ranks (replications, 16): the quantities, then the scores of the three held-out cells."""
    priors = WRONG_PRIORS if wrong_prior else PRIORS
    out = np.zeros((n_replications, len(QUANTITIES) + 3), np.int64)
    for row in range(n_replications):
        truth, draws = replicate(seed, first + row, priors, thin=thin)
        ties = (draws == truth).sum(axis=0)
        rng = np.random.default_rng([seed, first + row, 1])
        out[row] = (draws < truth).sum(axis=0) + rng.integers(0, ties + 1)
    return out


def ranks(n_replications: int, seed: int, first: int = 0) -> np.ndarray:
    """Return the rank (0 to 99) of the truth among the draws, (replications, 13), ties broken at random."""
    return ranks_with_scores(n_replications, seed, first)[:, : len(QUANTITIES)]


def p_values(found: np.ndarray) -> dict[str, float]:
    """Return the chi-square p-value of even ranks for every quantity."""
    expected = found.shape[0] / BINS
    result = {}
    for column, name in enumerate(QUANTITIES):
        counts = np.bincount(found[:, column] * BINS // (DRAWS + 1), minlength=BINS)
        result[name] = float(chi2.sf(((counts - expected) ** 2).sum() / expected, BINS - 1))
    return result


def ecdf_p_values(found: np.ndarray) -> dict[str, float]:
    """Return, per quantity, how often even ranks stray as far from evenness at any rank as these do.

    Above a level q, this is the same as an empirical distribution inside its simultaneous band of level 1 − q.
    """
    rng = np.random.default_rng(0)
    even = np.sort([_largest_gap(rng.integers(0, DRAWS + 1, found.shape[0])) for _ in range(SIMULATIONS)])
    gaps = [_largest_gap(found[:, column]) for column in range(len(QUANTITIES))]
    beyond = SIMULATIONS - np.searchsorted(even, gaps)
    return {name: (1.0 + n) / (1.0 + SIMULATIONS) for name, n in zip(QUANTITIES, beyond.tolist(), strict=True)}


def _largest_gap(column: np.ndarray) -> float:
    reached = np.cumsum(np.bincount(column, minlength=DRAWS + 1)) / column.size
    return float(np.abs(reached - np.arange(1, DRAWS + 2) / (DRAWS + 1)).max())


def coverage(found: np.ndarray) -> dict[float, tuple[float, float]]:
    """Return for every interval its share of held-out scores covered, and the z of that share."""
    scores = found[:, len(QUANTITIES) :]
    result = {}
    for share in SHARES:
        inside = round(share * (DRAWS + 1))
        low = (DRAWS + 1 - inside) // 2
        covered = float(((scores >= low) & (scores < low + inside)).mean())
        result[share] = (covered, (covered - share) / math.sqrt(share * (1.0 - share) / scores.size))
    return result


def calibration(
    n_replications: int, seed: int = 1, *, wrong_prior: bool = False, thin: int = THIN, processes: int = 2
) -> dict[str, float | dict[float, tuple[float, float]]]:
    """Return two p-values per quantity and, under "coverage", shares of held-out scores covered with their z."""
    starts = [n_replications * i // (4 * processes) for i in range(4 * processes + 1)]
    context = multiprocessing.get_context("spawn")
    ranks_with_scores(1, seed)  # fills the cache of compiled code, so that the processes need not
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        jobs = [
            pool.submit(ranks_with_scores, end - start, seed, start, wrong_prior, thin)
            for start, end in pairwise(starts)
        ]
        found = np.concatenate([job.result() for job in jobs])
    bands = {f"{name} (ECDF)": p for name, p in ecdf_p_values(found).items()}
    return {**p_values(found), **bands, "coverage": coverage(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("replications", type=int, nargs="?", default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wrong", action="store_true", help="fit with a wrong prior, which must be rejected")
    parser.add_argument("--thin", type=int, default=THIN, help="sweeps between draws")
    options = parser.parse_args()
    figures = calibration(options.replications, options.seed, wrong_prior=options.wrong, thin=options.thin)
    for share, (covered, z) in figures.pop("coverage").items():
        print(f"coverage {share:.0%}: {covered:.3f} (z {z:+.2f}, bar 3)")
    for name, p in figures.items():
        print(f"{name}: p {p:.4g}")
    least = min(figures, key=figures.get)
    print(f"smallest p {figures[least]:.3g} ({least}), bar {LEVEL / len(QUANTITIES):.2g}")


if __name__ == "__main__":
    main()
