"""Engines: every task once, failures again, nothing after a stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from doublefeature.errors import EnvironmentProblem, InputError, MissingExtraError, SettingsError
from doublefeature.inference.engines import SerialEngine, Task, ThreadEngine, engine_of, run_tasks
from doublefeature.inference.processes import ProcessEngine


def leave_mark(folder, name, watch):
    place = Path(folder) / name
    place.write_text(str(int(place.read_text()) + 1) if place.exists() else "1")


def fail_at_first(folder, name, watch):
    leave_mark(folder, name, watch)
    if (Path(folder) / name).read_text() == "1":
        raise RuntimeError("a passing trouble")


def always_fail(folder, name, watch):
    leave_mark(folder, name, watch)
    raise RuntimeError("a lasting trouble")


def refuse(folder, name, watch):
    leave_mark(folder, name, watch)
    raise InputError("bad input stays bad.")


def wait_for_stop(folder, name, watch):
    leave_mark(folder, name, watch)
    assert watch.stop.wait(20)


def die_at_first(folder, name, watch):
    fresh = not (Path(folder) / name).exists()
    leave_mark(folder, name, watch)
    if fresh:
        os.kill(os.getpid(), signal.SIGKILL)


def wait_to_be_killed(folder, name, watch):
    """At first stay until a stop; the next time end at once."""
    fresh = not (Path(folder) / name).exists()
    leave_mark(folder, name, watch)
    if fresh:
        watch.stop.wait(60)
        raise SystemExit(3)


def marks(folder):
    return {path.name: int(path.read_text()) for path in folder.iterdir()}


def tasks(folder, function, n=3):
    return [Task(f"task {k}", function, (str(folder), f"mark{k}")) for k in range(n)]


ENGINES = {"serial": SerialEngine, "threads": lambda: ThreadEngine(2), "processes": lambda: ProcessEngine(2)}


@pytest.fixture(params=ENGINES)
def engine(request):
    made = ENGINES[request.param]()
    yield made
    made.close()


class TestEveryEngine:
    def test_runs_every_task_once(self, engine, tmp_path):
        assert run_tasks(engine, tasks(tmp_path, leave_mark))
        assert marks(tmp_path) == {"mark0": 1, "mark1": 1, "mark2": 1}

    def test_runs_a_failed_task_again(self, engine, tmp_path):
        assert run_tasks(engine, tasks(tmp_path, fail_at_first, 2))
        assert marks(tmp_path) == {"mark0": 2, "mark1": 2}

    def test_gives_up_after_so_many_tries(self, engine, tmp_path):
        with pytest.raises(EnvironmentProblem, match="task 0 failed 3 times") as caught:
            run_tasks(engine, tasks(tmp_path, always_fail, 1), tries=3)
        assert "\n" not in str(caught.value)
        assert marks(tmp_path) == {"mark0": 3}

    def test_bad_input_is_not_tried_again(self, engine, tmp_path):
        with pytest.raises(InputError, match="stays bad"):
            run_tasks(engine, tasks(tmp_path, refuse, 1))
        assert marks(tmp_path) == {"mark0": 1}


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_a_stop_ends_running_tasks_and_forgets_the_others(name, tmp_path):
    engine, stop = ENGINES[name](), threading.Event()
    timer = threading.Timer(4.0 if name == "processes" else 0.3, stop.set)
    timer.start()
    try:
        assert not run_tasks(engine, tasks(tmp_path, wait_for_stop, 5), stop=stop)
    finally:
        timer.join()
        engine.close()
    assert len(marks(tmp_path)) <= 2


def test_a_killed_process_is_run_again(tmp_path):
    engine = ProcessEngine(1)
    try:
        assert run_tasks(engine, tasks(tmp_path, die_at_first, 1))
    finally:
        engine.close()
    assert marks(tmp_path) == {"mark0": 2}


def test_killed_by_its_id_from_outside(tmp_path):
    engine = ProcessEngine(1)

    def kill():
        while not (tmp_path / "mark0").exists():
            time.sleep(0.05)
        os.kill(engine.pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert run_tasks(engine, tasks(tmp_path, wait_to_be_killed, 1))
    finally:
        killer.join()
        engine.close()
    assert marks(tmp_path) == {"mark0": 2}


def test_unknown_engines_are_refused():
    with pytest.raises(SettingsError, match="must be threads, processes, dask"):
        engine_of("spark", 1)


def test_the_extra_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "doublefeature.inference.dask_engine", raising=False)
    monkeypatch.delattr("doublefeature.inference.dask_engine", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'doublefeature\[dask\]'"):
        engine_of("dask", 1)
