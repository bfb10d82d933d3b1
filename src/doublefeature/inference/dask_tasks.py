"""The engine of Dask: tasks on whichever of its workers is free."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from doublefeature.inference.dask_engine import Connection, result_of
from doublefeature.inference.desks import DONE, halt_tasks, problem_of, run_task
from doublefeature.inference.engines import Outcome, Task

_LAST_SECONDS = 60.0


class DaskEngine:
    """Runs tasks on Dask workers, which must see the model folder."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._run = f"doublefeature-{uuid.uuid4().hex}"
        self._running: dict[Any, Task] = {}

    def submit(self, task: Task) -> None:
        """Queue a task on whichever worker is free."""
        with self._connection.problems():
            client = self._connection.client
            future = client.submit(run_task, self._run, task.function, task.arguments, pure=False, retries=0)
        self._running[future] = task

    def collect(self, seconds: float) -> Outcome | None:
        """Return how the next task ended."""
        self._connection.wait(list(self._running), seconds)
        for future in [future for future in self._running if future.done()]:
            task = self._running.pop(future)
            kind, value = result_of(future)
            return Outcome(task, None if kind == DONE else problem_of(kind, value))
        with self._connection.problems():
            self._connection.client.scheduler_info()
        return None

    def halt(self) -> None:
        """Ask every worker to end its task after the sweep."""
        with suppress(Exception):
            self._connection.client.run(halt_tasks, self._run, on_error="ignore")

    def close(self) -> None:
        """Stop, wait and leave."""
        self.halt()
        while self._running and self.collect(_LAST_SECONDS) is not None:
            continue
        self._connection.close()
