"""Compile all kernels ahead of the first sweep, in two processes: one compiler uses one core only.

python -m doublefeature.inference.compiling          does it when it is needed
"""

from __future__ import annotations

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
_FAR = "far"
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
    """Compile every block of a preset's sweep; about as much work is left to a second process as is done here."""
    with subprocess.Popen([sys.executable, "-m", _MODULE, preset, _FAR], stdin=subprocess.DEVNULL) as other:
        try:
            _compile(preset, _near_half)
        except BaseException:
            other.kill()
            raise
    _compile(preset, _far_half)


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


if __name__ == "__main__":
    if sys.argv[2:] == [_FAR]:
        _compile(sys.argv[1], _far_half)
    else:
        for name in PRESETS:
            if needs_compiling(name):
                compile_kernels(name)
        compile_fold()
        compile_fold_draws()
