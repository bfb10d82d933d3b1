"""Start the service, keep slow clients off, swap on SIGHUP, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, MissingExtraError
from doublefeature.server.logs import start_logging
from doublefeature.server.settings import Settings

try:
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise MissingExtraError("serving a model", "server") from None

from doublefeature.server.app import guarded, open_service

_KEEP_ALIVE = 5
_TURN = 0.0005
"""Seconds that a thread may hold the interpreter while others wait; Python's 5 ms add up from question to answer."""


def serve(path: Path, settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve a model folder until SIGINT or SIGTERM; `announce` is told the address once it answers."""
    start_logging()
    sys.setswitchinterval(_TURN)
    service = open_service(path, settings)
    listener = _listen(settings.host, settings.port)
    config = uvicorn.Config(
        guarded(service),
        http=_patient(settings.header_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=settings.most_connections,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.drain_seconds),
        h11_max_incomplete_event_size=16 * 1024,
    )
    server = _Server(config, service.holder.swap, lambda: announce(_address(listener)))
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it listens, and reads the model again on SIGHUP."""

    def __init__(self, config: uvicorn.Config, swap: Callable[[], object], started: Callable[[], None]) -> None:
        super().__init__(config)
        self._swap = swap
        self._announce = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then announce."""
        await super().startup(sockets)
        if self.started:
            with contextlib.suppress(NotImplementedError, AttributeError, RuntimeError):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
            self._announce()

    def _reload(self) -> None:
        threading.Thread(target=self._try_swap, name="doublefeature-swap", daemon=True).start()

    def _try_swap(self) -> None:
        with contextlib.suppress(DoubleFeatureError):  # refused: logged, and shown as `alarm`
            self._swap()


def _patient(seconds: float) -> type[H11Protocol]:
    """Return a protocol that waits so long for a request's head, then hangs up."""

    class Patient(H11Protocol):
        """HTTP/1.1 with an end to waiting."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()
            elif self._deadline is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._deadline = self.loop.call_later(seconds, self._hang_up)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _hang_up(self) -> None:
            self._deadline = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.close()

    return Patient


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Its protocol is named: asyncio turns Nagle's delay, 40 ms an answer, off only then."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError) as problem:
        listener.close()
        reason = getattr(problem, "strerror", None) or str(problem)
        raise EnvironmentProblem(f"cannot listen on {host} port {port} ({reason}). Choose another --port.") from None
    listener.setblocking(False)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
