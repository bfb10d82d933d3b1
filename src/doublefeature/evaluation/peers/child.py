"""Work in a child process: measured apart, ended when it takes too long, harmless when it crashes or prints.

    python -m doublefeature.evaluation.peers.child      reads a task from stdin and writes the answer to stdout

A message is a set of arrays and a note of plain values, as one npz file; there is no pickle in it.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import DoubleFeatureError, EnvironmentProblem
from doublefeature.evaluation.peers.base import THREADS

Arrays = Mapping[str, NDArray[Any]]
_PACKAGE = "doublefeature.evaluation.peers."
_THREAD_VARIABLES = (THREADS, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Message(NamedTuple):
    """What goes to a child and comes back."""

    arrays: Arrays
    note: dict[str, Any]

    def pack(self) -> bytes:
        """Return the message as bytes."""
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(self.note).encode(), np.uint8)
        np.savez(buffer, allow_pickle=False, **{"note": text, **self.arrays})
        return buffer.getvalue()

    @classmethod
    def unpack(cls, content: bytes) -> Message:
        """Return the message in some bytes."""
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
        return cls(arrays, json.loads(arrays.pop("note").tobytes()))


class TookTooLong(EnvironmentProblem):
    """A child was ended because its time was up."""


def ask_child(
    target: str, message: Message, *, seconds: float, what: str, tries: int = 1, threads: int | None = None
) -> Message:
    """Run a function of this folder, given as `module:function`, on a message in a child process.

    Parameters
    ----------
    seconds
        Time limit of the first try; each further try has twice the time of the one before.
    what
        What error messages call the work.
    threads
        How many threads the child may use; None leaves it to the libraries.
    """
    command = [sys.executable, "-m", f"{_PACKAGE}child", target]
    environment = {**os.environ, **({} if threads is None else dict.fromkeys(_THREAD_VARIABLES, str(threads)))}
    task = message.pack()
    for attempt in range(tries):
        limit = seconds * 2**attempt
        try:
            done = subprocess.run(command, input=task, capture_output=True, timeout=limit, check=False, env=environment)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise EnvironmentProblem(f"{what} ended with code {done.returncode}: {last or 'no message'}.")
        answer = Message.unpack(done.stdout)
        if "error" in answer.note:
            raise EnvironmentProblem(f"{what}: {answer.note['error']}")
        return answer
    remedy = "Allow more time, or run again on a machine with less to do"
    raise TookTooLong(f"{what} did not finish in {tries} tries, the last of {limit:.0f} s. {remedy}.")


class Usage(NamedTuple):
    """What some work took."""

    wall_seconds: float
    cpu_seconds: float
    peak_megabytes: float
    """Largest memory of the whole process so far, interpreter and libraries included."""


class Clock:
    """Measures work in this process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> Usage:
        """Return what was used since the clock was made."""
        return Usage(time.perf_counter() - self._wall, time.process_time() - self._cpu, peak_megabytes())


def peak_megabytes() -> float:
    """Return the largest memory of this process so far; 0 where the system does not tell.

    Linux keeps in `ru_maxrss` what the parent had before the child became a program of its own; `VmHWM` starts anew.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(float(line.split()[1]) / 1024.0 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:
        return 0.0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2.0**20 if sys.platform == "darwin" else 2.0**10)


@contextmanager
def _own_stdout() -> Any:
    """Yield the real stdout, while everything that libraries print goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(out, "wb") as stream:
        yield stream


def _end_with_parent() -> None:
    """End this process soon after its parent, however that ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _serve(target: str) -> None:
    _end_with_parent()
    with _own_stdout() as out:
        module, _, name = target.partition(":")
        function: Callable[[Message], Message] = getattr(import_module(_PACKAGE + module), name)
        message = Message.unpack(sys.stdin.buffer.read())
        try:
            answer = function(message)
        except DoubleFeatureError as error:
            answer = Message({}, {"error": " ".join(str(error).split())})
        out.write(answer.pack())


if __name__ == "__main__":
    _serve(sys.argv[1])
