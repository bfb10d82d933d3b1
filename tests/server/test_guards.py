"""Keys, rates, sizes, hosts: what a request may cost and who may ask."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from pathlib import Path

import pytest
from starlette.routing import Mount

from doublefeature import server
from doublefeature.errors import InputError, SettingsError
from doublefeature.server.app import API, build_app
from doublefeature.server.keys import Key, digest_of, find_key, new_key, read_keys
from doublefeature.server.limits import Buckets
from doublefeature.server.logs import LOGGER, JsonLines
from doublefeature.server.metrics import Metrics
from doublefeature.server.problems import BusyError
from doublefeature.server.settings import Settings
from doublefeature.server.workers import Workers

PUBLIC = {"/health/live", "/health/ready", f"{API}/openapi.json"}
"""Routes that answer without a key: they tell nothing about anybody."""
READER, WRITER = "df_reader", "df_writer"
KEYS = (Key("reader", "read", digest_of(READER)), Key("writer", "write", digest_of(WRITER)))


def operations(service) -> list[tuple[str, str]]:
    """Return every method and address of the API's description, ids filled in."""
    spec = build_app(service).openapi()
    ids = {"{user}": "3", "{item}": "2", "{number}": "0"}
    found = []
    for path, entry in spec["paths"].items():
        for name, value in ids.items():
            path = path.replace(name, value)
        found += [(method.upper(), path) for method in entry]
    return found


class TestKeys:
    def test_keys_are_made_kept_as_hashes_and_found(self, tmp_path):
        file = tmp_path / "keys.json"
        secret = new_key(file, "page", "read")
        other = new_key(file, "import", "write")
        assert secret not in file.read_text()
        assert file.stat().st_mode & 0o077 == 0
        keys = read_keys(file)
        assert find_key(secret, keys) == keys[0]
        assert find_key(other, keys).role == "write"
        assert find_key("df_wrong", keys) is None
        with pytest.raises(InputError, match="already"):
            new_key(file, "page", "read")

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"name": "x"}]}', '{"keys": 3}'])
    def test_bad_files_are_one_line(self, tmp_path, text):
        file = tmp_path / "keys.json"
        file.write_text(text)
        with pytest.raises(InputError):
            read_keys(file)

    def test_other_addresses_need_keys(self):
        for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
            with pytest.raises(SettingsError, match="API key"):
                Settings(host=host)
            assert Settings(host=host, keys=KEYS).keys == KEYS
        assert Settings(host="127.0.0.1").is_local
        assert Settings(host="::1").is_local


class TestEveryRoute:
    def test_nothing_but_health_answers_without_a_key(self, open_client, number_folder):
        client, service = open_client(number_folder, keys=KEYS)
        walked = operations(service)
        assert len(walked) > 25
        for method, path in walked:
            answer = client.request(method, path)
            if path in PUBLIC:
                assert answer.status_code == 200, path
            else:
                assert answer.status_code == 401, (method, path)
                assert client.request(method, path, headers={"X-API-Key": "df_guess"}).status_code == 401

    def test_the_description_leaves_no_route_out(self, numbers):
        """A route hidden from the description would escape the walk above; the page's files are the only others."""
        _, service = numbers
        app = build_app(service)
        page = {f"/{file.name}" for file in Path(server.__file__).parent.joinpath("page").iterdir()}
        assert not [route for route in app.routes if isinstance(route, Mount)]
        hidden = [route for route in app.routes if getattr(route, "include_in_schema", True) is False]
        assert {getattr(route, "path", "") for route in hidden} <= page | {"/", f"{API}/openapi.json"}

    def test_a_reading_key_changes_nothing(self, open_client, number_folder):
        client, service = open_client(number_folder, keys=KEYS)
        changing = {("PUT", f"{API}/users/3/ratings/2"), ("DELETE", f"{API}/users/3/ratings/2")}
        changing |= {("DELETE", f"{API}/users/3"), ("POST", f"{API}/model/reload")}
        for method, path in operations(service):
            status = client.request(method, path, headers={"X-API-Key": READER}, json={} if method == "POST" else None)
            assert (status.status_code == 403) == ((method, path) in changing), (method, path, status.status_code)
        stored = client.put(f"{API}/users/3/ratings/2", headers={"X-API-Key": WRITER}, json={"rating": 3})
        assert stored.status_code == 200

    def test_a_planted_open_route_would_be_seen(self, open_client, number_folder):
        _, service = open_client(number_folder, keys=KEYS)
        app = build_app(service)

        @app.get("/api/v1/leak")
        async def leak() -> dict[str, str]:
            return {"secret": "everything"}

        from fastapi.testclient import TestClient

        answer = TestClient(app).get("/api/v1/leak")
        assert answer.status_code != 401
        assert "/api/v1/leak" in app.openapi()["paths"]
        assert "/api/v1/leak" not in PUBLIC


