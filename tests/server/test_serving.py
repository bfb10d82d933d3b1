"""The process: it starts, refuses, waits for nobody, loses nothing, swaps and drains."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from doublefeature.server.serving import _listen
from tests.server.parts import running
from tests.server.proofs import API, survive_kills, swap_under_load


@pytest.fixture(scope="module")
def service(number_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    copy = folder / "model"
    shutil.copytree(number_folder, copy)
    with running(copy, log=folder / "log") as found:
        yield found


def command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "doublefeature", *options], capture_output=True, text=True, timeout=120, check=False
    )


class TestStart:
    def test_answers_are_not_held_back(self):
        """asyncio turns Nagle's delay off for sockets that say they are TCP, and for no others."""
        with _listen("127.0.0.1", 0) as listener:
            assert listener.proto == socket.IPPROTO_TCP

    def test_wrong_starts_end_in_one_line(self, number_folder, tmp_path):
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        database = f"sqlite:///{tmp_path / 'x.sqlite'}"
        cases = {
            ("serve", str(tmp_path / "none")): 2,
            ("serve", str(number_folder), "--host", "0.0.0.0"): 2,
            ("serve", str(number_folder), "--database", database, "--port", port): 3,
        }
        for options, code in cases.items():
            found = command(*options)
            assert found.returncode == code, found.stderr
            assert len(found.stderr.strip().splitlines()) == 1
            assert "Traceback" not in found.stderr
        taken.close()

    def test_a_service_that_stops_answers_first_and_ends_with_0(self, number_folder, tmp_path):
        copy = tmp_path / "model"
        shutil.copytree(number_folder, copy)
        with running(copy, log=tmp_path / "log") as service:
            results = []

            def ask() -> None:
                results.append(service.ask("POST", f"{API}/questions", {"ratings": [{"item": 1, "rating": 5}]})[0])

            thread = threading.Thread(target=ask)
            thread.start()
            time.sleep(0.05)
            began = time.monotonic()
            assert service.stop() in (0, -signal.SIGTERM)
            assert time.monotonic() - began < 10.0
            thread.join()
            assert results == [200]


class TestSwap:
    def test_models_change_under_load_and_broken_ones_are_refused(self, number_folder, tmp_path):
        other = tmp_path / "other"
        shutil.copytree(number_folder, other)
        from doublefeature.posterior.forgetting import forget

        forget(other, 29)
        found = swap_under_load(number_folder, other, 4, tmp_path)
        assert found["swaps"] == 4
        assert found["versions"] == 2
        assert (found["5xx"], found["mixed"], found["broken refused"], found["ready with alarm"]) == (0, 0, 1, 1)
        assert found["2xx"] > 0

    def test_sighup_reads_the_folder_again(self, number_folder, tmp_path):
        copy = tmp_path / "model"
        shutil.copytree(number_folder, copy)
        from doublefeature.posterior.forgetting import forget

        with running(copy, log=tmp_path / "log") as service:
            before = service.ask("GET", "/health/ready")[1]["model"]
            forget(copy, 29)
            service.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 60
            while service.ask("GET", "/health/ready")[1]["model"] == before:
                assert time.monotonic() < end
                time.sleep(0.05)
            assert service.ask("GET", f"{API}/users/29")[0] == 404

    @pytest.mark.parametrize("name", ["../model", "/etc", "..", ".hidden", "a/b", "a\\b", "", "x" * 200])
    def test_path_tricks_are_refused(self, service, name):
        status, told, _ = service.ask("POST", f"{API}/model/reload", {"folder": name})
        assert status == 422, told


class TestDurability:
    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
    def test_acknowledged_ratings_survive_kills(self, kind, number_folder, tmp_path, request):
        database = request.getfixturevalue("postgres").fresh() if kind == "postgresql" else None
        copy = tmp_path / "model"
        shutil.copytree(number_folder, copy)
        told, lost = survive_kills(copy, database, 1, tmp_path)
        assert told > 0
        assert lost == 0
