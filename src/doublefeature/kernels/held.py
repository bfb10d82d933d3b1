r"""Effects where item offsets are given and not drawn, as in the second stage of a consensus.

With ρ given, y = latent score − base − ρ_i, and the effects have precision Σ g x x′ + I/σ_θ² and linear term Σ g x y
(see `doublefeature.kernels.gaussian`, whose sums run over users here, because a row's own offset is left out of y).
"""

from __future__ import annotations

from doublefeature._jit import kernel
from doublefeature.kernels.bits import active_slots
from doublefeature.kernels.gaussian import draw_normal, effect_normal, factorise
from doublefeature.kernels.offsets import update_user_offsets
from doublefeature.kernels.scene import Scene
from doublefeature.kernels.scores import add_offsets, rebuild_effects
from doublefeature.kernels.streams import GAUSSIAN, new_stream, seek, tick


@kernel
def offsets_are_given(scene: Scene) -> bool:
    """Whether items have offsets that are not drawn."""
    if scene.model.item_offsets:
        return False
    for offset in scene.state.item_offset:  # noqa: SIM110  compiled
        if offset != 0.0:
            return True
    return False


@kernel
def update_effects_given_offsets(scene: Scene) -> None:
    """Draw all effects given the item offsets, jointly with user offsets if there are any."""
    slots = active_slots(scene.state.active)
    if scene.model.effect_values.size == 0 and slots.size > 0:
        factor, x = effect_normal(scene, scene.users, slots)
        factorise(factor)
        stream = new_stream()
        seek(stream, scene.key, tick(scene.sweep, GAUSSIAN, 0), 0)
        draw_normal(factor, x, stream)
        for k in range(slots.size):
            scene.state.effect[slots[k]] = x[k]
    rebuild_effects(scene)
    if scene.model.user_offsets:
        update_user_offsets(scene)
    add_offsets(scene)
