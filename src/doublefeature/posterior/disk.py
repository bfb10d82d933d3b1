"""Files that a kill or a power cut cannot leave half-written.

A file is written under a temporary name beside its place, flushed to the disk, and renamed; the rename counts once
the directory has been flushed too. Everything goes through a `Disk`, which tests replace by one that fails or stops
at a chosen operation.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._delimited import display_name
from doublefeature.errors import EnvironmentProblem, StoreError

PARTIAL = ".partial"
"""Ending of temporary names."""
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
_UNLOCKABLE = (errno.ENOTSUP, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Disk:
    """The operations through which all writing goes."""

    def make_directory(self, path: Path) -> None:
        """Make a directory whose parent exists."""
        path.mkdir()

    def create(self, path: Path) -> int:
        """Open a new file, emptying an old one of that name."""
        return os.open(path, _NEW_FLAGS, 0o644)

    def write(self, handle: int, data: memoryview) -> int:
        """Write as much as the system takes and return how much that was."""
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """Wait until the file's content is on the disk."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        """Give a file another name, taking the place of what had it."""
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        """Wait until a directory's names are on the disk (where directories can be opened)."""
        if os.name == "nt":
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)


class Written(NamedTuple):
    """Checksum and size of a file that was written."""

    sha256: str
    size: int


def write_file(disk: Disk, path: Path, parts: Iterable[bytes]) -> Written:
    """Write a file whole or not at all; flush its directory afterwards for the name to last."""
    partial = path.with_name(path.name + PARTIAL)
    digest = hashlib.sha256()
    size = 0
    try:
        handle = disk.create(partial)
        try:
            for part in parts:
                digest.update(part)
                size += len(part)
                _write_all(disk, handle, part)
            disk.sync(handle)
        finally:
            disk.close(handle)
        disk.replace(partial, path)
    except (OSError, MemoryError):
        with suppress(OSError, MemoryError):
            disk.remove(partial)
        raise
    return Written(digest.hexdigest(), size)


def write_whole(path: Path, data: bytes, doing: str = "writing") -> None:
    """Write a file whole or not at all, flushed to the disk; what the system refuses becomes one line."""
    disk = Disk()
    with disk_problems(path, doing):
        write_file(disk, path, [data])
        disk.sync_directory(path.parent)


def _write_all(disk: Disk, handle: int, part: bytes) -> None:
    left = memoryview(part)
    while left:
        left = left[disk.write(handle, left) :]


def read_file(path: Path, *, most: int, size: int | None = None) -> NDArray[np.uint8]:
    """Return the bytes of a regular file, whose size is checked before any memory is taken."""
    handle = os.open(path, _READ_FLAGS)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise StoreError("it is not a file")
        if size is not None and about.st_size != size:
            raise StoreError(f"it has {about.st_size} bytes instead of {size}")
        if about.st_size > most:
            raise StoreError(f"it has {about.st_size} bytes, {most} are possible")
        data = np.empty(about.st_size, np.uint8)
        with os.fdopen(handle, "rb", buffering=0, closefd=False) as file:
            _read_all(file, data.data)
    finally:
        os.close(handle)
    return data


def _read_all(file: RawIOBase, left: memoryview) -> None:
    while left:
        count = file.readinto(left)
        if not count:
            raise StoreError("it ends too early")
        left = left[count:]


@contextmanager
def disk_problems(path: Path, doing: str) -> Iterator[None]:
    """Turn what the system refuses into one line that names the folder and what happened."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some space and try again" if full else "Check the disk and the permissions"
        raise EnvironmentProblem(f"{display_name(path)}: {doing} failed, {reason.lower()}. {remedy}.") from problem
    except MemoryError as problem:
        raise EnvironmentProblem(f"{display_name(path)}: {doing} failed, out of memory.") from problem


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Hold a folder against other writers, in this process or another, as far as the system has locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentProblem(
                f"{display_name(path)}: another run is writing here. Wait for it or stop it."
            ) from None
        except OSError as problem:
            if problem.errno not in _UNLOCKABLE:
                raise
        yield
    finally:
        os.close(handle)
