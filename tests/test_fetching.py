from __future__ import annotations

import functools
import http.server
import threading
import zipfile

import pytest

from doublefeature.errors import EnvironmentProblem, InputError
from doublefeature.fetching import fetch

ROWS = "1\t1\t5\t0\n1\t2\t3\t0\n2\t1\t4\t0\n"


def archive(tmp_path, files):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return path


@pytest.fixture
def packed(tmp_path):
    return archive(tmp_path, {"ml-100k/u.data": ROWS, "ml-100k/README": "terms", "../evil": "no", "ml-100k/a/b": "no"})


def test_from_a_local_archive(packed, tmp_path):
    home = tmp_path / "home"
    target, ratings = fetch("ml-100k", source=str(packed), folder=home)
    assert target == home / "ml-100k"
    assert len(ratings) == 3
    assert sorted(path.name for path in target.iterdir()) == ["README", "u.data"]
    assert [path.name for path in home.iterdir()] == ["ml-100k"]
    with pytest.raises(InputError, match="already there"):
        fetch("ml-100k", source=str(packed), folder=home)


def test_from_an_address(packed, tmp_path):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    handler.func.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        _, ratings = fetch("ml-100k", source=f"http://127.0.0.1:{server.server_port}/set.zip", folder=tmp_path / "home")
        server.shutdown()
        thread.join()
    assert len(ratings) == 3


def test_no_network_is_one_line(tmp_path):
    with pytest.raises(EnvironmentProblem, match="cannot be fetched") as problem:
        fetch("ml-100k", source="http://127.0.0.1:9/set.zip", folder=tmp_path / "home")
    assert "\n" not in str(problem.value)
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [({"other/u.data": ROWS}, "no such file"), ({"ml-100k/u.data": "x\ty\tz\tw\n"}, "line 1")],
)
def test_another_archive_is_refused_and_nothing_left(files, message, tmp_path):
    with pytest.raises(InputError, match=message):
        fetch("ml-100k", source=str(archive(tmp_path, files)), folder=tmp_path / "home")
    assert list((tmp_path / "home").iterdir()) == []


def test_not_an_archive(tmp_path):
    path = tmp_path / "set.zip"
    path.write_text("nothing")
    with pytest.raises(InputError, match="cannot be unpacked"):
        fetch("ml-100k", source=str(path), folder=tmp_path / "home")
    with pytest.raises(InputError, match="not known"):
        fetch("netflix", source=str(path), folder=tmp_path / "home")
    with pytest.raises(InputError, match="no such file"):
        fetch("ml-100k", source=str(tmp_path / "absent.zip"), folder=tmp_path / "home")
