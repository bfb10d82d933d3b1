"""Tiny fitted models, a service around them, and real parts where they matter."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from doublefeature import DoubleFeature, Ratings, Schedule
from doublefeature.server.app import guarded, open_service
from doublefeature.server.service import Service
from doublefeature.server.settings import Settings
from doublefeature.studies.recovery import Design, simulate
from tests.server.parts import Postgres, postgres_or_skip

TITLES = ("Alien", "Heat", "Up", *(f"Film {k}" for k in range(3, 20)))
SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
SCHEDULE = Schedule(sweeps=30, warmup=16, thin=2, chains=2, threads=1)


def tiny_ratings(users: int = 30, seed: int = 3) -> Ratings:
    """Half of the pairs of a small simulated design."""
    ratings, _ = simulate(Design(users=users, items=len(TITLES), tau=0.5), seed=seed)
    return ratings.subset(np.random.default_rng(1).random(ratings.n_ratings) < 0.5)


def with_texts(ratings: Ratings) -> Ratings:
    """The same ratings under ids that need care."""
    users = [f"person-{k}" for k in range(ratings.n_users)]
    users[:4] = ["../etc/passwd", "a/b", "Zoë 🎬", SCRIPT]
    items = list(TITLES)
    items[:2] = [IMAGE, "50% off/now?"]
    codes = [column.astype(np.int64) for column in ratings.triples()]
    return Ratings.from_codes(*codes, users=users, items=items, levels=ratings.levels)


@pytest.fixture(scope="session")
def number_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of preset full with whole numbers as ids; not to be changed."""
    folder = tmp_path_factory.mktemp("models") / "numbers"
    items = {k: {"title": title, "genres": "Drama|Comedy"} for k, title in enumerate(TITLES)}
    model = DoubleFeature(seed=1, schedule=SCHEDULE)
    model.fit(tiny_ratings(), items=items, holdout=0.05, out=folder)
    _ = model.features_
    return folder


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of preset paper with odd texts as ids; not to be changed."""
    folder = tmp_path_factory.mktemp("models") / "texts"
    ratings = with_texts(tiny_ratings())
    model = DoubleFeature(preset="paper", seed=1, schedule=SCHEDULE)
    model.fit(ratings, items={item: {"title": f"{item} <b>film</b>"} for item in ratings.items}, out=folder)
    _ = model.features_
    return folder


Opened = Callable[..., tuple[TestClient, Service]]


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[Opened]:
    """Return a function that opens a service on a copy of a folder, with a client for it."""
    opened: list[TestClient] = []

    def start(folder: Path, name: str = "model", **settings: object) -> tuple[TestClient, Service]:
        copy = tmp_path / name
        if not copy.exists():
            shutil.copytree(folder, copy)
        service = open_service(copy, Settings(**{"rate": 1e6, "burst": 10**6, **settings}))  # type: ignore[arg-type]
        client = TestClient(guarded(service), base_url="http://localhost", raise_server_exceptions=False)
        client.__enter__()
        opened.append(client)
        return client, service

    yield start
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def numbers(open_client: Opened, number_folder: Path) -> tuple[TestClient, Service]:
    return open_client(number_folder)


@pytest.fixture
def texts(open_client: Opened, text_folder: Path) -> tuple[TestClient, Service]:
    return open_client(text_folder)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL of its own, on loopback, under an unprivileged user."""
    with postgres_or_skip(tmp_path_factory.mktemp("postgres")) as found:
        yield found
