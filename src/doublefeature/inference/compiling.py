"""Compile all kernels ahead of the first sweep, in two processes: one compiler uses one core only.

python -m doublefeature.inference.compiling          does it when it is needed

The compiler is told to optimise less: that takes a quarter less time, and sweeps are as fast. Processes of their own
keep the setting away from whatever else a program compiles.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np

from doublefeature._jit import cache_base, is_compiled
from doublefeature.config import PRESETS, Moves, Priors
from doublefeature.inference.fold_stack import compile_fold_draws
from doublefeature.inference.fold_views import compile_fold
from doublefeature.kernels.features import update_features
from doublefeature.kernels.private import update_private_features
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.singletons import update_collapsed_singletons
from doublefeature.kernels.sweep import build_plan, build_scene, sweep_once
from doublefeature.model.state import empty_state
from doublefeature.ratings import Ratings

_MODULE = "doublefeature.inference.compiling"
_NEAR, _FAR, _FOLD = "near", "far", "fold"
_SHARED = ("features", "memberships", "sweep")
_OWN = {"paper": ("singletons", "gaussian"), "full": ("private", "grades", "user_grades")}
"""Modules whose kernels each preset needs besides."""


def preset_like(priors: Priors) -> str:
    """Return the preset that needs the same kernels as a model, or nearly."""
    return "full" if priors.graded else "paper"


def needs_compiling(preset: str) -> bool:
    """Whether the next run of a preset would compile kernels and keep them."""
    modules = (*_SHARED, *_OWN[preset])
    return cache_base() is not None and not all(is_compiled(f"kernels/{name}") for name in modules)


def compile_kernels(preset: str) -> None:
    """Compile every block of a preset's sweep, about half of it in each of two processes."""
    _in_processes([f"{preset} {_NEAR}"], [f"{preset} {_FAR}"])


def compile_everything() -> None:
    """Compile all kernels that are not in the cache: those of every preset, and those that fold in."""
    missing = [preset for preset in PRESETS if needs_compiling(preset)]
    _in_processes([f"{preset} {_NEAR}" for preset in missing], [*(f"{preset} {_FAR}" for preset in missing), _FOLD])


def _in_processes(*parts: list[str]) -> None:
    """Compile lists of parts at the same time; what fails here is compiled, and heard of, where it is used."""
    environment = {**os.environ, "NUMBA_OPT": "1"}
    running = [
        subprocess.Popen([sys.executable, "-m", _MODULE, *part], stdin=subprocess.DEVNULL, env=environment)
        for part in parts
        if part
    ]
    try:
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.kill()
            process.wait()


def _compile(preset: str, blocks: Callable[[Scene], None]) -> None:
    """Run blocks on a tiny scene."""
    priors = PRESETS[preset]
    codes = np.arange(2, dtype=np.uint32)
    ratings = Ratings.from_codes(
        codes, codes, codes.astype(np.uint8), users=range(2), items=range(2), levels=range(1, 6)
    )
    state = empty_state(priors, ratings.n_users, ratings.n_items, ratings.n_levels)
    blocks(build_scene(ratings.arrays, priors, Moves(), state, (0, 0)))


def _far_half(scene: Scene) -> None:
    update_features(scene, 0, False)
    if scene.state.item_effect.shape[0] > 0:
        update_private_features(scene, 1)
    else:
        update_collapsed_singletons(scene, 1.0)


def _near_half(scene: Scene) -> None:
    everything = build_plan(Moves(settle=0, effect_every=1, noise_slice_every=2, cutpoints_every=1), n_users=2)
    graded = scene.state.item_effect.shape[0] > 0
    plan = everything._replace(feature_moves=0, collapsed_share=0.0, prior_singletons=not graded)
    for number in range(2):
        state, _ = sweep_once(scene._replace(sweep=number), plan)
        scene = scene._replace(state=state)


def _compile_part(name: str) -> None:
    if name == _FOLD:
        compile_fold()
        compile_fold_draws()
    else:
        preset, half = name.split()
        _compile(preset, _near_half if half == _NEAR else _far_half)


if __name__ == "__main__":
    for part in sys.argv[1:]:
        _compile_part(part)
    if not sys.argv[1:]:
        compile_everything()
