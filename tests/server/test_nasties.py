"""Hand-made nasties against a real server."""

from __future__ import annotations

import json
import shutil
import threading

import pytest

from tests.server.nasties import CASES, seconds_until_closed, status_of
from tests.server.parts import running


@pytest.fixture(scope="module")
def port(number_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nasties")
    copy = folder / "model"
    shutil.copytree(number_folder, copy)
    with running(copy, log=folder / "log") as service:
        yield service.port
        assert service.process.poll() is None
        assert "Traceback" not in (folder / "log").read_text()


def test_there_are_sixty():
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nasty(port, case):
    status, body = status_of(port, case.sent)
    assert status in case.fine, (status, body[:300])
    assert len(body) < 2048 or status == 200
    if status >= 400 and body.startswith(b"{"):
        assert set(json.loads(body)) == {"error", "detail"}
    assert b"Traceback" not in body


def test_slow_clients_are_hung_up_on(port):
    """One byte a second in the head, in the body, and a chunked body without an end: all closed within 15 s."""
    post = b"POST /api/v1/recommendations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    heads = {
        "head": b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        "body": post + b"Content-Length: 1000\r\n\r\n",
        "chunks": post + b"Transfer-Encoding: chunked\r\n\r\n",
    }
    found: dict[str, float] = {}
    threads = [
        threading.Thread(
            target=lambda name=name, head=head: found.update({name: seconds_until_closed(port, head, 1.0, 30)})
        )
        for name, head in heads.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(found.values()) < 15.0, found
