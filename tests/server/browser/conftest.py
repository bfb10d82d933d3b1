"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.parts import Running, absent, running


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        absent("Chromium", "chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def service(number_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("browser")
    copy = folder / "model"
    shutil.copytree(number_folder, copy)
    with running(copy, log=folder / "log") as found:
        yield found


class Watched:
    """A page, and everything that went wrong on it."""

    def __init__(self, page: object, address: str) -> None:
        self.page = page
        self.address = address
        self.problems: list[str] = []
        page.set_default_timeout(60_000)
        page.on("console", lambda told: told.type == "error" and self.problems.append(told.text))
        page.on("pageerror", lambda told: self.problems.append(str(told)))
        page.on("request", lambda sent: sent.url.startswith(address) or self.problems.append(f"asked {sent.url}"))

    def open(self, place: str = "") -> None:
        self.page.goto(self.address + place)


@pytest.fixture
def watched(chromium, service) -> Iterator[Watched]:
    context = chromium.new_context(viewport={"width": 1200, "height": 850})
    found = Watched(context.new_page(), service.address)
    yield found
    context.close()
    assert found.problems == []
