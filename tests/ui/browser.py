"""Chromium as a reader uses it, and a watch over what no page may do: errors, CSP violations, sideways scroll."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from django.db import connections
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, ViewportSize

from tests.cast import PASSWORD

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "test-results"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
]
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


def elsewhere(work: Callable[[], T]) -> T:
    """Run on another thread, as another process would: Playwright's loop owns this one, so events cannot leave it."""

    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result(timeout=30)


def launch(playwright: Playwright, path: str) -> Browser:
    return playwright.chromium.launch(executable_path=path, args=FLAGS)


@dataclass
class Reader:
    """One person at one window. complaints: what the browser held against the page."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}", wait_until="load")

    def sign_in(self, name: str, path: str = "/") -> None:
        self.open(f"/login?next={path}")
        self.page.get_by_label("User name").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}{path}")

    def light(self) -> str:
        """What the live light says: live, polling, lost, none."""
        return str(self.page.evaluate("document.documentElement.dataset.live"))

    def wait_light(self, state: str, *, seconds: float = 15) -> None:
        self.wait(f"document.documentElement.dataset.live === {state!r}", seconds=seconds)

    def wait_charts(self) -> None:
        self.wait("[...document.querySelectorAll('.plot')].every(one => one.dataset.state !== 'loading')")

    def wait(self, expression: str, *, seconds: float = 15) -> None:
        """Until it is true. Not Playwright's own wait, which evaluates strings in the page: the CSP forbids it."""
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"not true within {seconds:g} s: {expression}"
            self.page.wait_for_timeout(50)

    def shoot(self, name: str) -> Path:
        SHOTS.mkdir(exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=True, animations="disabled")
        return path

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(
            self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )

    def serious(self, *, only: str = "") -> list[str]:
        """What axe finds serious or critical. only: a single rule."""
        if not self.page.evaluate("typeof window.axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        chosen = (
            {"type": "rule", "values": [only]}
            if only
            else {
                "type": "tag",
                "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
            }
        )
        found: dict[str, Any] = self.page.evaluate(
            "rules => axe.run(document, {runOnly: rules, preload: false, resultTypes: ['violations']})",
            chosen,
        )
        return [
            f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]


@contextmanager
def window(browser: Browser, url: str, **options: Any) -> Iterator[Reader]:
    """A fresh person: no cookies. options go to the browser's context, such as viewport or color_scheme."""
    options.setdefault("viewport", WIDE)
    context: BrowserContext = browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(10_000)
    page = context.new_page()
    reader = Reader(page, url)
    page.on(
        "console",
        lambda said: reader.complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: reader.complaints.append(str(error)))
    try:
        yield reader
    finally:
        context.close()
