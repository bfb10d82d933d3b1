"""What workers of a team or an engine do on a machine of their own, whoever brings the calls to them."""

from __future__ import annotations

import platform
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from doublefeature._version import __version__
from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, InputError
from doublefeature.inference.engines import Watch
from doublefeature.inference.teams import Desk, LostWorker

DONE, LOST, _INPUT, _ENVIRONMENT, _BUG = "done", "lost", "input", "environment", "bug"
"""How a call ended."""
DESKS: dict[str, Desk] = {}
"""The desks of the runs this process takes part in."""
_IDLE_SECONDS = 600.0
_STOPS: dict[str, threading.Event] = {}


def one_line(problem: BaseException) -> str:
    """Return kind and text of a problem on one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:200].rstrip(".")


def versions() -> dict[str, str]:
    """Return the versions that decide about draws."""
    return {
        "doublefeature": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def close_desk(run: str) -> None:
    """Forget a run."""
    desk = DESKS.pop(run, None)
    if desk is not None:
        desk.link.close()


def hurry(run: str) -> None:
    """Tell a run that its call should come back soon."""
    if run in DESKS:
        DESKS[run].stop.set()


def serve(run: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """Run a function of a team at this worker's desk; return how it ended, and its result or a line.

    Others wait for this worker in vain if it has failed: the link is broken, so that they know.
    """
    if run not in DESKS:
        return LOST, "a worker has started anew"
    desk = DESKS[run]
    desk.idle_since = float("inf")
    ended = _ended(lambda: function(desk, *arguments))
    desk.idle_since = time.monotonic()
    if ended[0] != DONE:
        desk.link.close()
    return ended


def forget_idle() -> None:
    """Forget runs that nobody has called for long: who asked for them is gone, or will hand out everything again."""
    for run, desk in list(DESKS.items()):
        if time.monotonic() - desk.idle_since > _IDLE_SECONDS:
            close_desk(run)


def run_task(run: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """Run a task of an engine."""
    stop = _STOPS.setdefault(run, threading.Event())
    return (DONE, None) if stop.is_set() else _ended(lambda: function(*arguments, Watch(stop)))


def halt_tasks(run: str) -> None:
    """Let tasks end after their sweep, and those that come later at once."""
    _STOPS.setdefault(run, threading.Event()).set()


def _ended(work: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return DONE, work()
    except LostWorker as problem:
        return LOST, str(problem)
    except InputError as problem:
        return _INPUT, str(problem)
    except DoubleFeatureError as problem:
        return _ENVIRONMENT, str(problem)
    except (OSError, MemoryError) as problem:
        return _ENVIRONMENT, f"worker {platform.node()} failed: {one_line(problem)}."
    except Exception:
        return _BUG, traceback.format_exc()


def problem_of(kind: str, text: str) -> BaseException:
    """Return what went wrong on a worker."""
    known = {_INPUT: InputError, _ENVIRONMENT: EnvironmentProblem, LOST: LostWorker}
    return known[kind](text) if kind in known else RuntimeError(text)
