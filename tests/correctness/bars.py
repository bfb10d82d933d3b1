"""The full tier: `python -m tests.correctness` prints one line per bar and fails if one fails.

    python -m tests.correctness [--effort 1.0] [--only WORD] [--processes 2]

Bars are independent and run in processes of their own. Effort 1 is the stated number of sweeps; less is a rehearsal.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

import numpy as np

Outcome = tuple[str, str, bool]


def _enumeration(name: str, effort: float) -> Outcome:
    from tests.correctness.enumeration import FUNCTIONALS, enumeration_z

    z = enumeration_z(name, int(8e6 * effort))
    return f"C2 enumeration, {name}", _worst(z, FUNCTIONALS, "< 4"), bool(np.abs(z).max() < 4)


def _wrong(name: str, effort: float) -> Outcome:
    from tests.correctness.enumeration import FUNCTIONALS
    from tests.correctness.wrong import CONTROL_NAME, SUBTLE, wrong_z

    z = wrong_z(name, int((6e6 if name == SUBTLE else 2e6) * effort))
    if name == CONTROL_NAME:
        return f"C2 control, {name}", _worst(z, FUNCTIONALS, "< 4"), bool(np.abs(z).max() < 4)
    return _must_fail(f"C2 must fail, {name}", z, FUNCTIONALS)


def _geweke(index: int, effort: float) -> Outcome:
    import numba

    from tests.correctness.geweke import ENGINES, STATISTICS, geweke_z

    engine = ENGINES[index]
    numba.set_num_threads(min(engine.threads, numba.config.NUMBA_NUM_THREADS))
    n_sweeps = int(engine.sweeps * effort)
    z = geweke_z(engine, n_sweeps, n_sweeps // 4)  # draws from the prior are independent, sweeps are not
    return f"C3 Geweke, {n_sweeps:,} sweeps, {engine.name}", _worst(z, STATISTICS, "< 4"), bool(np.abs(z).max() < 4)


def _mutation(name: str, effort: float) -> Outcome:
    from tests.correctness.planted import MUTATIONS, STATISTICS, mutant_z

    z = mutant_z(MUTATIONS[name], int(5e5 * effort), int(5e4 * effort))
    return _must_fail(f"C3 must fail, {name}", z, STATISTICS)


def _planted(index: int, effort: float) -> Outcome:
    from tests.correctness.planted import PLANTED, STATISTICS, planted_z

    planted = PLANTED[index]
    z = planted_z(planted, int(5e5 * effort), int(5e4 * effort))
    return _must_fail(f"C3 must fail, {planted.name}", z, STATISTICS)


def _ratios(effort: float) -> Outcome:
    from tests.correctness.ratios import worst_ratio_error

    errors = worst_ratio_error(max(20, int(1000 * effort)), seed=11)
    name = max(errors, key=lambda key: errors[key])
    return "C1 unit ratios", f"worst error {errors[name]:.1e} ({name}), bar 1e-9", errors[name] < 1e-9


def _numerics(effort: float) -> Outcome:
    from tests.correctness.numerics import worst_interval_error

    worst = worst_interval_error(int(1e5 * effort))
    return "C9 log interval", f"worst relative error {worst:.1e}, bar 1e-12", worst < 1e-12


def _calibration(effort: float) -> Outcome:
    from tests.correctness.calibration import calibration

    report = calibration(max(40, int(500 * effort)))
    covered = report.pop("coverage")
    name = min(report, key=lambda key: report[key])
    shares = ", ".join(f"{share:.0%}: {found:.1%}" for share, (found, _) in covered.items())
    figure = f"smallest p {report[name]:.4f} ({name}), bar {0.01 / 13:.5f}; intervals cover {shares}, bar |z| 3"
    holds = report[name] > 0.01 / 13 and all(abs(z) < 3.0 for _, z in covered.values())
    return "C4 calibration", figure, holds


def _repeats(effort: float) -> Outcome:
    """R1, R2: threads and repetition change nothing, seeds and chains change everything."""
    from tests.kernels.test_invariance import digest, run, simulated

    same = {digest(3, 0, threads) for threads in (1, 2)} | {digest(3, 0, 1) for _ in range(max(2, int(20 * effort)))}
    others = {digest(seed, chain, 1) for seed, chain in ((4, 0), (3, 1), (4, 1), (0, 3))}
    n_sweeps = max(400, int(5_000 * effort))
    traces = [run(simulated(60, 25, stream=(3, chain)), n_sweeps)[1][n_sweeps // 10 :: 10] for chain in range(4)]
    correlation = float(np.abs(np.corrcoef(traces)[np.triu_indices(4, 1)]).max())
    figure = f"{len(same)} digest of all repeats, {len(others)} of 4 other streams, chains correlate {correlation:.2f}"
    holds = len(same) == 1 and len(others | same) == 5 and correlation < 0.2
    return "R1, R2 repeats", f"{figure} (bar 0.2)", holds


def _recovery(tau: float, effort: float) -> Outcome:
    from doublefeature.config import Schedule
    from doublefeature.studies.recovery import Design, recover

    schedule = Schedule(
        sweeps=max(60, int(1200 * effort)), warmup=max(30, int(600 * effort)), thin=6, chains=4, threads=1
    )
    gaps = []
    for seed in range(10):
        result = recover(Design(tau=tau), seed, schedule)
        gaps.append(100.0 * (result.oracle - result.model))
    mean_bar, worst_bar = (1.5, 3.0) if tau < 0.4 else (3.5, np.inf)
    figure = f"oracle − accuracy: mean {np.mean(gaps):.2f} (bar {mean_bar}), worst {max(gaps):.2f} (bar {worst_bar})"
    return f"C7 recovery, τ = {tau}", figure + " points", bool(np.mean(gaps) <= mean_bar and max(gaps) <= worst_bar)


def _switch(name: str, effort: float) -> Outcome:
    from tests.correctness.switches import switch_bar

    return switch_bar(name, effort)


def _must_fail(name: str, z: np.ndarray, names: tuple[str, ...]) -> Outcome:
    return name, _worst(z, names, "> 8"), bool(np.abs(z).max() > 8)


def _worst(z: np.ndarray, names: tuple[str, ...], bar: str) -> str:
    at = int(np.abs(z).argmax())
    return f"max |z| {abs(z[at]):.2f} ({names[at]}), bar {bar}"


def bars() -> list[Callable[[float], Outcome]]:
    """Return all bars, the longest first."""
    from tests.correctness.enumeration import SETS
    from tests.correctness.geweke import ENGINES
    from tests.correctness.planted import MUTATIONS, PLANTED
    from tests.correctness.switches import SWITCHES
    from tests.correctness.wrong import CONTROL_NAME, WRONG

    return [
        partial(_recovery, 0.25),
        *(partial(_geweke, index) for index in range(len(ENGINES))),
        _calibration,
        partial(_recovery, 0.5),
        *(partial(_switch, switch.name) for switch in SWITCHES),
        *(partial(_enumeration, name) for name in SETS),
        *(partial(_wrong, name) for name in (*WRONG, CONTROL_NAME)),
        *(partial(_mutation, name) for name in MUTATIONS),
        *(partial(_planted, index) for index in range(len(PLANTED))),
        _ratios,
        _repeats,
        _numerics,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--only", default="", help="run the bars whose description contains this word")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    chosen = [bar for bar in bars() if options.only.lower() in _describe(bar).lower()]
    failed = 0
    begin = time.monotonic()
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(bar, options.effort) for bar in chosen]):
            name, figure, passed = future.result()
            failed += not passed
            print(f"{'pass' if passed else 'FAIL'}  {name}: {figure}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} bars hold ({time.monotonic() - begin:.0f} s)")
    return int(failed > 0)


def _describe(bar: Callable[[float], Outcome]) -> str:
    function = bar.func if isinstance(bar, partial) else bar
    return f"{function.__name__} {' '.join(map(str, getattr(bar, 'args', ())))}"
