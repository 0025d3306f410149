"""The cast, and shelves that are empty at each start."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from console.metrics import choose
from console.ui import signals
from tests.cast import cast
from tests.ui.browser import launch
from tests.ui.server import ConsoleServer

__all__ = ["cast"]

expect.set_options(timeout=15_000)  # two cores, shared with the console and its database


@pytest.fixture(autouse=True)
def _empty_shelf() -> Iterator[None]:
    """Numbers held for a moment, and samples remembered, must not reach the next test."""
    signals.shelf.clear()
    choose._source.cache_clear()
    yield


@pytest.fixture(scope="session")
def chromium(chromium_path: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright, chromium_path)
        yield browser
        browser.close()


@pytest.fixture
def console(transactional_db: None, redis_server: object) -> Iterator[ConsoleServer]:
    """The console on a free port over the test's database and Redis."""
    server = ConsoleServer()
    server.start()
    yield server
    server.stop()
