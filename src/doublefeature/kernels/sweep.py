"""One sweep: the only place that knows the order of the block updates.

The order is part of correctness. Blocks with the latent scores integrated out come first; then the latent scores
are drawn afresh; then the blocks that condition on them. A latent score is never used after a block that
ignored it. Between blocks of users and blocks of items the scores are rebuilt from the state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from doublefeature._jit import kernel, leaf
from doublefeature.config import Moves, Priors
from doublefeature.errors import SettingsError
from doublefeature.kernels.bits import pack_slots
from doublefeature.kernels.cutpoints import update_cutpoints
from doublefeature.kernels.effects import update_effects
from doublefeature.kernels.exchanges import update_complements, update_offset_flips
from doublefeature.kernels.features import update_features
from doublefeature.kernels.gaussian import update_effects_and_offsets
from doublefeature.kernels.grades import update_grades_and_offsets
from doublefeature.kernels.held import offsets_are_given, update_effects_given_offsets
from doublefeature.kernels.hyper import update_hyper
from doublefeature.kernels.latent import update_latent
from doublefeature.kernels.likelihood import new_likelihood, refresh, table_pays
from doublefeature.kernels.memberships import update_items, update_users_parallel, update_users_serial
from doublefeature.kernels.noise import update_noise_given_latent, update_noise_slice
from doublefeature.kernels.private import update_private_features
from doublefeature.kernels.remainder import move_remainder, update_remainder
from doublefeature.kernels.renewal import update_prior_singletons
from doublefeature.kernels.scales import update_user_scales
from doublefeature.kernels.scene import MOVE_NAMES, Scene, Side, item_side, rating_count, user_side, with_state
from doublefeature.kernels.scores import log_likelihood, rebuild_all_scores, rebuild_item_scores, rebuild_scores
from doublefeature.kernels.singletons import update_collapsed_singletons
from doublefeature.kernels.streams import stream_key
from doublefeature.kernels.traits import set_offset_means, update_traits, with_weights
from doublefeature.model.choices import traits_of
from doublefeature.model.state import State, Traits, build_model, copy_state
from doublefeature.ratings import RatingArrays

_FEW_USERS = 1_000
_SETTLING, _LONG_SETTLING = 10, 200
PRIVATE_TRIES = 4
"""Births and deaths of private features tried in a sweep where traits shift memberships."""
OPENING_BIRTHS = 4
"""Births of graded features tried in a sweep while a chain settles, and no other move of whole features."""
_GRADED_EVERY = 4


class Plan(NamedTuple):
    """The choice of moves as numbers (see `doublefeature.config.Moves`)."""

    settle: int
    serial_users: bool
    prior_singletons: bool
    collapsed_share: float
    feature_moves: int
    feature_every: int
    complements: bool
    offset_flips: float
    effect_every: int
    noise_slice_every: int
    cutpoints_every: int


def build_plan(moves: Moves, n_users: int, *, warmup: int = 0, graded: bool = False) -> Plan:
    """Return the moves as numbers: few users get more tries of everything that is not graded.

    How long a chain settles may be left open: never longer than half of its warm-up.
    """
    few = n_users < _FEW_USERS
    settle = moves.settle
    if settle is None:
        settle = min(_LONG_SETTLING if few and not graded else _SETTLING, warmup // 2)
    share = moves.collapsed_singletons
    tries = moves.feature_moves
    if tries is None:
        tries = 4 if few and not graded else 1
    return Plan(
        settle=int(settle),
        serial_users=moves.user_scan == "serial",
        prior_singletons=moves.prior_singletons,
        collapsed_share=1.0 if share > 0.0 and few else float(share),
        feature_moves=int(tries),
        feature_every=int(moves.feature_every or (_GRADED_EVERY if graded else 1)),
        complements=moves.complements,
        offset_flips=float(moves.offset_flips),
        effect_every=int(moves.effect_every),
        noise_slice_every=int(moves.noise_slice_every),
        cutpoints_every=int(moves.cutpoints_every),
    )


def build_scene(
    data: RatingArrays,
    priors: Priors,
    moves: Moves,
    start: State,
    stream: tuple[int, int],
    traits: Traits | None = None,
) -> Scene:
    """Return a scene ready for its first sweep. `stream` is (seed, chain); the start is copied.

    Traits that are not given are those of users' and items' choices.
    """
    return scene_of_sides(
        (user_side(data), item_side(data)), priors, moves, start, stream, traits or traits_of(data, priors)
    )


def scene_of_sides(
    sides: tuple[Side, Side], priors: Priors, moves: Moves, start: State, stream: tuple[int, int], traits: Traits
) -> Scene:
    """Return a scene with the ratings of these sides, of users and of items (see `build_scene`)."""
    users, items = sides
    n_ratings = users.other.size
    n_levels = start.cutpoints.size - 1
    if moves.user_scan == "serial" and traits.users.shape[1] + traits.items.shape[1] > 0:
        raise SettingsError("where traits shift memberships users are scanned at once: user_scan must be 'parallel'.")
    model = build_model(priors, start.user_offset.size, start.item_offset.size, n_levels, traits)
    with_table = table_pays(n_levels, model.scales.size, rating_count(users), moves.table_from)
    scene = Scene(
        users=users,
        items=items,
        state=with_weights(copy_state(start), model),
        model=model,
        like=new_likelihood(n_levels, model.scales.size, with_table),
        scores=np.zeros(n_ratings),
        latent=np.zeros(n_ratings),
        tally=np.zeros((len(MOVE_NAMES), 2), np.int64),
        key=np.uint64(stream_key(stream[0], stream[1])),
        sweep=0,
        threads=1,
    )
    prepare(scene)
    return scene


@kernel
def prepare(scene: Scene) -> None:
    """Fill what is derived from the state: likelihood, scores, and means of user offsets."""
    refresh(scene.like, scene.state, scene.model)
    set_offset_means(scene)
    rebuild_scores(scene)


@kernel
def close_sweep(scene: Scene) -> float:
    """Bring state and likelihood into the one form a chain can go on from; return the log likelihood."""
    pack_slots(scene.state)
    refresh(scene.like, scene.state, scene.model)
    return log_likelihood(scene.users, scene.state, scene.like, scene.scores, scene.threads)


@leaf
def is_due(sweep: int, every: int) -> bool:
    """Whether a block that runs every so many sweeps runs in this one (0: never)."""
    return every > 0 and sweep % every == 0


def sweep_once(scene: Scene, plan: Plan) -> tuple[State, float]:
    """Run one sweep in place; return the state (a new one if it had to grow) and its log likelihood.

    Plain Python over compiled blocks: at real sizes the calls cost nothing. Tests on tiny data compile it.
    """
    if plan.serial_users:
        update_users_serial(scene)
    else:
        update_users_parallel(scene)
    settled = scene.sweep >= plan.settle
    graded = scene.state.item_effect.shape[0] > 0
    weighted = scene.state.user_weights.shape[1] > 0
    if settled and plan.prior_singletons:
        if weighted:
            scene = with_state(scene, update_private_features(scene, PRIVATE_TRIES))
        else:
            scene = with_state(scene, update_prior_singletons(scene))
    if not graded:
        independent_items = not scene.model.item_buffet
        if settled and plan.collapsed_share > 0.0 and independent_items:
            scene = with_state(scene, update_collapsed_singletons(scene, plan.collapsed_share))
        rebuild_item_scores(scene)
        update_items(scene)
        if plan.offset_flips > 0.0 and scene.model.item_offsets and independent_items:
            update_offset_flips(scene, plan.offset_flips)
        rebuild_scores(scene)
    opening = graded and not settled and plan.feature_moves > 0
    tries = plan.feature_moves if is_due(scene.sweep, plan.feature_every) else 0
    for attempt in range(max(plan.feature_moves, OPENING_BIRTHS) if opening else tries):
        scene = with_state(scene, update_features(scene, attempt, opening))
    if not graded:
        if plan.complements:
            update_complements(scene)
        if is_due(scene.sweep, plan.effect_every) or scene.model.effect_values.size > 0:
            update_effects(scene)
    if weighted or scene.model.user_offset_traits.shape[1] > 0:
        update_traits(scene)
    slice_noise = is_due(scene.sweep, plan.noise_slice_every)
    if settled and scene.model.learn_noise and slice_noise:
        update_noise_slice(scene)
    if scene.model.scales.size > 1:
        update_user_scales(scene)
    if scene.model.free_cutpoints and is_due(scene.sweep, plan.cutpoints_every):
        update_cutpoints(scene)
    rebuild_all_scores(scene)
    update_latent(scene)
    with_remainder = scene.state.user_factor.shape[1] > 0
    if with_remainder:
        move_remainder(scene, -1.0)
    if graded:
        update_grades_and_offsets(scene)
    elif offsets_are_given(scene):
        update_effects_given_offsets(scene)
    else:
        update_effects_and_offsets(scene)
    if with_remainder:
        move_remainder(scene, 1.0)
        update_remainder(scene)
    if settled and scene.model.learn_noise and not slice_noise:
        update_noise_given_latent(scene)
    update_hyper(scene)
    return scene.state, close_sweep(scene)
