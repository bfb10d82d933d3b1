"""Dask with a real scheduler and worker processes: the same draws by any number of workers, whatever dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

import dask

import doublefeature as df
from doublefeature.config import PRESETS, Schedule
from doublefeature.errors import EnvironmentProblem, InputError, RatingsError
from doublefeature.inference import dask_engine
from doublefeature.inference.dask_engine import Connection, DaskTeam
from doublefeature.inference.dask_tasks import DaskEngine
from doublefeature.inference.fit import fit_into
from doublefeature.inference.team_fit import fit_by_team
from doublefeature.posterior.store import ModelFolder, draws_digest
from tests.command import call
from tests.inference.sharded_models import fit as fit_shards
from tests.inference.test_slices import BUSY, simulated
from tests.inference.test_team_reading import rows
from tests.test_folders import parts

pytestmark = pytest.mark.filterwarnings("ignore")
SCHEDULE = Schedule(sweeps=24, warmup=12, thin=2, chains=1, threads=1)


def create(path, preset: str = "paper", **changes) -> ModelFolder:
    settings = {"ratings": simulated(), "priors": PRESETS[preset], "schedule": SCHEDULE, "moves": BUSY, "seed": 3}
    return ModelFolder.create(path, preset=preset, **{**settings, **changes})


def digest(folder: ModelFolder) -> str:
    return draws_digest(ModelFolder.open(folder.path).posterior())


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, str]:
    """Digests of the draws of one process."""
    found = {}
    for preset in ("paper", "full"):
        folder = create(tmp_path_factory.mktemp("one") / "model", preset)
        fit_into(folder)
        found[preset] = digest(folder)
    return found


@pytest.fixture(scope="module")
def connection():
    made = Connection("dask", 4)
    yield made
    made.close()


@pytest.fixture
def team_of(connection):
    def gather(size: int) -> DaskTeam:
        connection.most = size
        return DaskTeam(connection)

    yield gather
    connection.most = 4


@pytest.mark.parametrize(("size", "preset"), [(1, "paper"), (2, "paper"), (4, "paper"), (2, "full")])
def test_same_draws_by_any_number_of_workers(tmp_path, expected, team_of, size, preset):
    team = team_of(size)
    assert team.size == size
    folder = create(tmp_path / "model", preset)
    heard = []
    assert fit_by_team(folder, team, progress=heard.append, checkpoint_seconds=0.0)
    assert len(folder._manifest.chains[0].segments) > 1
    assert digest(folder) == expected[preset]


def kill_at(folder: ModelFolder, team: DaskTeam, connection: Connection, sweeps: int) -> threading.Thread:
    """Kill a worker by its process id once a chain has come so far."""
    pids = connection.client.run(os.getpid, workers=team.workers[-1:])

    def wait_and_kill():
        while folder.sweeps_done[0] < sweeps:
            time.sleep(0.005)
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    watcher = threading.Thread(target=wait_and_kill, daemon=True)
    watcher.start()
    return watcher


def test_a_killed_worker_changes_nothing(tmp_path, connection, team_of):
    team = team_of(2)
    folder = create(tmp_path / "model", schedule=replace(SCHEDULE, sweeps=80, warmup=40, thin=5))
    fit_into(whole := create(tmp_path / "whole", schedule=folder.schedule))
    before = team.workers
    watcher = kill_at(folder, team, connection, 4)
    assert fit_by_team(folder, team, checkpoint_seconds=0.0)
    watcher.join(10)
    assert team.workers != before
    assert digest(folder) == digest(whole)


def test_too_many_losses_are_told_in_one_line(tmp_path, connection, team_of, monkeypatch):
    team = team_of(2)
    folder = create(tmp_path / "model")
    monkeypatch.setattr(dask_engine, "RETURN_SECONDS", 0.1)
    monkeypatch.setattr("doublefeature.inference.team_fit.run_batch", die)
    with pytest.raises(EnvironmentProblem, match=r"lost 1 times before the next checkpoint.*doublefeature resume"):
        fit_by_team(folder, team, tries=1)
    fit_into(folder)
    assert folder.finished


def die(desk, seconds):
    """Take a worker's place, and end its process."""
    if desk.link.rank == 1:
        os._exit(9)
    desk.link.exchange(b"")


def test_stop_and_go_on_without_dask(tmp_path, expected, team_of):
    team, stop = team_of(2), threading.Event()
    folder = create(tmp_path / "model")
    assert not fit_by_team(folder, team, stop=stop, progress=lambda news: stop.set(), checkpoint_seconds=0.0)
    assert 0 < folder.sweeps_done[0] < SCHEDULE.sweeps
    assert fit_into(folder)
    assert digest(folder) == expected["paper"]


def test_go_on_with_dask(tmp_path, expected, team_of):
    stop = threading.Event()
    folder = create(tmp_path / "model")
    assert not fit_into(folder, stop=stop, progress=lambda news: news.sweep == 7 and stop.set())
    model = df.DoubleFeature.resume(folder.path, engine=team_of(2))
    assert model.finished_
    assert not model.holds_ratings_
    assert digest(folder) == expected["paper"]
    assert model.ratings_.fingerprint == folder.fingerprint


