"""`python -m tests.server` runs the full tier: one line per bar, exit code 1 if one fails."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from fastapi.testclient import TestClient

from doublefeature import DoubleFeature
from doublefeature.posterior.forgetting import forget
from doublefeature.server.app import guarded, open_service
from doublefeature.server.settings import Settings
from tests.server.conftest import SCHEDULE, TITLES, tiny_ratings
from tests.server.fuzz import fuzz
from tests.server.parts import postgres_or_skip
from tests.server.proofs import survive_kills, swap_under_load
from tests.server.test_equality import check_answers

FUZZED, KILLS, SWAPS, COMPARED = 10_000, 20, 50, 1000


def _model(folder: Path) -> Path:
    items = {k: {"title": title} for k, title in enumerate(TITLES)}
    model = DoubleFeature(seed=1, schedule=SCHEDULE).fit(tiny_ratings(), items=items, holdout=0.05, out=folder)
    _ = model.features_
    return folder


def _fuzz(folder: Path, work: Path) -> tuple[bool, str]:
    requests = errors = rounds = 0
    passed = True
    while requests < FUZZED:
        place = work / str(rounds)
        place.mkdir()
        found = fuzz(folder, 60, place)
        requests, errors, rounds = requests + found.requests, errors + found.server_errors, rounds + 1
        passed = passed and found.passed
        if not found.passed:
            return False, f"{requests} requests, {errors} of them 5xx; {found.told[-3000:]}"
    return passed and not errors, f"{requests} requests, {errors} of them 5xx, all as described"


def _equality(folder: Path, work: Path) -> tuple[bool, str]:
    copy = Path(shutil.copytree(folder, work / "model"))
    service = open_service(copy, Settings(rate=1e6, burst=10**6))
    with TestClient(guarded(service), base_url="http://localhost") as client:
        count = check_answers(client, DoubleFeature.load(folder), COMPARED)
    return True, f"{count} answers equal to 1e-9"


def _kills(folder: Path, work: Path, database: str | None) -> tuple[bool, str]:
    copy = Path(shutil.copytree(folder, work / "model"))
    told, lost = survive_kills(copy, database, KILLS, work)
    return lost == 0 and told > 0, f"{KILLS} kills, {told} ratings acknowledged, {lost} lost"


def _swaps(folder: Path, work: Path) -> tuple[bool, str]:
    other = Path(shutil.copytree(folder, work / "other"))
    forget(other, 29)
    found = swap_under_load(folder, other, SWAPS, work)
    fine = found["swaps"] == SWAPS and not found["5xx"] and not found["mixed"] and found["broken refused"] == 1
    return fine, ", ".join(f"{count} {name}" for name, count in sorted(found.items()))


def main() -> int:
    """Run every bar."""
    failed = False
    with tempfile.TemporaryDirectory() as root, postgres_or_skip(Path(root)) as postgres:
        folder = _model(Path(root) / "fitted")
        bars: dict[str, Callable[[Path], tuple[bool, str]]] = {
            "S1 fuzz": lambda work: _fuzz(folder, work),
            "S4 equality": lambda work: _equality(folder, work),
            "S5 swap": lambda work: _swaps(folder, work),
            "S6 kills, SQLite": lambda work: _kills(folder, work, None),
            "S6 kills, PostgreSQL": lambda work: _kills(folder, work, postgres.fresh()),
        }
        for number, (name, bar) in enumerate(bars.items()):
            work = Path(root) / f"bar-{number}"
            work.mkdir()
            fine, told = bar(work)
            failed = failed or not fine
            print(f"{'ok  ' if fine else 'FAIL'} {name}: {told}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
