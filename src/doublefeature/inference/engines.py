"""Engines: where tasks run. An algorithm hands tasks to an object with four methods and never asks what it is.

    submit    take a task to run some time
    collect   wait a little for a task to end, well or not
    halt      let running tasks end after their sweep and forget the others
    close     give back what the engine holds

A task is a function of a module and plain arguments; what it makes, it writes to its model folder. So it can run in
another thread, process or machine that sees the same folder, and be run again if it fails. `run_tasks` does that.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, InputError, SettingsError
from doublefeature.inference.progress import ProgressCallback

THREADS = "threads"
"""The engine that is there without being asked for."""
TRIES = 3
"""How often a task is tried in all."""
_PATIENCE = 0.2
"""Seconds between two looks at whether to stop."""


class Watch(NamedTuple):
    """How a running task is told to stop, and tells how far it is."""

    stop: threading.Event
    progress: ProgressCallback | None = None


class Task(NamedTuple):
    """Something to run: a function of a module, called with plain arguments and a `Watch`."""

    name: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]


class Outcome(NamedTuple):
    """How a task ended: what went wrong, or None."""

    task: Task
    problem: BaseException | None = None


class Engine(Protocol):
    """Somewhere tasks run."""

    def submit(self, task: Task) -> None:
        """Take a task to run some time."""

    def collect(self, seconds: float) -> Outcome | None:
        """Return how the next task ended, or None if none did within so many seconds."""

    def halt(self) -> None:
        """Let running tasks end after their sweep and forget the others; each is still collected."""

    def close(self) -> None:
        """Wait for running tasks and give back what the engine holds."""


def run_tasks(
    engine: Engine, tasks: Sequence[Task], *, tries: int = TRIES, stop: threading.Event | None = None
) -> bool:
    """Run all tasks, those that fail again up to so many times; return False when `stop` was set meanwhile.

    What is wrong with the input stays wrong: such a problem is raised at once.
    """
    failures = {task.name: 0 for task in tasks}
    stopped = False
    left = len(tasks)
    for task in tasks:
        engine.submit(task)
    while left:
        if stop is not None and stop.is_set() and not stopped:
            stopped = True
            engine.halt()
        outcome = engine.collect(_PATIENCE)
        if outcome is None:
            continue
        left -= 1
        if outcome.problem is None or stopped:
            continue
        failures[outcome.task.name] += 1
        if isinstance(outcome.problem, InputError) or failures[outcome.task.name] >= tries:
            engine.halt()
            raise _last_word(outcome.task, outcome.problem, tries) from outcome.problem
        engine.submit(outcome.task)
        left += 1
    return not stopped


def _last_word(task: Task, problem: BaseException, tries: int) -> BaseException:
    """Return what is raised when a task has failed for good."""
    if isinstance(problem, DoubleFeatureError):
        return problem
    told = " ".join(f"{type(problem).__name__}: {problem}".split())
    return EnvironmentProblem(f"{task.name} failed {tries} times, {told}. What is done is kept: resume.")


class SerialEngine:
    """Runs tasks one after the other where it is asked for them, and keeps the CPU seconds each took."""

    def __init__(self, progress: ProgressCallback | None = None) -> None:
        self._waiting: deque[Task] = deque()
        self._watch = Watch(threading.Event(), progress)
        self.seconds: dict[str, float] = {}

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._waiting.append(task)

    def collect(self, seconds: float) -> Outcome | None:
        """Run the next task, however long it takes."""
        task = self._waiting.popleft()
        if self._watch.stop.is_set():
            return Outcome(task)
        begin = time.process_time()
        try:
            task.function(*task.arguments, self._watch)
        except Exception as problem:
            return Outcome(task, problem)
        finally:
            self.seconds[task.name] = self.seconds.get(task.name, 0.0) + time.process_time() - begin
        return Outcome(task)

    def halt(self) -> None:
        """Run no more tasks."""
        self._watch.stop.set()

    def close(self) -> None:
        """Nothing is held."""


class ThreadEngine:
    """Runs tasks in threads of this process."""

    def __init__(self, workers: int, progress: ProgressCallback | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._running: dict[Future[None], Task] = {}
        self._watch = Watch(threading.Event(), progress)

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._running[self._pool.submit(task.function, *task.arguments, self._watch)] = task

    def collect(self, seconds: float) -> Outcome | None:
        """Return the next task that is done."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            task = self._running.pop(future)
            return Outcome(task, None if future.cancelled() else future.exception())
        return None

    def halt(self) -> None:
        """Stop tasks after their sweep."""
        self._watch.stop.set()
        for future in self._running:
            future.cancel()

    def close(self) -> None:
        """Stop and wait."""
        self.halt()
        self._pool.shutdown(wait=True)


def is_dask(name: object) -> bool:
    """Whether a name is that of a Dask engine: `dask`, `dask://host:port` or `tls://host:port`."""
    return isinstance(name, str) and (name == "dask" or name.startswith(("dask://", "tls://")))


def check_engine(name: str) -> str:
    """Return the name of an engine if it is one."""
    if name in (THREADS, "processes") or is_dask(name):
        return name
    raise SettingsError(f"engine must be threads, processes, dask, dask://host:port or tls://host:port, got {name!r}.")


def engine_of(name: str, workers: int, progress: ProgressCallback | None = None) -> Engine:
    """Return the engine of a name: `threads` of this process, child `processes`, or Dask (see `is_dask`)."""
    if check_engine(name) == THREADS:
        return ThreadEngine(workers, progress)
    if name == "processes":
        from doublefeature.inference.processes import ProcessEngine

        return ProcessEngine(workers)
    from doublefeature.inference.team_models import dask_engine

    connection = dask_engine().Connection(name, workers if name == "dask" else None)
    from doublefeature.inference.dask_tasks import DaskEngine

    return DaskEngine(connection)
