r"""The second stage: what a shard's features become once item offsets are merged.

refresh   every stored draw takes one of the merged ρ̃ and goes on with it held for a few sweeps of everything else,
          which keep p(A, B, θ, τ, … | ρ̃, ratings of the shard). Which ρ̃ goes with which draw is the assignment with
          the least total Σ_i (ρ_i − ρ̃_i)²/σ_si² within a chain: near ones meet, and no draw is used twice
paper     the t-th stored draw stands beside the t-th ρ̃; the share of a chain's draws with the least such distance is
          kept, with ρ̃ in place of ρ
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Moves
from doublefeature.inference.engines import Watch
from doublefeature.inference.shards import SECOND_STAGE, shard_seed
from doublefeature.kernels.scene import MOVE_NAMES, Scene
from doublefeature.kernels.sweep import Plan, build_plan, build_scene, prepare, sweep_once
from doublefeature.kernels.traits import update_traits
from doublefeature.model.choices import traits_of
from doublefeature.model.state import ITEM_SD, Traits
from doublefeature.posterior.assignment import assign
from doublefeature.posterior.draws import Draw, Posterior, Trace, draw_of
from doublefeature.posterior.predict import levels_in_draw
from doublefeature.posterior.sharding import ShardedFolder
from doublefeature.posterior.store import ModelFolder
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]


def finish_shard(path: str, shard: int, threads: int, watch: Watch) -> None:
    """Run the second stage of a shard, chain by chain, or go on with it: a task for an engine."""
    folder = ShardedFolder.open(path)
    consensus = folder.consensus()
    if consensus is None:
        raise ValueError("there are no merged offsets yet")
    source, target = folder.shard(shard), _target(folder, shard)
    posterior = source.posterior()
    with target.writing():
        for chain, draws in enumerate(posterior.chains):
            if target.sweeps_done[chain]:
                continue
            merged = consensus.offsets[chain]
            near = distances(draws, merged, consensus.shard_sd[shard])
            if folder.sharding.second_stage == "paper":
                found = nearest(draws, merged, near, target.schedule.n_sweeps)
                kept = [_judged(draw, posterior, source.ratings) for draw in found]
            else:
                seed = shard_seed(folder.whole.seed, shard, SECOND_STAGE)
                held = Held(source, (seed, chain), threads)
                pairs = zip((draws[place] for place in assign(near).tolist()), merged, strict=True)
                kept = list(held.refresh(pairs, folder.sharding.refresh_sweeps, watch))
            if watch.stop.is_set():
                return
            priors = folder.whole.priors.on_scale(source.ratings.n_levels)
            sd = None if folder.sharding.merge == "paper" else priors.item_offset_sd
            kept = [_numbered(draw, chain, place + 1, sd) for place, draw in enumerate(kept)]
            target.append(_trace(chain, kept), kept, None)


def _target(folder: ShardedFolder, shard: int) -> ModelFolder:
    """Open the folder of a shard's merged draws, or make it."""
    if (folder.merged_path(shard) / "manifest.json").is_file():
        return folder.merged(shard)
    source = folder.shard(shard)
    return ModelFolder.create(
        folder.merged_path(shard),
        ratings=source.ratings,
        priors=folder.sharding.merged_priors(folder.whole.priors),
        schedule=folder.merged_schedule,
        moves=source.moves,
        seed=source.seed,
        preset=source.preset,
        items=folder.whole.items,
        heldout=source.heldout,
    )


def distances(draws: Sequence[Draw], merged: FloatArray, sd: FloatArray) -> FloatArray:
    """Return Σ_i (ρ̃_i − ρ_i)²/σ_i² of every merged offset (rows) and every draw (columns)."""
    rows, columns = merged / sd, np.array([draw.item_offset for draw in draws]) / sd
    centre = columns.mean(axis=0)
    rows, columns = rows - centre, columns - centre
    squares = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1) - 2.0 * rows @ columns.T
    kept: FloatArray = np.maximum(squares, 0.0)
    return kept


def nearest(draws: Sequence[Draw], merged: FloatArray, near: FloatArray, count: int) -> list[Draw]:
    """Return so many draws, those nearest to the merged offsets drawn beside them, with these offsets."""
    kept = np.sort(np.argsort(np.diag(near), kind="stable")[:count])
    return [draws[place]._replace(item_offset=merged[place].copy()) for place in kept.tolist()]


class Held:
    """Sweeps of everything but item offsets."""

    def __init__(self, source: ModelFolder, stream: tuple[int, int], threads: int) -> None:
        self._ratings, self._priors = source.ratings, source.priors
        self._moves: Moves = source.moves
        self._stream, self._threads = stream, threads
        self._traits: Traits = traits_of(self._ratings.arrays, self._priors, self._ratings.covariates)
        plan = build_plan(self._moves, self._ratings.n_users, graded=self._priors.graded)
        self._plan: Plan = plan._replace(settle=0)

    def refresh(self, pairs: Iterator[tuple[Draw, FloatArray]], sweeps: int, watch: Watch) -> Iterator[Draw]:
        """Go on from each draw with the offsets beside it held; end early when the watch says stop."""
        for place, (draw, offsets) in enumerate(pairs):
            if watch.stop.is_set():
                return
            first = place * (sweeps + 1)
            scene = self.scene(draw, offsets)._replace(sweep=first)
            if scene.state.user_weights.shape[1] + scene.state.user_offset_weights.size > 0:
                update_traits(scene)
            log_likelihood = 0.0
            for number in range(first + 1, first + 1 + sweeps):
                state, log_likelihood = sweep_once(scene._replace(sweep=number), self._plan)
                scene = scene._replace(state=state)
            yield draw_of(scene.state, draw.chain, draw.sweep, log_likelihood)

    def scene(self, draw: Draw, offsets: FloatArray) -> Scene:
        """Return the scene of a draw whose item offsets are given; weights of traits start anew."""
        start = draw.to_state()._replace(item_offset=offsets)
        scene = build_scene(self._ratings.arrays, self._priors, self._moves, start, self._stream, self._traits)
        held = hold_offsets(scene)._replace(threads=self._threads)
        prepare(held)
        return held


def hold_offsets(scene: Scene) -> Scene:
    """Return the scene in which item offsets and their spread are given, and no block draws them."""
    return scene._replace(model=scene.model._replace(item_offsets=False, learn_item_sd=False))


def _judged(draw: Draw, posterior: Posterior, ratings: Ratings) -> Draw:
    """Return a draw with the log likelihood its new offsets give."""
    users, items, levels = (column.astype(np.int64) for column in ratings.triples())
    proba = levels_in_draw(draw, posterior.base, users, items, posterior.scales)
    chances = np.maximum(proba[np.arange(levels.size), levels], 1e-300)
    return draw._replace(log_likelihood=float(np.log(chances).sum()))


def _numbered(draw: Draw, chain: int, number: int, sd: float | None) -> Draw:
    """Return a draw in its place among merged ones, with the model's σ_ρ where shards had a wider one."""
    hyper = draw.hyper.copy()
    if sd is not None:
        hyper[ITEM_SD] = sd
    return draw._replace(chain=chain, sweep=number, hyper=hyper)


def _trace(chain: int, draws: Sequence[Draw]) -> Trace:
    return Trace(
        chain=chain,
        log_likelihood=np.array([draw.log_likelihood for draw in draws]),
        n_features=np.array([draw.n_features for draw in draws], np.int64),
        hyper=np.array([draw.hyper for draw in draws]),
        tally=np.zeros((len(MOVE_NAMES), 2), np.int64),
        move_names=MOVE_NAMES,
    )