class TestDoor:
    def test_without_a_key_nothing_of_a_body_is_read(self, open_client, number_folder):
        client, _ = open_client(number_folder, keys=KEYS)
        headers = {"Content-Type": "application/json"}
        assert client.post(f"{API}/recommendations", content=b"{bad", headers=headers).status_code == 401
        assert client.get(f"{API}/nothing").status_code == 401

    def test_guessing_is_slowed_down(self, open_client, number_folder):
        client, _ = open_client(number_folder, keys=KEYS)
        guesses = [client.get(f"{API}/model", headers={"X-API-Key": f"df_{k}"}).status_code for k in range(300)]
        assert set(guesses) == {401, 429}
        assert client.get(f"{API}/model", headers={"X-API-Key": READER}).status_code == 200

    def test_health_tells_no_paths(self, open_client, number_folder):
        client, _ = open_client(number_folder, keys=KEYS)
        body = {"folder": "nothing-here"}
        assert client.post(f"{API}/model/reload", json=body, headers={"X-API-Key": WRITER}).status_code == 409
        told = client.get("/health/ready").json()["alarm"]
        assert "refused" in told
        assert "/tmp" not in told
        assert "nothing-here" in client.get(f"{API}/model", headers={"X-API-Key": READER}).json()["alarm"]

    def test_no_address_is_sent_elsewhere(self, open_client, number_folder):
        client, _ = open_client(number_folder, keys=KEYS)
        for path in (f"{API}/items/", "/health/live/"):
            answer = client.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
            assert answer.status_code in (401, 404)
            assert "location" not in answer.headers


