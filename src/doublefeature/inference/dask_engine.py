"""Dask: workers of a local cluster or of a running scheduler. The only file that knows about it.

Calls go to workers as tasks, each pinned to its worker, run once and forgotten: nothing of a chain is in Dask's graph.
While a call runs, workers talk to each other over connections of their own, made with the addresses and certificates
that Dask gave them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from socket import socket
from ssl import SSLContext
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, Worker, wait
from distributed.comm import CommClosedError, get_address_host
from distributed.security import Security

from doublefeature._version import __version__
from doublefeature.errors import EnvironmentProblem
from doublefeature.inference.desks import (
    DESKS,
    DONE,
    LOST,
    close_desk,
    forget_idle,
    hurry,
    one_line,
    problem_of,
    serve,
    versions,
)
from doublefeature.inference.sockets import Door, SocketLink, knock
from doublefeature.inference.teams import Desk, LostWorker

LOCAL = "dask"
ANSWER_SECONDS = 5.0
"""How long a scheduler or a first worker is waited for."""
RETURN_SECONDS = 20.0
"""How long a lost worker is waited for before the others go on alone."""
_PATIENCE = 0.2
_GRACE_SECONDS = 2.0
_SETTINGS = {
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "5s",
    "distributed.admin.large-graph-warning-threshold": "100GB",
}
"""Sweeps can be long, and states of chains are large."""
_LOST_PROBLEMS = (OSError, CommClosedError, asyncio.CancelledError, KilledWorker)


class Connection:
    """A client, and the cluster behind it when it was started here."""

    def __init__(self, engine: str, workers: int | None = None) -> None:
        """Start a local cluster for the name `dask`, or find the scheduler at `dask://host:port` or `tls://…`."""
        self.most = workers
        for name in ("distributed", "distributed.client", "distributed.core", "distributed.nanny"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        dask.config.set(_SETTINGS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._cluster = _start_cluster(workers or os.cpu_count() or 1) if engine == LOCAL else None
            self.address = self._cluster.scheduler_address if self._cluster else _address(engine)
            self.client = _find_scheduler(self.address)
        try:
            with self.problems():
                self.check_versions(self.workers(at_least=1, seconds=ANSWER_SECONDS))
        except BaseException:
            self.close()
            raise

    @property
    def is_local(self) -> bool:
        """Whether the cluster was started here."""
        return self._cluster is not None

    def workers(self, at_least: int, seconds: float) -> list[str]:
        """Return addresses of the workers, once there are so many or after so long."""
        give_up = time.monotonic() + seconds
        while True:
            with self.problems():
                found = sorted(self.client.scheduler_info(n_workers=-1)["workers"])
            if len(found) >= at_least or (found and time.monotonic() > give_up):
                return found[: self.most]
            if time.monotonic() > give_up:
                remedy = f"Start some: dask worker {self.address} --nthreads 1"
                raise EnvironmentProblem(f"the scheduler at {self.address} has no workers. {remedy}")
            time.sleep(_PATIENCE)

    @contextmanager
    def problems(self) -> Iterator[None]:
        """Turn a scheduler that is gone into one line."""
        try:
            if self.client.status != "running":
                raise CommClosedError("the connection has ended")
            yield
        except (OSError, CommClosedError, TimeoutError) as problem:
            raise EnvironmentProblem(
                f"the scheduler at {self.address} is gone ({one_line(problem)}). What is done is kept: resume."
            ) from problem

    def check_versions(self, workers: list[str]) -> None:
        """Raise unless workers have what is here."""
        ours = versions()
        try:
            theirs = self.client.run(greet, self.is_local, workers=workers)
        except _LOST_PROBLEMS:
            raise
        except Exception as problem:
            raise EnvironmentProblem(
                f"workers of {self.address} cannot run doublefeature ({one_line(problem)}). "
                f"Install there: doublefeature[dask]=={__version__}"
            ) from problem
        for address, found in theirs.items():
            for name, version in ours.items():
                if found.get(name) != version:
                    raise EnvironmentProblem(
                        f"worker {address} has {name} {found.get(name)}, here it is {version}. "
                        "Draws are only the same with the same versions everywhere: install these there."
                    )

    def wait(self, futures: list[Future], seconds: float) -> bool:
        """Wait for the first of some calls to end; return False if none did within so many seconds."""
        try:
            with self.client.as_current():
                wait(futures, timeout=seconds, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return False
        except CancelledError:  # the scheduler is gone, and with it what it was to tell
            pass
        return True

    def close(self) -> None:
        """Leave the scheduler, and end a cluster that was started here."""
        with suppress(Exception):
            self.client.close(timeout=2)
        if self._cluster is not None:
            with suppress(Exception):
                self._cluster.close(timeout=10)


def _start_cluster(workers: int) -> LocalCluster:
    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
    except (OSError, RuntimeError, TimeoutError) as problem:
        raise EnvironmentProblem(f"a local Dask cluster could not be started: {one_line(problem)}.") from problem


def _address(engine: str) -> str:
    scheme, _, place = engine.partition("://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or set(place) & set(" /?#"):
        raise EnvironmentProblem(
            f"engine {engine!r} is no address. Write {scheme}://host:port, such as {scheme}://head:8786"
        )
    return f"{'tcp' if scheme == LOCAL else scheme}://{place}"


def _find_scheduler(address: str) -> Client:
    if address.startswith("tls"):
        _check_certificates()
    try:
        return Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except Exception as problem:
        remedy = "Start one (dask scheduler), or check the address"
        raise EnvironmentProblem(
            f"no Dask scheduler answers at {address} ({one_line(problem)}). {remedy}."
        ) from problem


def _check_certificates() -> None:
    """Raise unless Dask's settings name certificates that can be used."""
    names = ", ".join(f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY"))
    try:
        found, why = _context(Security().get_connection_args("client")), "are not set"
    except (OSError, ValueError) as problem:
        found, why = None, f"cannot be used ({one_line(problem)})"
    if found is None:
        raise EnvironmentProblem(f"the certificates for tls {why}. Set {names} to their files.")


def greet(local: bool) -> dict[str, str]:
    """Return a worker's versions; one that was started here leaves Ctrl-C to who started it."""
    if local:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return versions()


# What runs on workers.


_DOORS: dict[str, Door] = {}


def open_door(run: str, dask_worker: Worker) -> tuple[str, int]:
    """Return where other workers can reach this one."""
    forget_idle()
    host = get_address_host(dask_worker.address)
    _DOORS[run] = Door(host, run.encode(), _context(dask_worker.security.get_listen_args("worker")))
    return _DOORS[run].address


async def open_desk(run: str, doors: list[tuple[str, int]], workers: list[str], dask_worker: Worker) -> None:
    """Link this worker to all others, and get ready for calls."""
    rank = workers.index(dask_worker.address)
    connection = _context(dask_worker.security.get_connection_args("worker"))

    def link() -> dict[int, socket]:
        higher = range(rank + 1, len(doors))
        found = {other: knock(doors[other], run.encode(), rank, ANSWER_SECONDS, connection) for other in higher}
        return found | _DOORS[run].answer(rank, 2 * ANSWER_SECONDS)

    try:
        sockets = await asyncio.to_thread(link)
    finally:
        _DOORS.pop(run).close()
    link_to_all = SocketLink(rank, len(doors), sockets)

    def tell(news: dict[str, Any]) -> None:
        dask_worker.log_event(run, {"news": news})

    DESKS[run] = Desk(link_to_all, dask_worker.state.nthreads, tell=tell)


def _context(arguments: dict[str, Any]) -> SSLContext | None:
    context: SSLContext | None = arguments.get("ssl_context")
    return context


# What runs where the fit was asked for.


class DaskTeam:
    """A team of Dask workers (see `doublefeature.inference.teams.Team`)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client = connection.client
        self._run = ""
        self._workers: list[str] = []
        self._news: Callable[[dict[str, Any]], None] | None = None
        self.regroup()

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    @property
    def workers(self) -> list[str]:
        """Addresses of the workers, in the order of ranks."""
        return list(self._workers)

    def together(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        *,
        stop: threading.Event | None = None,
        news: Callable[[dict[str, Any]], None] | None = None,
    ) -> list[Any]:
        """Run a function on every worker side by side."""
        self._news = news
        pairs = zip(self._workers, arguments, strict=True)
        futures = [self._submit(address, function, own) for address, own in pairs]
        try:
            return self._results(futures, stop)
        finally:
            self._news = None
            for future in futures:
                future.release()

    def ask(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on one worker."""
        future = self._submit(self._workers[rank], function, arguments)
        return self._results([future], None)[0]

    def _submit(self, address: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future:
        with self._connection.problems():
            return self._client.submit(serve, self._run, function, arguments, workers=[address], pure=False, retries=0)

    def _results(self, futures: list[Future], stop: threading.Event | None) -> list[Any]:
        """Wait for calls; what is wrong with one of them is raised once the others had time to say the same."""
        ended: dict[Future, tuple[str, Any]] = {}
        told, give_up = False, float("inf")
        while len(ended) < len(futures) and time.monotonic() < give_up:
            if stop is not None and stop.is_set() and not told:
                told = True
                self._client.run(hurry, self._run, workers=self._workers[:1], on_error="ignore")
            left = [future for future in futures if future not in ended]
            if not self._connection.wait(left, _PATIENCE):
                self._check_there()
            with self._connection.problems():
                ended |= {future: result_of(future) for future in left if future.done()}
            if any(kind != DONE for kind, _ in ended.values()):
                give_up = min(give_up, time.monotonic() + _GRACE_SECONDS)
        problems = [ended[future] for future in futures if future in ended and ended[future][0] != DONE]
        for kind, value in sorted(problems, key=lambda problem: problem[0] == LOST):
            raise problem_of(kind, value)
        return [ended[future][1] for future in futures]

    def _check_there(self) -> None:
        with self._connection.problems():
            there = self._client.scheduler_info(n_workers=-1)["workers"]
        if gone := [address for address in self._workers if address not in there]:
            raise LostWorker(f"worker {gone[0]} is gone")

    def regroup(self) -> None:
        """Gather the workers that are there now and link them to each other."""
        wanted, give_up = max(self.size, 1), time.monotonic() + RETURN_SECONDS
        self._leave()
        while True:
            self._workers = self._connection.workers(wanted, max(give_up - time.monotonic(), 0.0))
            self._run = f"doublefeature-{uuid.uuid4().hex}"
            try:
                self._connection.check_versions(self._workers)
                return self._link()
            except (*_LOST_PROBLEMS, TimeoutError, KeyError, ValueError) as problem:
                if time.monotonic() > give_up:
                    raise EnvironmentProblem(f"workers cannot be linked: {one_line(problem)}.") from problem
                time.sleep(_PATIENCE)

    def _link(self) -> None:
        doors = self._client.run(open_door, self._run, workers=self._workers)
        addresses = [doors[worker] for worker in self._workers]
        self._client.run(open_desk, self._run, addresses, self._workers, workers=self._workers)
        self._client.subscribe_topic(self._run, self._hear)

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        if self._news is not None:
            self._news(event[1]["news"])

    def _leave(self) -> None:
        if self._run and self._client.status == "running":
            with suppress(Exception):
                self._client.unsubscribe_topic(self._run)
            with suppress(Exception):
                self._client.run(close_desk, self._run, on_error="ignore")

    def close(self) -> None:
        """Forget the run, and leave the scheduler."""
        self._leave()
        self._connection.close()


def result_of(future: Future) -> tuple[str, Any]:
    """Return how a call ended."""
    if future.status != "finished":
        return LOST, f"a worker is gone ({future.status})"
    ended: tuple[str, Any] = future.result()
    return ended
