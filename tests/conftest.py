"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


@pytest.fixture
def data_dir() -> Path:
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DOUBLEFEATURE_DATA") or beside)
    if not folder.is_dir():
        pytest.skip("real ratings not found; set DOUBLEFEATURE_DATA")
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_file(content: str | bytes, name: str = "ratings.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file
