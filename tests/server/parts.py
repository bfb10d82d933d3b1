"""Real parts: a PostgreSQL server, a running service, a browser. Absent ones skip tests, except under CI."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[2]
_BINARIES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin")


def absent(what: str, package: str) -> NoReturn:
    """Skip, or under CI fail: there the part must be there."""
    told = f"{what} is not installed (Debian: apt-get install {package})"
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(told)
    pytest.skip(told)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Postgres:
    """A running server; `fresh` makes an empty database and returns its address."""

    port: int
    made: int = 0

    def fresh(self) -> str:
        import psycopg

        self.made += 1
        name = f"df{self.made}"
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"


def _binary(name: str) -> str | None:
    for pattern in _BINARIES:
        for folder in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            if (folder / name).exists():
                return str(folder / name)
    return None


@contextmanager
def postgres_or_skip(folder: Path) -> Iterator[Postgres]:
    """Start a server in a folder that an unprivileged user can reach."""
    initdb, pg_ctl = _binary("initdb"), _binary("pg_ctl")
    if initdb is None or pg_ctl is None:
        absent("PostgreSQL", "postgresql")
    home = Path(tempfile.mkdtemp(prefix="df-postgres-", dir="/tmp"))
    data, port = home / "data", free_port()
    user, group, groups = None, None, None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        account = _account("postgres") or pwd.getpwnam("nobody")
        user, group, groups = account.pw_uid, account.pw_gid, [account.pw_gid]
        os.chown(home, user, group)
    log = home / "log"

    def run(*command: str) -> None:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            cwd="/",
            timeout=120,
            user=user,
            group=group,
            extra_groups=groups,
        )

    run(initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
    options = f"-h 127.0.0.1 -p {port} -k {home}"
    run(pg_ctl, "-D", str(data), "-l", str(log), "-o", options, "-w", "-t", "60", "start")
    try:
        yield Postgres(port)
    finally:
        run(pg_ctl, "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(home, ignore_errors=True)


def _account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


class Running:
    """A service in its own process."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self.log = log

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None, timeout: float = 30
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request; return status, JSON and headers."""
        data = None if body is None else json.dumps(body).encode()
        known = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(
            self.address + path.lstrip("/"), data, {**known, **(headers or {})}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null"), dict(answer.headers)
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code, json.loads(problem.read() or b"null"), dict(problem.headers)

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def running(folder: Path, *options: str, log: Path) -> Iterator[Running]:
    """Start `doublefeature serve` on a free port and wait until it says where it listens."""
    command = [sys.executable, "-m", "doublefeature", "serve", str(folder), "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, text=True, env=environment)
    try:
        yield Running(process, _wait_for_address(process, log), log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def _wait_for_address(process: subprocess.Popen[str], log: Path, seconds: float = 180.0) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for line in log.read_text().splitlines():
            if line.startswith("open http"):
                return line.split()[1]
        if process.poll() is not None:
            raise AssertionError(f"the service ended: {log.read_text()[-2000:]}")
        time.sleep(0.05)
    raise AssertionError(f"the service did not start: {log.read_text()[-2000:]}")
