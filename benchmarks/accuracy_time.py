"""How long until the default model predicts as well as myFM in the end: both on the same split, one after the other.

    python benchmarks/accuracy_time.py [--rank 32] [--iterations 512] [--sweeps 150]

MovieLens-1M, protocol `paper`, split 0 (DOUBLEFEATURE_DATA or ../shared/data). myFM's ordered probit runs first, on one
thread as it always does; its time is that of the fit. Then four chains run on two threads. After every fifth sweep the
draws of the second half so far are averaged over chains and scored on the held-out ratings, outside the clock. Printed
is the log score over time and the first time it is at least myFM's.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doublefeature import Schedule, load_dataset, preset
from doublefeature.evaluation.peers.registry import KNOWN
from doublefeature.evaluation.splits import Split, make_splits
from doublefeature.inference.chain import Job, Lane, Sweep, run_chains
from doublefeature.inference.compiling import compile_kernels, needs_compiling
from doublefeature.model.state import build_model
from doublefeature.posterior.draws import draw_of
from doublefeature.posterior.predict import levels_in_draw

EVERY = 5


class Watch:
    """Scores what all chains have so far, and keeps the time that takes off the clock."""

    def __init__(self, split: Split, goal: float) -> None:
        users, items, levels = (column.astype(np.int64) for column in split.test.triples())
        self.pairs, self.levels, self.goal = (users, items), levels, goal
        model = build_model(preset("full"), 0, 0, split.train.n_levels)
        self.base, self.scales = model.base, model.scales
        self.draws: list[tuple[int, int, NDArray[np.float64]]] = []
        self.begin, self.lost, self.reached = time.perf_counter(), 0.0, 0.0
        self.lock = threading.Lock()

    def add(self, sweep: Sweep) -> None:
        """Keep every so many sweeps, and say how good all that is kept is."""
        if sweep.number % EVERY:
            return
        with self.lock:
            now = time.perf_counter()
            draw = draw_of(sweep.state, sweep.chain, sweep.number, sweep.log_likelihood)
            self.draws.append((sweep.chain, sweep.number, levels_in_draw(draw, self.base, *self.pairs, self.scales)))
            score = self.score()
            seconds = now - self.begin - self.lost
            if not self.reached and score >= self.goal:
                self.reached = seconds
            print(f"  {seconds:6.0f} s  chain {sweep.chain}  sweep {sweep.number:4}  {score:.4f}", flush=True)
            self.lost += time.perf_counter() - now

    def close(self) -> None:
        """Nothing is left to do."""

    def score(self) -> float:
        """Return the log score of the second half of each chain so far, averaged."""
        last = {chain: number for chain, number, _ in self.draws}
        kept = [proba for chain, number, proba in self.draws if 2 * number > last[chain]]
        mean = sum(kept) / len(kept)
        return float(np.log(mean[np.arange(self.levels.size), self.levels]).mean())


def myfm(split: Split, rank: int, iterations: int) -> tuple[float, float]:
    """Return seconds of the fit and log score."""
    peer = KNOWN[f"myfm-{rank}"]
    begin = time.perf_counter()
    answer = peer.fit(split.train, {**peer.defaults, "iterations": iterations}, 0)
    seconds = time.perf_counter() - begin
    users, items, levels = (column.astype(np.int64) for column in split.test.triples())
    proba = answer(users, items).proba
    return seconds, float(np.log(proba[np.arange(levels.size), levels]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, default=32, choices=(8, 16, 32))
    parser.add_argument("--iterations", type=int, default=512)
    parser.add_argument("--sweeps", type=int, default=150)
    told = parser.parse_args()
    os.environ.setdefault("DOUBLEFEATURE_DATA", str(Path(__file__).resolve().parents[2] / "shared" / "data"))
    split = make_splits(load_dataset("ml-1m"), "paper", seed=0)[0]
    if needs_compiling("full"):
        compile_kernels("full")
    seconds, goal = myfm(split, told.rank, told.iterations)
    print(f"myFM, rank {told.rank}: {seconds:.0f} s, log score {goal:.4f}", flush=True)
    watch = Watch(split, goal)
    schedule = Schedule(sweeps=told.sweeps, warmup=told.sweeps - 1, thin=1, chains=4, threads=2)
    run_chains(Job(split.train, preset("full"), schedule, None, 0), [Lane(chain, watch) for chain in range(4)])
    if watch.reached:
        print(f"reached after {watch.reached:.0f} s: {watch.reached / seconds:.2f} of myFM's time")
    else:
        print("not reached")


if __name__ == "__main__":
    main()