class TestHosts:
    def test_without_keys_only_this_machine_s_names_are_answered(self, numbers):
        client, _ = numbers
        assert client.get("/health/live", headers={"Host": "evil.example"}).status_code == 421
        for host in ("localhost:80", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
            assert client.get("/health/live", headers={"Host": host}).status_code == 200

    def test_pages_of_other_sites_are_refused(self, numbers):
        client, _ = numbers
        assert client.get(f"{API}/model", headers={"Origin": "https://evil.example"}).status_code == 403
        assert client.get(f"{API}/model", headers={"Origin": "null"}).status_code == 403
        same = client.get(f"{API}/model", headers={"Origin": "http://localhost"})
        assert same.status_code == 200
        assert "access-control-allow-origin" not in same.headers

    @pytest.mark.parametrize("origin", ["http://[", "http://]", "//", "", "http://a:b:c"])
    def test_origins_that_are_none_are_refused(self, numbers, origin):
        client, _ = numbers
        answer = client.get(f"{API}/model", headers={"Origin": origin})
        assert answer.status_code == 403
        assert answer.json()["error"] == "not allowed"

    def test_a_bug_is_one_json_answer_and_one_line_without_what_it_says(self, numbers, monkeypatch):
        client, service = numbers
        lines = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(JsonLines().format(record))
        LOGGER.addHandler(handler)
        monkeypatch.setattr(service, "look", lambda *_: 1 / 0 if (secret := "user 17") else secret)
        try:
            answer = client.get(f"{API}/features")
        finally:
            LOGGER.removeHandler(handler)
        assert (answer.status_code, answer.json()["error"]) == (500, "internal")
        assert "nosniff" in answer.headers["x-content-type-options"]
        (line,) = [json.loads(one) for one in lines if "internal error" in one]
        assert line["kind"] == "ZeroDivisionError"
        assert any("list_features" in place for place in line["trace"])
        assert "division" not in json.dumps(line)

    def test_every_answer_is_strict_with_browsers(self, numbers):
        client, _ = numbers
        for path in ("/", "/main.js", f"{API}/model", "/nothing", f"{API}/users/999"):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"

    def test_files_outside_the_page_are_not_served(self, numbers):
        client, _ = numbers
        for path in ("/../app.py", "/..%2fapp.py", "/%2e%2e/app.py", "/....//app.py", "/page/../../app.py", "/.git"):
            answer = client.get(path)
            assert answer.status_code in (404, 405), path
            assert "import" not in answer.text


class TestRates:
    def test_buckets_fill_and_empty(self):
        now = [0.0]
        buckets = Buckets(rate=2.0, burst=3, clock=lambda: now[0])
        assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
        assert buckets.take("b")
        now[0] = 0.5
        assert [buckets.take("a"), buckets.take("a")] == [True, False]

    def test_too_many_requests_get_429(self, open_client, number_folder):
        client, _ = open_client(number_folder, rate=0.001, burst=2)
        codes = [client.get(f"{API}/model").status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        answer = client.get(f"{API}/model")
        assert answer.headers["retry-after"] == "1"
        assert client.get("/health/live").status_code == 200


class TestWorkers:
    def test_more_than_the_queue_holds_is_refused_at_once(self):
        workers = Workers("test", threads=1, queue=1, seconds=10.0)
        gate = threading.Event()

        async def scene() -> tuple[list[object], float]:
            running = [asyncio.create_task(workers.run(gate.wait, 5)) for _ in range(2)]
            await asyncio.sleep(0.01)
            began = time.perf_counter()
            with pytest.raises(BusyError):
                await workers.run(gate.wait, 5)
            took = time.perf_counter() - began
            gate.set()
            done = list(await asyncio.gather(*running))
            await asyncio.sleep(0.05)
            return done, took

        done, took = asyncio.run(scene())
        assert done == [True, True]
        assert took < 1.0
        assert (workers.pending, workers.refused) == (0, 1)
        workers.close()

    def test_answers_that_take_too_long_are_given_up(self):
        workers = Workers("test", threads=1, queue=1, seconds=0.05)
        gate = threading.Event()
        with pytest.raises(BusyError, match="longer"):
            asyncio.run(workers.run(gate.wait, 1))
        gate.set()
        workers.close()

    def test_overload_sheds_and_recovers(self, open_client, number_folder):
        client, service = open_client(number_folder, workers=1, queue=0)
        gate = threading.Event()
        blocked = threading.Thread(target=lambda: service.workers._threads.submit(gate.wait, 10).result())
        service.workers.pending += 1
        blocked.start()
        answer = client.get(f"{API}/model")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"] == "busy"
        gate.set()
        blocked.join()
        service.workers.pending -= 1
        assert client.get(f"{API}/model").status_code == 200


class TestWatching:
    def test_metrics_count_requests(self, numbers):
        client, service = numbers
        client.get(f"{API}/users/3")
        client.get(f"{API}/users/999")
        text = client.get("/metrics").text
        assert 'status="404"} 1' in text
        assert f'route="{API}/users/{{user}}"' in text
        assert f'doublefeature_model_info{{version="{service.holder.current.version}"}} 1' in text
        assert "999" not in text

    def test_a_histogram_adds_up(self):
        metrics = Metrics()
        for seconds in (0.0005, 0.02, 99.0):
            metrics.observe("GET", '/odd"route', 200, seconds)
        lines = metrics.text([]).splitlines()
        assert 'doublefeature_request_seconds_bucket{route="/odd\\"route",le="+Inf"} 3' in lines
        assert 'doublefeature_request_seconds_bucket{route="/odd\\"route",le="0.025"} 2' in lines

    def test_log_lines_are_json_and_tell_nothing_about_people(self, open_client, number_folder, caplog):
        client, _ = open_client(number_folder, keys=KEYS)
        LOGGER.propagate = True
        with caplog.at_level(logging.INFO, "doublefeature.server"):
            client.get(f"{API}/users/23/recommendations", headers={"X-API-Key": READER})
            body = {"ratings": [{"item": 17, "rating": 5}]}
            client.post(f"{API}/recommendations", json=body, headers={"X-API-Key": READER})
        lines = [JsonLines().format(record) for record in caplog.records if record.name == "doublefeature.server"]
        rows = [json.loads(line) for line in lines]
        assert all({"id", "method", "route", "status", "ms", "key"} <= set(row) for row in rows)
        for line in lines:
            assert READER not in line
            assert "ratings" not in json.loads(line)
        assert {row["key"] for row in rows} == {"reader"}
        assert "23" not in {part for row in rows for part in row["route"].split("/")}
