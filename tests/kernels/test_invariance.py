"""What must not change a result: labels of features, threads, repetition, size; and extreme states."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numba
import numpy as np
import pytest

from doublefeature.config import Moves, Priors
from doublefeature.kernels import sweep as sweep_module
from doublefeature.kernels.scene import BIRTH, MOVE_NAMES, Scene
from doublefeature.kernels.scores import log_likelihood, rebuild_scores
from doublefeature.kernels.sweep import build_plan, close_sweep, prepare, sweep_once
from doublefeature.model.generative import draw_parameters
from doublefeature.model.state import NOISE, State, check_state, copy_state, members
from tests.correctness.tiny import draw_all, pairs, scene_of

PRIORS = Priors(
    mass=3.0, item_rate=0.3, effect_sd=1.0, user_offsets=True, item_rate_by_feature=True
).with_everything_learnt()
MOVES = Moves(
    settle=0, feature_moves=4, effect_every=2, noise_slice_every=3, offset_flips=0.3, collapsed_singletons=0.5
)
ROOT = Path(__file__).parents[2]
UPDATES = (
    "update_users_parallel", "update_users_serial", "update_prior_singletons", "update_collapsed_singletons",
    "update_items", "update_offset_flips", "update_features", "update_complements", "update_effects",
    "update_noise_slice", "update_latent", "update_effects_and_offsets", "update_noise_given_latent",
    "update_hyper", "close_sweep", "prepare",
)  # fmt: skip


def simulated(
    n_users: int = 200,
    n_items: int = 60,
    share: float = 0.3,
    priors: Priors = PRIORS,
    moves: Moves = MOVES,
    stream: tuple[int, int] = (3, 0),
) -> Scene:
    """A scene of simulated ratings, started at the parameters that made them."""
    n_ratings = round(share * n_users * n_items)
    users, items = pairs(n_users, n_items, n_ratings, 1)
    parameters, levels = draw_all(priors, users, items, (n_users, n_items, 5), np.random.default_rng(1))
    return scene_of(parameters, priors, moves, (users, items, levels), 5, stream)


def run(scene: Scene, n_sweeps: int, moves: Moves = MOVES, first: int = 0) -> tuple[Scene, list[float]]:
    """Run sweeps; return the scene and the log likelihoods."""
    plan = build_plan(moves, scene.state.user_offset.size)
    trace = []
    for t in range(first, first + n_sweeps):
        state, value = sweep_once(scene._replace(sweep=t), plan)
        scene = scene._replace(state=state)
        trace.append(value)
    return scene, trace


def digest(seed: int, chain: int, threads: int, n_sweeps: int = 30) -> str:
    """Return a digest of every array of the state, and the log likelihoods, after some sweeps."""
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        scene, trace = run(simulated(stream=(seed, chain))._replace(threads=threads), n_sweeps)
    finally:
        numba.set_num_threads(before)
    total = hashlib.sha256()
    for values in (*scene.state, scene.scores, scene.latent, scene.tally, np.array(trace)):
        total.update(repr((values.dtype.str, values.shape)).encode())
        total.update(np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


@cache
def reference() -> str:
    return digest(3, 0, 1)


def drift(scene: Scene) -> float:
    """Return the largest difference between cached scores and scores built from the state."""
    fresh = np.zeros_like(scene.scores)
    rebuild_scores(scene._replace(scores=fresh, threads=1))
    return float(np.abs(fresh - scene.scores).max())


def relabelled(state: State, slots: np.ndarray, n_words: int) -> State:
    """Return the state with its k-th feature moved to slots[k]."""
    old = np.flatnonzero(state.active)
    size = 64 * n_words
    out = {name: np.zeros(size, getattr(state, name).dtype) for name in ("active", "effect", "item_rate")}
    for name, values in out.items():
        values[slots] = getattr(state, name)[old]
    for name in ("user_words", "item_words"):
        matrix = members(getattr(state, name), old)
        words = np.zeros((matrix.shape[0], n_words), np.uint64)
        for k, slot in enumerate(slots):
            words[:, slot // 64] |= matrix[:, k].astype(np.uint64) << np.uint64(slot % 64)
        out[name] = words
    return copy_state(state)._replace(item_effect=np.zeros((0, size)), **out)


@pytest.mark.parametrize("n_words", [1, 2, 3])
def test_relabelling_features_changes_no_score(n_words, rng):
    scene = simulated()
    n_features = int(scene.state.active.sum())
    assert n_features > 5
    state = relabelled(scene.state, rng.permutation(64 * n_words)[:n_features], n_words)
    check_state(state)
    other = scene._replace(state=state, scores=np.zeros_like(scene.scores))
    prepare(other)
    assert np.abs(other.scores - scene.scores).max() < 1e-12
    here, there = close_sweep(scene), close_sweep(other)
    assert abs(here - there) < 1e-12 * abs(here) + 1e-10


def test_one_and_two_threads_agree():
    assert digest(3, 0, 2) == reference()


@pytest.mark.parametrize("threads", [3, 8])
def test_more_threads_than_cores_agree(threads):
    code = f"from tests.kernels.test_invariance import digest; print(digest(3, 0, {threads}))"
    environment = {**os.environ, "NUMBA_NUM_THREADS": "8"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == reference()


def test_repeated_runs_are_identical():
    assert {digest(3, 0, 1) for _ in range(3)} == {reference()}


def test_other_seeds_and_chains_differ():
    digests = [digest(seed, chain, 1, 2) for seed, chain in ((3, 0), (4, 0), (3, 1), (4, 1), (0, 3))]
    assert len(set(digests)) == len(digests)


def test_chains_go_their_own_ways():
    traces = np.array([run(simulated(100, 40, stream=(3, chain)), 160)[1][40::8] for chain in range(4)])
    correlation = np.corrcoef(traces)[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 0.9
    assert len({trace[-1] for trace in traces.tolist()}) == 4


def test_run_moves_every_block():
    scene, _ = run(simulated(), 30)
    tried = dict(zip(MOVE_NAMES, scene.tally[:, 0], strict=True))
    assert all(tried.values()), tried
    assert scene.tally[BIRTH:, 1].sum() > 0


def test_state_grows_past_a_word():
    priors = Priors(mass=30.0, item_rate=0.3, effect_sd=0.3, user_offsets=True)
    rng = np.random.default_rng(2)
    p = draw_parameters(priors, 200, 60, rng)
    keep = np.arange(64)
    assert p.n_features > 64
    p.user_members, p.item_members = p.user_members[:, keep], p.item_members[:, keep]
    p.effect, p.item_rate = p.effect[keep], p.item_rate[keep]
    users, items = pairs(200, 60, 3_000, 1)
    levels = rng.integers(5, size=users.size)
    scene = scene_of(p, priors, MOVES, (users, items, levels), 5, (3, 0))
    assert scene.state.active.all()
    for t in range(15):
        scene, trace = run(scene, 1, first=t)
        check_state(scene.state)
        assert drift(scene) < 1e-9
        assert np.isfinite(trace).all()
    assert scene.state.active.size > 64
    assert scene.state.active.sum() > 64


def test_scores_do_not_drift(monkeypatch):
    before_rebuild = []
    rebuilds = sweep_module.update_effects_and_offsets

    def watched(scene):
        before_rebuild.append(drift(scene))
        rebuilds(scene)

    monkeypatch.setattr(sweep_module, "update_effects_and_offsets", watched)
    scene, _ = run(simulated(), 200)
    assert len(before_rebuild) == 200
    assert max(before_rebuild) < 1e-9
    assert drift(scene) < 1e-9
    check_state(scene.state)


def test_log_likelihood_is_that_of_the_state():
    scene, trace = run(simulated(), 5)
    prepare(scene)
    value = log_likelihood(scene.users, scene.state, scene.like, scene.scores, 1)
    assert abs(value - trace[-1]) < 1e-8 * abs(value)


def test_one_compiled_signature_per_kernel():
    serial = Moves(**{**MOVES.to_dict(), "user_scan": "serial", "table_from": 10**9})
    run(simulated(30, 10), 3)
    run(simulated(70, 20), 3, serial)
    run(simulated(30, 10, priors=Priors(effect_values=(-1.0, 1.0)), moves=serial), 3, serial)
    run(simulated(40, 10)._replace(threads=2), 3)
    for name in UPDATES:
        assert len(getattr(sweep_module, name).signatures) == 1, name


@pytest.mark.parametrize("noise", [1e-3, 1e3])
@pytest.mark.parametrize("effect", [-50.0, 50.0])
@pytest.mark.parametrize("table_from", [1, 10**9])
def test_extreme_states_stay_finite(noise, effect, table_from):
    moves = Moves(**{**MOVES.to_dict(), "table_from": table_from})
    users, items = pairs(40, 12, 300, 1)
    parameters = draw_parameters(PRIORS, 40, 12, np.random.default_rng(4))
    parameters.effect[::2], parameters.effect[1::2] = effect, -effect
    parameters.noise = noise
    for level in (0, 4):
        levels = np.full(users.size, level)
        scene = scene_of(parameters, PRIORS, moves, (users, items, levels), 5, (3, 0))
        scene, trace = run(scene, 4, moves)
        check_state(scene.state)
        assert np.isfinite(trace).all()
        assert np.isfinite(scene.scores).all()
        assert np.isfinite(scene.latent).all()
        assert scene.state.hyper[NOISE] > 0.0


@pytest.mark.parametrize("noise", [1e-3, 1e3])
def test_fixed_extreme_noise_stays_finite(noise):
    priors = Priors(noise_scale=noise, effect_sd=50.0, user_offsets=True)
    scene, trace = run(simulated(40, 12, priors=priors), 10)
    check_state(scene.state)
    assert np.isfinite(trace).all()
    assert np.isfinite(scene.scores).all()
