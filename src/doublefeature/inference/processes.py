"""The engine of child processes: a task that crashes takes nothing else with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, NamedTuple

from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, InputError
from doublefeature.inference.engines import Outcome, Task, Watch

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


class _Child(NamedTuple):
    task: Task
    process: SpawnProcess
    news: Connection


class ProcessEngine:
    """Runs every task in a process of its own, so many at a time."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: deque[Task] = deque()
        self._children: list[_Child] = []
        self._forgotten: list[Task] = []

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return [child.process.pid for child in self._children if child.process.pid is not None]

    def submit(self, task: Task) -> None:
        """Queue a task, and start it if there is room."""
        self._waiting.append(task)
        self._fill()

    def collect(self, seconds: float) -> Outcome | None:
        """Return how the next process ended."""
        if self._forgotten:
            return Outcome(self._forgotten.pop())
        ended = wait([child.process.sentinel for child in self._children], timeout=seconds)
        for child in self._children:
            if child.process.sentinel in ended:
                self._children.remove(child)
                problem = _problem(child)
                self._fill()
                return Outcome(child.task, problem)
        return None

    def halt(self) -> None:
        """Ask every process to end after its sweep."""
        self._forgotten += self._waiting
        self._waiting.clear()
        for child in self._children:
            if child.process.is_alive():
                child.process.terminate()

    def close(self) -> None:
        """Stop and wait."""
        self.halt()
        for child in self._children:
            child.process.join()
            child.news.close()
        self._children.clear()

    def _fill(self) -> None:
        context = multiprocessing.get_context("spawn")
        while self._waiting and len(self._children) < self._workers:
            task = self._waiting.popleft()
            news, sender = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(task, sender), name=task.name, daemon=True)
            process.start()
            sender.close()
            self._children.append(_Child(task, process, news))


def _problem(child: _Child) -> BaseException | None:
    child.process.join()
    try:
        kind, text = child.news.recv() if child.news.poll() else ("", "")
    except EOFError:
        kind, text = "", ""
    child.news.close()
    if kind == "input":
        return InputError(text)
    if kind:
        return EnvironmentProblem(text)
    code = child.process.exitcode
    return None if code == 0 else RuntimeError(f"its process ended with exit code {code}")


def _run(task: Task, sender: Connection) -> None:
    """Run a task in this process; it ends with the process that asked for it."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    try:
        task.function(*task.arguments, Watch(stop))
    except DoubleFeatureError as problem:
        sender.send(("input" if isinstance(problem, InputError) else "environment", str(problem)))
        raise SystemExit(1) from None
