"""What `doctor` looks at."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from doublefeature._jit import cache_base
from doublefeature._version import __version__
from doublefeature.datasets import DATASET_NAMES, cache_folder

_CORE = ("numpy", "numba", "narwhals", "typer", "rich")
_EXTRAS = {
    "io": ("polars",),
    "plot": ("matplotlib",),
    "arviz": ("xarray", "h5netcdf"),
    "study": ("libmf",),
    "server": ("fastapi", "sqlalchemy", "psycopg"),
    "dask": ("dask", "distributed"),
}


def checks() -> Iterator[tuple[str, str, bool]]:
    """Yield name, finding and whether it is fine."""
    yield "doublefeature", __version__, True
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", True
    for name in _CORE:
        yield name, _version(name), _version(name) != "missing"
    for extra, packages in _EXTRAS.items():
        absent = [name for name in packages if find_spec(name) is None]
        finding = f"not installed: pip install 'doublefeature[{extra}]'" if absent else "installed"
        yield f"extra {extra}", finding, True
    yield "extra peers", _peers(), True
    yield "cores", str(os.cpu_count()), True
    yield "threading layer", _threading(), True
    base = cache_base()
    yield "compiled kernels", str(base) if base else "no folder can be written: every start compiles", base is not None
    folder = cache_folder()
    there = [name for name in DATASET_NAMES if (folder / name).is_dir()]
    yield "data sets", f"{', '.join(there) or 'none'} in {folder}", True


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _peers() -> str:
    from doublefeature.evaluation.peers.registry import KNOWN

    packages = {peer.package: peer.installed for peer in KNOWN.values()}
    absent = sorted(name for name, there in packages.items() if not there)
    if not absent:
        return "installed"
    return f"not installed: {', '.join(absent)}: pip install 'doublefeature[peers]'"


def _threading() -> str:
    from doublefeature.inference.chain import threads_may_nest

    return "OpenMP" if threads_may_nest() else "work queue: chains use one thread each"
