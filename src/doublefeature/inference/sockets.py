"""A team's link over sockets, one to every other worker, encrypted where certificates are given.

Kernels exchange small arrays many times a sweep, so this is plain blocking input and output in the thread that sweeps.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from doublefeature.inference.teams import LostWorker

SMALL = 2**15
"""Pieces of up to so many bytes are sent to everybody before anything is received: buffers hold them."""
_BUFFER = 2**22
_LENGTH = struct.Struct("<Q")
_RANK = struct.Struct("<I")
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 10, "TCP_USER_TIMEOUT": 30_000}
"""When the machine of another worker has vanished, that is noticed in half a minute."""


class Door:
    """Where workers with lower ranks knock; they have to know a secret."""

    def __init__(self, host: str, secret: bytes, context: ssl.SSLContext | None = None) -> None:
        self._secret, self._context = secret, context
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family)
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])

    def answer(self, count: int, seconds: float) -> dict[int, socket.socket]:
        """Let so many workers in, and return their sockets by rank."""
        found: dict[int, socket.socket] = {}
        self._socket.settimeout(seconds)
        while len(found) < count:
            visitor, _ = self._socket.accept()
            visitor.settimeout(seconds)
            try:
                line = self._context.wrap_socket(visitor, server_side=True) if self._context else visitor
                greeting = _receive(line, len(self._secret) + _RANK.size)
            except (OSError, LostWorker):
                visitor.close()
                continue
            if greeting.startswith(self._secret):
                found[_RANK.unpack(greeting[len(self._secret) :])[0]] = _ready(line)
        return found

    def close(self) -> None:
        """Let nobody in any more."""
        self._socket.close()


def knock(
    address: tuple[str, int], secret: bytes, rank: int, seconds: float, context: ssl.SSLContext | None = None
) -> socket.socket:
    """Return a socket to the worker at an address."""
    line = socket.create_connection(address, timeout=seconds)
    if context is not None:
        line = context.wrap_socket(line, server_hostname=address[0])
    line.sendall(secret + _RANK.pack(rank))
    return _ready(line)


class SocketLink:
    """Sockets to all other workers, by rank."""

    def __init__(self, rank: int, size: int, sockets: dict[int, socket.socket]) -> None:
        self.rank, self.size = rank, size
        self._sockets = dict(sorted(sockets.items()))

    def exchange(self, mine: bytes) -> list[bytes]:
        """Give bytes to everybody and return everybody's."""
        return self.trade([mine] * self.size)

    def trade(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Give every worker its piece and return what every worker has given."""
        try:
            return self._trade(pieces)
        except (OSError, LostWorker) as problem:
            self.close()
            raise LostWorker(f"worker {self.rank} of {self.size} has lost another") from problem

    def _trade(self, pieces: Sequence[bytes]) -> list[bytes]:
        found = list(pieces)
        for other, line in self._sockets.items():
            piece = pieces[other]
            line.sendall(_LENGTH.pack(len(piece)) + (piece if len(piece) <= SMALL else b""))
        large = {}
        for other, line in self._sockets.items():
            (length,) = _LENGTH.unpack(_receive(line, _LENGTH.size))
            if length <= SMALL:
                found[other] = _receive(line, length)
            else:
                large[other] = length
        for other in _rounds(self.rank, self.size):
            line = self._sockets[other]
            if self.rank < other and len(pieces[other]) > SMALL:
                line.sendall(pieces[other])
            if other in large:
                found[other] = _receive(line, large[other])
            if self.rank > other and len(pieces[other]) > SMALL:
                line.sendall(pieces[other])
        return found

    def close(self) -> None:
        """Break off, so that the others know."""
        for line in self._sockets.values():
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()


def _rounds(rank: int, size: int) -> list[int]:
    """Return the other ranks in an order in which, round by round, any two have each other's turn."""
    even = size + size % 2
    partners = [_partner(rank, turn, even) for turn in range(even - 1)]
    return [other for other in partners if other < size]


def _partner(rank: int, turn: int, even: int) -> int:
    """Return who a rank meets in a round of a tournament of an even number of ranks."""
    last = even - 1
    if rank == last:
        return turn * (even // 2) % last
    other = (turn - rank) % last
    return last if other == rank else other


def _ready(line: socket.socket) -> socket.socket:
    """Set a socket up for small messages, large buffers and vanished machines."""
    line.settimeout(None)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        line.setsockopt(socket.SOL_SOCKET, kind, _BUFFER)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return line


def _receive(line: Any, length: int) -> bytes:
    data = bytearray(length)
    left = memoryview(data)
    while left:
        count = line.recv_into(left)
        if not count:
            raise LostWorker("a worker has hung up")
        left = left[count:]
    return bytes(data)
