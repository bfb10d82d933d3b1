"""One decorator for every compiled function, and the folders its machine code is kept in.

Numba's cache looks only at the file of the function it loads, not at the files of the functions that one calls.
Here the folder carries a digest of the file and of all compiled sources it imports, so that a stale mix is
impossible, also after an upgrade, and a change recompiles only what depends on it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import config, get_num_threads, njit

F = TypeVar("F", bound=Callable[..., Any])

_HERE = Path(__file__).parent
_IMPORT = re.compile(r"^from doublefeature\.((?:model|kernels)\.\w+) import", re.MULTILINE)
_STALE_AFTER_DAYS = 14


@cache
def cache_base() -> Path | None:
    """Where compiled kernels are kept, or None when caching is off or no folder can be written.

    `DOUBLEFEATURE_NUMBA_CACHE=0` turns the cache off; `NUMBA_CACHE_DIR` moves it.
    """
    if os.environ.get("DOUBLEFEATURE_NUMBA_CACHE") == "0":
        return None
    for base in _candidates():
        try:
            base.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=base):
                pass
        except OSError:
            continue
        _forget_old(base)
        return base
    return None


def _candidates() -> list[Path]:
    if config.CACHE_DIR:
        return [Path(config.CACHE_DIR) / "doublefeature"]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [home / "doublefeature", Path(tempfile.gettempdir()) / f"doublefeature-{os.getuid()}"]


def _forget_old(base: Path) -> None:
    """Remove folders that were not written to for two weeks."""
    limit = time.time() - _STALE_AFTER_DAYS * 86_400
    for folder in base.glob("*-*"):
        try:
            if folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


@cache
def _sources(source: Path) -> frozenset[Path]:
    """Return a file and all compiled sources it depends on."""
    found = {source, Path(__file__)}
    for module in _IMPORT.findall(source.read_text(encoding="utf-8")):
        found |= _sources(_HERE / (module.replace(".", "/") + ".py"))
    return frozenset(found)


@cache
def _cache_folder(source: Path) -> Path | None:
    base = cache_base()
    if base is None or not source.is_file():
        return None
    digest = hashlib.sha256()
    for file in sorted(_sources(source)):
        digest.update(file.read_bytes())
    return base / f"{source.stem}-{digest.hexdigest()[:16]}"


def is_compiled(module: str) -> bool:
    """Whether machine code of a compiled module, such as `kernels/features`, is in the cache."""
    folder = _cache_folder(_HERE / f"{module}.py")
    return folder is not None and next(folder.rglob("*.nbi"), None) is not None


def _compile(function: F, parallel: bool = False, counted: bool = True, inlined: bool = False) -> F:
    folder = _cache_folder(Path(function.__code__.co_filename))
    previous = config.CACHE_DIR
    try:
        if folder is not None:
            config.CACHE_DIR = str(folder)
        compiled: F = njit(
            nogil=True,
            error_model="numpy",
            parallel=parallel,
            _nrt=counted,
            forceinline=inlined,
            cache=folder is not None,
            no_cfunc_wrapper=True,
            no_cpython_wrapper=function.__name__.startswith("_"),
        )(function)
    finally:
        config.CACHE_DIR = previous
    return compiled


def kernel(function: F) -> F:
    """Compile for one thread, without the interpreter lock.

    Functions whose name starts with an underscore must be called from other kernels only (from Python
    they crash): leaving out the door to the interpreter halves the time it takes to compile them.
    """
    return _compile(function)


def leaf(function: F) -> F:
    """Compile without reference counting: ten times faster when tuples of arrays are passed about.

    The function must not create arrays, nor return arrays or tuples of them.
    """
    return _compile(function, counted=False)


def inlined(function: F) -> F:
    """Compile as a leaf whose body is copied into its callers: for the few lines that hot loops turn around."""
    return _compile(function, counted=False, inlined=True)


def threaded(function: F) -> F:
    """Compile with `prange` spread over threads. Bodies must not depend on which thread runs them.

    Machine code loaded from the cache calls into the threading layer without starting it, so start it here.
    """
    get_num_threads()
    return _compile(function, parallel=True)