def test_a_folder_of_files(tmp_path, team_of):
    lines = rows(500)
    folder = parts(tmp_path / "parts", *(lines[k::3] for k in range(3)))
    settings = {"preset": "paper", "schedule": SCHEDULE, "seed": 2}
    parted = df.DoubleFeature(**settings, engine=team_of(2)).fit(folder, out=tmp_path / "parted", holdout=0.1)
    whole = df.DoubleFeature(**settings).fit(folder, out=tmp_path / "whole", holdout=0.1)
    assert draws_digest(parted.posterior_) == draws_digest(whole.posterior_)
    assert not parted.holds_ratings_
    assert parted.recommend("u3", 2) == whole.recommend("u3", 2)
    (folder / "part-2.csv").write_text("user,item,rating\nu1,2,x\n")
    with pytest.raises(InputError, match=r"part-2.csv, line 2, user 'u1', item 2, value 'x'"):
        df.DoubleFeature(**settings, engine=team_of(2)).fit(folder, out=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_shards(tmp_path, connection):
    engine = DaskEngine(connection)
    mine = fit_shards(tmp_path / "dask", engine=engine)
    theirs = fit_shards(tmp_path / "threads")
    assert draws_digest(mine.posterior_) == draws_digest(theirs.posterior_)


def test_a_problem_of_a_worker_is_told_as_it_is(team_of):
    team = team_of(2)
    for problem, kind in ((RatingsError("bad row"), InputError), (OSError(28, "No space left on device"), Exception)):
        with pytest.raises(kind, match=r"bad row|No space left"):
            team.together(fail, [(problem,)] * 2)
    with pytest.raises(EnvironmentProblem, match="No space left on device"):
        team.ask(0, fail, OSError(28, "No space left on device"))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        team.ask(0, fail, ZeroDivisionError())


def fail(desk, problem):
    raise problem


def test_nobody_waits_for_a_worker_that_has_failed(team_of):
    with pytest.raises(InputError, match="bad row"):
        team_of(2).together(wait_for_the_other, [(), ()])


def wait_for_the_other(desk):
    if desk.link.rank == 1:
        raise RatingsError("bad row")
    desk.link.exchange(b"")


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("dask://nowhere", "is no address. Write dask://host:port"),
        ("dask://127.0.0.1:70000", "is no address"),
        ("dask://127.0.0.1:1", "no Dask scheduler answers at tcp://127.0.0.1:1"),
        ("tls://127.0.0.1:1", "the certificates for tls are not set. Set DASK_DISTRIBUTED__COMM__TLS__CA_FILE"),
    ],
)
def test_addresses_where_nobody_is(engine, reason, monkeypatch):
    monkeypatch.setattr(dask_engine, "ANSWER_SECONDS", 0.5)
    with pytest.raises(EnvironmentProblem, match=reason) as problem:
        Connection(engine)
    assert "\n" not in str(problem.value)


def test_the_command_line_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dask_engine, "ANSWER_SECONDS", 0.5)
    folder = parts(tmp_path / "parts", rows(50))
    for engine, code, reason in (
        ("dask://127.0.0.1:1", 3, "no Dask scheduler answers"),
        ("dask://x", 3, "is no address"),
        ("spark", 2, "engine must be threads"),
        ("processes", 2, "runs shards only"),
    ):
        words = ("fit", folder, "--out", tmp_path / "model", "--preset", "paper", "--engine", engine)
        done = call(monkeypatch, capsys, *words)
        assert done.code == code
        assert reason in done.err
        assert done.err.count("\n") == 1
        assert not (tmp_path / "model").exists()


def test_another_version_on_a_worker(connection, monkeypatch):
    monkeypatch.setattr(dask_engine, "versions", lambda: {"numpy": "1.0"})
    with pytest.raises(EnvironmentProblem, match=r"has numpy .*, here it is 1.0"):
        Connection(f"dask://{connection.address.removeprefix('tcp://')}")


def dask_command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from dask.__main__ import main; main()", *words]


@contextmanager
def scheduler(folder: Path, *words: str):
    """Start a scheduler of its own, and yield its address and process."""
    place = folder / "scheduler.json"
    where = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place))
    with subprocess.Popen(dask_command("scheduler", *where, *words), stderr=subprocess.DEVNULL) as process:
        while not place.exists() or not place.read_text().endswith("}"):
            time.sleep(0.1)
        yield json.loads(place.read_text())["address"], process
        process.kill()


def test_a_scheduler_without_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_engine, "ANSWER_SECONDS", 2.0)
    with (
        scheduler(tmp_path) as (address, _),
        pytest.raises(EnvironmentProblem, match=r"has no workers. Start some: dask worker"),
    ):
        Connection(address.replace("tcp", "dask"))


def certificates(folder: Path) -> dict[str, str]:
    """Make a certificate that signs itself, and return Dask's words for it."""
    names = {"ca-file": "cert.pem", "cert": "cert.pem", "key": "key.pem"}
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    outputs = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, *outputs], check=True, capture_output=True)
    return {name: str(folder / file) for name, file in names.items()}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_workers_of_a_scheduler_with_certificates(tmp_path, expected):
    files = certificates(tmp_path)
    options = [word for name, file in files.items() for word in (f"--tls-{name}", file)]
    settings = {"distributed.comm.tls.ca-file": files["ca-file"], "distributed.comm.require-encryption": True}
    settings |= {f"distributed.comm.tls.client.{name}": files[name] for name in ("cert", "key")}
    with scheduler(tmp_path, "--protocol", "tls", *options) as (address, process), dask.config.set(settings):
        assert address.startswith("tls://")
        where = ("--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard", "--no-nanny")
        worker = dask_command("worker", address, *where, *options)
        hands = [subprocess.Popen(worker, stderr=subprocess.DEVNULL) for _ in range(2)]
        try:
            connection = Connection(address)
            connection.workers(at_least=2, seconds=20)
            folder = create(tmp_path / "model")
            team = DaskTeam(connection)
            assert team.size == 2
            assert fit_by_team(folder, team)
            assert digest(folder) == expected["paper"]
            process.kill()
            with pytest.raises(EnvironmentProblem, match=r"the scheduler at tls://.* is gone"):
                fit_by_team(create(tmp_path / "other"), team)
            team.close()
        finally:
            for hand in hands:
                hand.kill()
                hand.wait()
