"""What the full model loses where the paper's is true: both presets on the paper's simulated data.

    python benchmarks/simulated.py [--seeds 4] [--tau 0.25] [--threads 2]

Data sets of section 5 (100 users, 150 items, a fifth of the ratings held out), fitted with each preset as it comes and
the default schedule. Printed are the shares of held-out ratings predicted exactly beside those of the true parameters,
and full less paper with its standard error over data sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np

from doublefeature.config import PRESETS, Schedule
from doublefeature.studies.recovery import Design, accuracy, codes_of, run_trial

NAMES = ("paper", "full", "truth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tau", type=float, default=0.25)
    parser.add_argument("--threads", type=int, default=None)
    told = parser.parse_args()
    design, schedule = Design(tau=told.tau), Schedule(threads=told.threads)
    found = []
    for seed in range(told.seeds):
        trials = [run_trial(design, seed, schedule, priors=PRESETS[name]) for name in NAMES[:2]]
        test = trials[0].test
        tables = [*(trial.predicted(test) for trial in trials), trials[0].oracle(test)]
        found.append([100 * accuracy(table, codes_of(test)[2]) for table in tables])
        print(f"seed {seed}: {show(found[-1])}", flush=True)
    shares = np.array(found)
    gaps = shares[:, 1] - shares[:, 0]
    error = gaps.std(ddof=1) / gaps.size**0.5 if gaps.size > 1 else float("nan")
    print(f"mean: {show(shares.mean(axis=0))}; full less paper {gaps.mean():+.2f} ± {error:.2f} points")


def show(shares: Iterable[float]) -> str:
    return ", ".join(f"{name} {share:.2f} %" for name, share in zip(NAMES, shares, strict=True))


if __name__ == "__main__":
    main()
