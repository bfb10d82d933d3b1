"""Time what a newcomer waits for: the import, and the first sweep of a process with kernels cached on disk.

    python benchmarks/first_use.py          prints JSON

Kernels are cached in a folder of this run's own, filled by a first process that starts with nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

IMPORT_BAR = 1.0
SWEEP_BAR = 3.0
N_USERS, N_ITEMS, SHARE = 100, 50, 0.3
IMPORT = "import doublefeature"
IMPORT_ALL = "import doublefeature.recommender"
FIRST_SWEEP = f"""
import numpy as np
from doublefeature.config import Priors, Schedule
from doublefeature.inference.chain import run_chain
from doublefeature.ratings import Ratings
rng = np.random.default_rng(1)
users, items = np.nonzero(rng.random(({N_USERS}, {N_ITEMS})) < {SHARE})
levels = rng.integers(0, 5, users.size).astype(np.uint8)
ratings = Ratings.from_codes(
    users.astype(np.uint32), items.astype(np.uint32), levels,
    users=range({N_USERS}), items=range({N_ITEMS}), levels=range(1, 6),
)
next(run_chain(ratings, Priors(), Schedule(sweeps=11, warmup=10, thin=1, chains=1, threads=THREADS)))
"""
"""Eleven sweeps: the first ten make no features, so that only the eleventh has used every kernel."""


def seconds(program: str, environment: dict[str, str]) -> float:
    """Return the wall-clock time of a process from start to end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return time.perf_counter() - start


def median(program: str, environment: dict[str, str], repeats: int) -> float:
    return round(statistics.median(seconds(program, environment) for _ in range(repeats)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="processes timed, of which the median counts")
    parser.add_argument("--threads", type=int, default=1, help="threads of the chain")
    options = parser.parse_args()
    sweep = FIRST_SWEEP.replace("THREADS", str(options.threads))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        compiling = seconds(sweep, environment)
        figures = {
            "python_seconds": median("pass", environment, options.repeats),
            "import_seconds": median(IMPORT, environment, options.repeats),
            "import_bar": IMPORT_BAR,
            "import_recommender_seconds": median(IMPORT_ALL, environment, options.repeats),
            "compiling_sweep_seconds": round(compiling, 1),
            "cached_sweep_seconds": median(sweep, environment, options.repeats),
            "cached_sweep_bar": SWEEP_BAR,
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
