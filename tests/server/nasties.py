"""Requests nobody should send: sixty of them, each with the answers that are allowed."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import NamedTuple

_JSON = b"Content-Type: application/json\r\n"
_ASK = b"POST /api/v1/recommendations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


class Nasty(NamedTuple):
    """Bytes to send, and the statuses that are fine; 0: the connection may just end."""

    name: str
    sent: bytes
    fine: tuple[int, ...]


def get(path: bytes, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    lines = [method + b" " + path + b" HTTP/" + version, b"Host: localhost", b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def post(body: bytes, path: bytes = b"/api/v1/recommendations", kind: bytes = _JSON, method: bytes = b"POST") -> bytes:
    head = method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + kind
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _bodies() -> list[Nasty]:
    many = json.dumps({"ratings": [{"item": 1, "rating": 5}] * 60_000}).encode()
    huge = b'{"ratings": [' + b'{"item":1,"rating":5},' * 10**6 + b"{}]}"
    bad = (400, 422)
    return [
        Nasty("NaN", post(b'{"quantile": NaN}'), bad),
        Nasty("Infinity", post(b'{"quantile": Infinity}'), bad),
        Nasty("-Infinity", post(b'{"quantile": -Infinity}'), bad),
        Nasty("1e999", post(b'{"quantile": 1e999}'), bad),
        Nasty("repeated key", post(b'{"n": 3, "n": 4}'), bad),
        Nasty("depth 10,000", post(b"[" * 10_000 + b"]" * 10_000), bad),
        Nasty("deep inside", post(b'{"ratings": ' + b"[" * 5000 + b"]" * 5000 + b"}"), bad),
        Nasty("11 MB", post(b'{"n": 3}' + b" " * 11_000_000), (413, 0)),
        Nasty("10^6 ratings", post(huge), (413, 0)),
        Nasty("60,000 ratings", post(many), (413, 422, 0)),
        Nasty("5,001 ratings", post(json.dumps({"ratings": [{"item": 1, "rating": 5}] * 5001}).encode()), (422,)),
        Nasty("plain text", post(b'{"n": 3}', kind=b"Content-Type: text/plain\r\n"), (415,)),
        Nasty("form", post(b"n=3", kind=b"Content-Type: application/x-www-form-urlencoded\r\n"), (415,)),
        Nasty("no content type", post(b'{"n": 3}', kind=b""), (415,)),
        Nasty("two content types", post(b'{"n": 3}', kind=_JSON + b"Content-Type: text/html\r\n"), (415,)),
        Nasty("repeated item", post(b'{"ratings": [{"item":1,"rating":5},{"item":1,"rating":4}]}'), (409,)),
        Nasty("unknown item", post(b'{"ratings": [{"item":123456,"rating":5}]}'), (409,)),
        Nasty("unknown level", post(b'{"ratings": [{"item":1,"rating":17}]}'), (409,)),
        Nasty("level as text", post(b'{"ratings": [{"item":1,"rating":"many"}]}'), (409,)),
        Nasty("level true", post(b'{"ratings": [{"item":1,"rating":true}]}'), (422,)),
        Nasty("level null", post(b'{"ratings": [{"item":1,"rating":null}]}'), (422,)),
        Nasty("item as list", post(b'{"ratings": [{"item":[1],"rating":5}]}'), (422,)),
        Nasty("item as number with point", post(b'{"ratings": [{"item":1.5,"rating":5}]}'), (422,)),
        Nasty("item 2^70", post(b'{"ratings": [{"item":1180591620717411303424,"rating":5}]}'), (422,)),
        Nasty("5,000 digits", post(b'{"n": ' + b"9" * 5000 + b"}"), bad),
        Nasty("n negative", post(b'{"n": -1}'), (422,)),
        Nasty("n zero", post(b'{"n": 0}'), (422,)),
        Nasty("n 10^9", post(b'{"n": 1000000000}'), (422,)),
        Nasty("n with point", post(b'{"n": 3.5}'), (422,)),
        Nasty("n as text", post(b'{"n": "3"}'), (422,)),
        Nasty("unknown key", post(b'{"nn": 3}'), (422,)),
        Nasty("a list", post(b"[1, 2]"), (422,)),
        Nasty("null", post(b"null"), (422,)),
        Nasty("nothing", post(b""), (422,)),
        Nasty("half a text", post(b'{"n": 3'), bad),
        Nasty("not UTF-8", post(b'{"user": "\xff\xfe"}'), bad),
        Nasty("lone surrogate", post(b'{"user": "\\ud800", "ratings": []}'), (409, 422)),
        Nasty("NUL in an id", post(b'{"user": "a\\u0000b", "ratings": []}'), (200, 409, 422)),
        Nasty("BOM", post(b'\xef\xbb\xbf{"n": 3}'), bad),
        Nasty("empty id", post(b'{"user": ""}'), (422,)),
        Nasty("long id", post(json.dumps({"user": "x" * 2000}).encode()), (422,)),
        Nasty("empty pairs", post(b'{"pairs": []}', b"/api/v1/predictions"), (422,)),
        Nasty("mass 0", post(b'{"items": [1], "mass": 0}', b"/api/v1/predictions/items"), (422,)),
        Nasty("mass 2", post(b'{"items": [1], "mass": 2}', b"/api/v1/predictions/items"), (422,)),
        Nasty("rating in a list", post(b'{"rating": [5]}', b"/api/v1/users/3/ratings/2", method=b"PUT"), (422,)),
    ]


def _addresses() -> list[Nasty]:
    return [
        Nasty("../", get(b"/api/v1/users/../../etc/passwd"), (404,)),
        Nasty("%2e%2e%2f", get(b"/api/v1/users/%2e%2e%2fetc%2fpasswd"), (404, 409)),
        Nasty("%00", get(b"/api/v1/users/%00"), (404, 409)),
        Nasty("emoji", get(b"/api/v1/users/%F0%9F%8E%AC"), (404, 409)),
        Nasty("right to left", get(b"/api/v1/users/%E2%80%AE%D7%A9"), (404, 409)),
        Nasty("--5", get(b"/api/v1/users/--5"), (404, 409)),
        Nasty("digits of another script", get(b"/api/v1/users/%D9%A3"), (200, 404, 409)),
        Nasty("n=1e9", get(b"/api/v1/users/3/recommendations?n=1000000000"), (422,)),
        Nasty("n twice", get(b"/api/v1/users/3/recommendations?n=3&n=4"), (200, 422)),
        Nasty("bad percent", get(b"/api/v1/users/%zz"), (404, 409)),
        Nasty("spaces", get(b"/api/v1/us ers"), (400, 404)),
        Nasty("absolute address", get(b"http://evil.example/api/v1/model"), (404, 421)),
        Nasty("long address", get(b"/api/v1/users/" + b"x" * 15_000), (400, 414, 422, 431)),
        Nasty("10 kB header", get(b"/health/live", b"X-Long: " + b"y" * 10_000), (200, 400, 431)),
        Nasty("100 kB header", get(b"/health/live", b"X-Long: " + b"y" * 100_000), (400, 431, 0)),
        Nasty("bad header", get(b"/health/live", b"No Colon"), (400,)),
        Nasty("HTTP/1.0", get(b"/health/live", version=b"1.0"), (200,)),
        Nasty("HTTP/9.9", get(b"/health/live", version=b"9.9"), (200, 400, 505, 0)),
        Nasty("HEAD", get(b"/api/v1/model", method=b"HEAD"), (200, 405)),
        Nasty("OPTIONS", get(b"/api/v1/model", method=b"OPTIONS"), (405,)),
        Nasty("TRACE", get(b"/api/v1/model", method=b"TRACE"), (405,)),
        Nasty("DELETE of the model", get(b"/api/v1/model", method=b"DELETE"), (405,)),
        Nasty("made-up method", get(b"/api/v1/model", method=b"BREW"), (405, 400)),
        Nasty("no request", b"\x16\x03\x01\x02\x00\x01\x00", (400, 0)),
        Nasty("two lengths", _ASK + _JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", (400, 0)),
        Nasty("negative length", _ASK + _JSON + b"Content-Length: -2\r\n\r\n{}", (400, 0)),
        Nasty("bad chunk", _ASK + _JSON + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n", (400, 408, 0)),
    ]


CASES = [*_bodies(), *_addresses()]


def status_of(port: int, sent: bytes, timeout: float = 60.0) -> tuple[int, bytes]:
    """Send bytes and return status and body; 0 when the connection ends without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as link:
        found = b""
        with suppress(OSError):
            link.sendall(sent)
        with suppress(OSError):
            while part := link.recv(65_536):
                found += part
    if not found.startswith(b"HTTP/1.1 "):
        return 0, b""
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def seconds_until_closed(port: int, head: bytes, pause: float, most: float) -> float:
    """Send a head, then one byte at a time; return how long the other side put up with it."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=most) as link:
        link.sendall(head)
        link.settimeout(pause)
        while time.monotonic() - began < most:
            try:
                link.sendall(b"x")
                if not link.recv(4096):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    return time.monotonic() - began
