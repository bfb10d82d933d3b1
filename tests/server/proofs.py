"""What the service must show, with a size: small in `make test`, full in `make proofs`."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path

from tests.server.parts import Running, running

API = "/api/v1"


def survive_kills(folder: Path, database: str | None, kills: int, work: Path, seed: int = 0) -> tuple[int, int]:
    """Kill a service while ratings are written; return how many were acknowledged and how many of those were lost.

    Writes that were not acknowledged may be there or not, but never half.
    """
    rng = random.Random(seed)
    options = () if database is None else ("--database", database)
    told: dict[tuple[int, int], int] = {}
    lost = 0
    for number in range(kills):
        with running(folder, *options, log=work / f"kill-{number}.log") as service:
            lost += sum(
                not _has(service, pair, level) for pair, level in rng.sample(sorted(told.items()), min(5, len(told)))
            )
            writer = _Writer(service, number)
            writer.start()
            time.sleep(rng.uniform(0.05, 0.4))
            while not writer.acknowledged:
                time.sleep(0.01)
            service.kill()
            writer.join()
            told |= writer.acknowledged
    with running(folder, *options, log=work / "last.log") as service:
        lost += sum(not _has(service, pair, level) for pair, level in told.items())
    return len(told), lost


class _Writer(threading.Thread):
    """Puts ratings one after another until the service is gone."""

    def __init__(self, service: Running, number: int) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.number = number
        self.acknowledged: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        for count in range(100_000):
            user, item, level = 10_000 + 1000 * self.number + count // 20, count % 20, 1 + count % 5
            try:
                status, _, _ = self.service.ask("PUT", f"{API}/users/{user}/ratings/{item}", {"rating": level})
            except (OSError, HTTPException):  # killed before, or in the middle of, its answer
                return
            if status == 200:
                self.acknowledged[user, item] = level


def _has(service: Running, pair: tuple[int, int], level: int) -> bool:
    status, told, _ = service.ask("GET", f"{API}/users/{pair[0]}/ratings")
    return status == 200 and {"item": pair[1], "rating": level} in [
        {"item": row["item"], "rating": row["rating"]} for row in told["ratings"]
    ]


def swap_under_load(folder: Path, other: Path, swaps: int, work: Path) -> Counter[str]:
    """Swap two models to and fro while questions are asked; count answers, failures and mixed answers.

    Both models must know user 3; an answer is mixed when the same version ever says two different things.
    """
    place = work / "served"
    shutil.copytree(folder, place / "one")
    shutil.copytree(other, place / "two")
    shutil.copytree(other, place / "broken")
    segment = next((place / "broken").glob("chain-0/segment-*"))
    segment.write_bytes(segment.read_bytes()[:-8] + b"\0" * 8)
    found: Counter[str] = Counter()
    said: dict[tuple[str, int], bytes] = {}
    stop = threading.Event()

    def ask(service: Running) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            body = {"ratings": [{"item": turn % 7, "rating": 4}], "n": 3}
            status, told, _ = service.ask("POST", f"{API}/recommendations", body)
            found[f"{status // 100}xx"] += 1
            if status == 200:
                text = json.dumps(told).encode()
                found["mixed"] += said.setdefault((told["model"], turn % 7), text) != text

    with running(place / "one", log=work / "swap.log") as service:
        threads = [threading.Thread(target=ask, args=(service,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(swaps):
            name = "two" if number % 2 == 0 else "one"
            status, _, _ = service.ask("POST", f"{API}/model/reload", {"folder": name}, timeout=120)
            found["swaps"] += status == 200
        status, _, _ = service.ask("POST", f"{API}/model/reload", {"folder": "broken"}, timeout=120)
        found["broken refused"] += status == 409
        ready, told, _ = service.ask("GET", "/health/ready")
        found["ready with alarm"] += ready == 200 and bool(told["alarm"])
        stop.set()
        for thread in threads:
            thread.join()
    found["versions"] = len({version for version, _ in said})
    return found
