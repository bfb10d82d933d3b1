"""API keys: random texts of which only the SHA-256 is kept, compared in constant time.

A key has 256 random bits, so its plain hash cannot be turned back by trying; a file of keys that leaks opens nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from doublefeature.errors import InputError, SettingsError, StoreError, show
from doublefeature.posterior.arrays import strict_json
from doublefeature.posterior.disk import disk_problems, write_whole

Role = Literal["read", "write"]
ROLES: tuple[Role, ...] = ("read", "write")

_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PREFIX = "df_"
_MOST_BYTES = 2**20


@dataclass(frozen=True)
class Key:
    """Who a key belongs to, what it may do, and the hash it is known by."""

    name: str
    role: Role
    sha256: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.role not in ROLES or not _DIGEST.fullmatch(self.sha256):
            raise SettingsError(f"{show(self.name)} is no key: a short name, role read or write, and a SHA-256.")


def digest_of(secret: str) -> str:
    """Return what is kept of a key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_key(secret: str, keys: Sequence[Key]) -> Key | None:
    """Return the key a secret opens; every key is compared, so that time tells nothing."""
    digest, found = digest_of(secret), None
    for key in keys:
        if hmac.compare_digest(digest, key.sha256):
            found = key
    return found


def new_key(path: Path, name: str, role: Role) -> str:
    """Make a key, add its hash to a file, and return the secret, which is kept nowhere."""
    keys = read_keys(path) if path.exists() else ()
    if any(key.name == name for key in keys):
        raise InputError(f"{path}: there is a key named {show(name)} already. Choose another name.")
    secret = _PREFIX + secrets.token_urlsafe(32)
    rows = [asdict(key) for key in (*keys, Key(name, role, digest_of(secret)))]
    write_whole(path, json.dumps({"keys": rows}, indent=1).encode() + b"\n")
    path.chmod(0o600)
    return secret


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read a file of keys."""
    with disk_problems(path, "reading"):
        if not path.is_file():
            raise InputError(f"{path}: there is no such file. Make it with: doublefeature new-key NAME --keys {path}")
        data = path.read_bytes()[: _MOST_BYTES + 1]
    try:
        plain = strict_json(data)
        rows = plain["keys"]  # type: ignore[index]
        keys = tuple(Key(**row) for row in rows)
    except (StoreError, SettingsError, TypeError, KeyError, IndexError):
        raise InputError(f"{path}: this is no file of keys. Make one with: doublefeature new-key.") from None
    if not keys:
        raise InputError(f"{path}: it holds no keys. Add one with: doublefeature new-key.")
    return keys
