"""One chain run by several processes of this machine, which talk through pipes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from itertools import combinations
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, InputError
from doublefeature.inference.chain import Start, Sweep
from doublefeature.inference.slices import RatingSlice, cut_slice, run_slices
from doublefeature.ratings import Ratings

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


class PipeLink:
    """A link of pipes to every other worker, in the order of ranks; None in one's own place."""

    def __init__(self, rank: int, pipes: list[Connection | None]) -> None:
        self.rank = rank
        self.size = len(pipes)
        self._pipes = pipes

    def exchange(self, mine: bytes) -> list[bytes]:
        """Give bytes to every worker in turn and take theirs; of two, the one with the lower rank speaks first."""
        found = [mine] * self.size
        for other, pipe in enumerate(self._pipes):
            if pipe is None:
                continue
            try:
                if self.rank < other:
                    pipe.send_bytes(mine)
                found[other] = pipe.recv_bytes()
                if self.rank > other:
                    pipe.send_bytes(mine)
            except (EOFError, OSError) as problem:
                raise EnvironmentProblem(f"worker {other} of {self.size} is gone. Start again.") from problem
        return found


class LocalWorkers:
    """Processes that run one chain together. Use as a context; iterate for the sweeps of the first worker."""

    def __init__(
        self,
        workers: int,
        ratings: Ratings,
        priors: Priors,
        schedule: Schedule,
        moves: Moves | None = None,
        *,
        stream: tuple[int, int] = (0, 0),
        start: Start | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        pipes: list[list[Connection | None]] = [[None] * workers for _ in range(workers)]
        for a, b in combinations(range(workers), 2):
            pipes[a][b], pipes[b][a] = context.Pipe()
        told = {"n_levels": ratings.n_levels, "stream": stream, "start": start, "covariates": ratings.covariates}
        self.processes: list[SpawnProcess] = []
        self._news: list[Connection] = []
        for rank in range(workers):
            news, sender = context.Pipe(duplex=False)
            arguments = (cut_slice(ratings.arrays, rank, workers), (rank, pipes[rank]), (priors, schedule, moves), told)
            process = context.Process(target=_run, args=(sender, *arguments), daemon=True)
            process.start()
            self.processes.append(process)
            self._news.append(news)
            for end in (sender, *pipes[rank]):
                if end is not None:
                    end.close()

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *problem: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        for news in self._news:
            news.close()

    def __iter__(self) -> Iterator[Sweep]:
        """Yield the sweeps of the first worker; raise the first problem any worker tells of."""
        left = list(self._news)
        while left:
            ready = wait(left)
            for news in [one for one in left if one in ready]:
                kind, value = _received(news)
                if kind == "sweep":
                    yield value
                elif kind == "end":
                    left.remove(news)
                else:
                    raise (InputError if kind == "input" else EnvironmentProblem)(value)


def _received(news: Connection) -> tuple[str, Any]:
    try:
        received: tuple[str, Any] = news.recv()
    except EOFError:
        return "gone", "a worker's process is gone. Start again."
    return received


def _run(
    sender: Connection,
    part: RatingSlice,
    place: tuple[int, list[Connection | None]],
    settings: tuple[Priors, Schedule, Moves | None],
    told: dict[str, Any],
) -> None:
    """Run one worker; it ends with the process that asked for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    try:
        for sweep in run_slices(part, PipeLink(*place), *settings, **told):
            if place[0] == 0:
                sender.send(("sweep", sweep))
        sender.send(("end", None))
    except DoubleFeatureError as problem:
        sender.send(("input" if isinstance(problem, InputError) else "environment", str(problem)))
