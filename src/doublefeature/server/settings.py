"""What a service is started with, checked before anything listens."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from doublefeature.errors import SettingsError, show
from doublefeature.server.keys import Key

API = "/api/v1"
"""Where the routes for programs begin."""
DESCRIPTION = f"{API}/openapi.json"
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")
"""What a service on the loopback interface is called by those who may use it without a key."""


@dataclass(frozen=True)
class Settings:
    """Where to listen, where ratings go, who may ask, and what a request may cost.

    Attributes
    ----------
    database
        Address of the database; None: SQLite in a file beside the model.
    keys
        Who may ask; empty: everybody on this machine.
    hosts
        Names the service is reached by, besides those of this machine; checked when there are no keys.
    most_body, most_connections
        Bytes of a request's body; connections open at once.
    rate, burst
        Requests a second of one key, and how many may come at once.
    workers, queue
        Threads that compute, and requests that may wait for them; more are refused with 503.
    work_seconds, body_seconds, header_seconds, drain_seconds
        How long an answer, a request's body, its head, and the last answers before the end may take.
    table_bytes
        Most memory for the table of predictions that makes answers for known users fast.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    database: str | None = None
    keys: tuple[Key, ...] = ()
    hosts: tuple[str, ...] = ()
    most_body: int = 2**20
    most_connections: int = 512
    rate: float = 500.0
    burst: int = 1000
    workers: int = 2
    queue: int = 8
    work_seconds: float = 20.0
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    drain_seconds: float = 8.0
    table_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65_536:
            raise SettingsError(f"a port lies between 0 and 65535, got {show(self.port)}.")
        if not self.is_local and not self.keys:
            raise SettingsError(
                f"address {show(self.host)} can be reached from other machines, which needs an API key. "
                "Make one with: doublefeature new-key NAME --keys FILE, and pass --keys FILE."
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def default_database(model: Path) -> str:
    """Return the address of the SQLite file beside a model folder."""
    folder = model.absolute()
    return f"sqlite:///{folder.with_name(folder.name + '.ratings.sqlite')}"
