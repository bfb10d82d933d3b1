"""Load a running service: known users, fold-in, overload and recovery, a soak.

    python benchmarks/serving.py MODEL                     every scene, ten seconds each
    python benchmarks/serving.py MODEL --seconds 600 --scene soak

A client on the same machine sends requests at a steady rate whatever the answers take (open loop), so waiting shows.
Needs the extras server and dev. Prints one JSON line per scene: requests by status, latency in ms, memory in MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDED = 50
MOST_PAGES = 50  # of 200 users each that are asked about
SCENES = ("known", "folded", "overload", "soak")


@dataclass
class Service:
    """A service that was started for the measurement."""

    process: subprocess.Popen[str]
    address: str
    port: int

    def read(self, path: str) -> Any:
        """Return what is at an address."""
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            data = answer.read().decode()
        return json.loads(data) if data.startswith("{") else data

    def memory(self) -> float:
        """Resident memory in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def wait_until_warm(self) -> float:
        """Wait for the table of predictions and return how long that took."""
        began = time.monotonic()
        while "doublefeature_table_filled 1.0" not in self.read("metrics"):
            time.sleep(0.2)
        return time.monotonic() - began


def start(model: Path, database: str | None) -> Service:
    command = [sys.executable, "-m", "doublefeature", "serve", str(model), "--port", "0", "--rate", "100000"]
    command += [] if database is None else ["--database", database]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("open http"):
            address = line.split()[1]
            break
    else:
        raise SystemExit("the service did not start")
    drain = "import sys\nfor _ in sys.stdin: pass"
    subprocess.Popen([sys.executable, "-c", drain], stdin=process.stderr)
    return Service(process, address, int(address.rstrip("/").rpartition(":")[2]))


@dataclass
class Tally:
    """What came back."""

    statuses: Counter[int] = field(default_factory=Counter)
    times: dict[int, list[float]] = field(default_factory=dict)

    def add(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        self.times.setdefault(status, []).append(seconds)

    def summary(self) -> dict[str, Any]:
        """Return counts and latencies."""
        fine, shed = sorted(self.times.get(200, [])), sorted(self.times.get(503, []) + self.times.get(429, []))
        return {
            "statuses": dict(sorted(self.statuses.items())),
            **{f"p{share}_ms": _quantile(fine, share / 100) for share in (50, 90, 99)},
            "shed_p99_ms": _quantile(shed, 0.99),
        }


def _quantile(values: list[float], share: float) -> float | None:
    return round(1000 * values[min(len(values) - 1, int(share * len(values)))], 2) if values else None


class Client:
    """Keeps connections open and sends one request at a time on each."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, method: str, path: str, body: bytes) -> int:
        """Send a request and return the status, 0 when the connection broke."""
        while self.idle and self.idle[-1][0].at_eof():  # the service hangs up on connections that were idle too long
            self.idle.pop()[1].close()
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        try:
            found = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(x.split(b":")[1]) for x in found.split(b"\r\n") if x.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
            return 0
        self.idle.append((reader, writer))
        return int(found.split()[1])


class Load:
    """Makes requests for a model's users and items."""

    def __init__(self, service: Service) -> None:
        pages = (service.read(f"api/v1/users?limit=200&offset={200 * page}")["users"] for page in range(MOST_PAGES))
        self.users = [row["user"] for page in pages for row in page]
        self.items = [row["item"] for row in service.read("api/v1/items?limit=200")["items"]]
        self.levels = service.read("api/v1/model")["levels"]
        self.rng = random.Random(1)

    def known(self) -> tuple[str, str, bytes]:
        """Ask for a known user."""
        return "GET", f"/api/v1/users/{self.rng.choice(self.users)}/recommendations", b""

    def folded(self) -> tuple[str, str, bytes]:
        """Ask for somebody with fifty ratings."""
        items = self.rng.sample(self.items, min(FOLDED, len(self.items) - 1))
        rated = [{"item": item, "rating": self.rng.choice(self.levels)} for item in items]
        return "POST", "/api/v1/recommendations", json.dumps({"ratings": rated}).encode()


async def drive(port: int, make: Any, rate: float, seconds: float) -> Tally:
    """Send requests at a steady rate and wait for every answer."""
    client, tally, tasks = Client(port), Tally(), []
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(due: float) -> None:
        tally.add(await client.send(*make()), loop.time() - due)

    for number in range(int(rate * seconds)):
        due = began + number / rate
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    return tally


def run(service: Service, scene: str, seconds: float, rates: tuple[float, float]) -> dict[str, Any]:
    load, (known, folded) = Load(service), rates
    if scene == "known":
        return asyncio.run(drive(service.port, load.known, known, seconds)).summary()
    if scene == "folded":
        return asyncio.run(drive(service.port, load.folded, folded, seconds)).summary()
    if scene == "overload":
        storm = asyncio.run(drive(service.port, load.folded, 5 * folded * 2, seconds)).summary()
        time.sleep(5)
        calm = asyncio.run(drive(service.port, load.folded, folded, min(seconds, 5))).summary()
        return {"during": storm, "five seconds later": calm}
    before = service.memory()
    parts = [asyncio.run(drive(service.port, load.known, 0.8 * known, seconds / 2)).summary() for _ in range(2)]
    return {"first half": parts[0], "second half": parts[1], "mb_before": before, "mb_after": service.memory()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--scene", choices=SCENES, action="append")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--known-rate", type=float, default=200.0)
    parser.add_argument("--folded-rate", type=float, default=20.0)
    parser.add_argument("--database")
    given = parser.parse_args()
    service = start(given.model, given.database)
    try:
        print(json.dumps({"scene": "warm-up", "seconds": round(service.wait_until_warm(), 1)}), flush=True)
        for scene in given.scene or SCENES:
            found = run(service, scene, given.seconds, (given.known_rate, given.folded_rate))
            print(json.dumps({"scene": scene, "seconds": given.seconds, **found}), flush=True)
    finally:
        service.process.terminate()
        service.process.wait(30)


if __name__ == "__main__":
    main()
