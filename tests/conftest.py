"""Fixtures every test folder shares: private real services, a frozen clock, a temporary home.

The environment is set here, before Django reads its settings.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import django
import pytest
from django.conf import settings as django_settings

from tests.services import parts, postgres, prometheus, redis
from tests.services.process import free_port

HOME = Path(tempfile.mkdtemp(prefix="pilothouse-test-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
REDIS_PORT = free_port()
CLOSED_REDIS = "redis://127.0.0.1:1/0"  # nobody listens there: what a test sees that asks for no Redis

assert "config.settings" not in sys.modules, (
    "unset DJANGO_SETTINGS_MODULE: tests choose their own home and services"
)
for name in (
    "SECRET_KEY",
    "SECRET_KEY_FILE",
    "DATABASE_URL",
    "PROMETHEUS_URL",
    "PILOTHOUSE_URL",
    "PILOTHOUSE_TOKEN",
):
    os.environ.pop(name, None)
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
os.environ["PILOTHOUSE_HOME"] = str(HOME)
os.environ["REDIS_URL"] = f"redis://127.0.0.1:{REDIS_PORT}/0"
# Pages and plane tests run an event loop in the main thread; Playwright's sync API does too.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"


def _postgres_for_this_run() -> postgres.PostgresServer | None:
    """A private PostgreSQL when PILOTHOUSE_TEST_DATABASE=postgresql asks for it; else SQLite is used."""
    if os.environ.get("PILOTHOUSE_TEST_DATABASE", "sqlite") != "postgresql":
        return None
    binaries = postgres.find_binaries()
    if binaries is None:
        pytest.exit("PostgreSQL is not on this machine: apt-get install postgresql", returncode=1)
    server = postgres.PostgresServer(binaries)
    atexit.register(server.stop)
    server.start()
    os.environ["DATABASE_URL"] = server.new_database()
    return server


_postgres = _postgres_for_this_run()
if _postgres is None:
    # A file, as in the product: SQLite's memory database locks whole tables between the threads of a test.
    django_settings.DATABASES["default"]["TEST"] = {"NAME": str(HOME / "test.sqlite3")}
django.setup()  # now, so that the conftest of a folder may import models


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Give every test that touches the database the marker `database`, and put the heavy ones last.

    Browser tests at the very end: Playwright leaves its event loop running in this thread until the session is over,
    and asyncio would refuse to start another for whatever came after.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if item.get_closest_marker("django_db") or fixtures & {"db", "transactional_db", "live_server"}:
            item.add_marker(pytest.mark.database)
    yield
    items.sort(
        key=lambda item: (bool(item.get_closest_marker("browser")), bool(item.get_closest_marker("e2e")))
    )


def pytest_report_header() -> str:
    from django.conf import settings

    return f"database: {settings.DATABASES['default']['ENGINE'].rpartition('.')[2]}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := parts.closing_lines():
        terminalreporter.section("what this machine could not run", yellow=True, bold=True)
        for line in lines:
            terminalreporter.write_line(line, yellow=True)


# Redis


@pytest.fixture(scope="session")
def _redis_process() -> Iterator[redis.RedisServer]:
    binary = redis.find_binary()
    if binary is None:
        parts.did_not_run("Redis", "apt-get install redis-server")
    server = redis.RedisServer(binary, port=REDIS_PORT, folder=HOME / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_server(_redis_process: redis.RedisServer) -> redis.RedisServer:
    """A running, empty Redis; settings.REDIS_URL, the channel layer and Celery's broker point at it.

    A test may stop, kill and start it: the next test finds it running again.
    """
    if not _redis_process.is_running():
        _redis_process.start()
    _redis_process.client.flushall()
    return _redis_process


@pytest.fixture(autouse=True)
def _broker(request: pytest.FixtureRequest, settings: "object") -> None:
    """Without `redis_server`: messages go nowhere, in memory. With it: everything uses the private Redis."""
    asked = "redis_server" in request.fixturenames
    url = f"redis://127.0.0.1:{REDIS_PORT}/0" if asked else CLOSED_REDIS
    layer = (
        {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [url], "prefix": "ph:live"},
        }
        if asked
        else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
    )
    setattr(settings, "REDIS_URL", url)  # noqa: B010  the fixture's type is private to pytest-django
    setattr(settings, "CHANNEL_LAYERS", {"default": layer})  # noqa: B010  as above
    _point_celery_at(url if asked else "memory://")


def _point_celery_at(url: str) -> None:
    from config.celery import app

    if app.conf.broker_url != url:
        app.conf.update(broker_url=url)
        app.close()  # forgets the connection pool of the old address ...
        vars(app).pop("amqp", None)  # ... and the cached property that holds its producers


# PostgreSQL, Prometheus, Chromium


@pytest.fixture(scope="session")
def _postgres_process() -> Iterator[postgres.PostgresServer]:
    binaries = postgres.find_binaries()
    if binaries is None:
        parts.did_not_run("PostgreSQL", "apt-get install postgresql")
    server = postgres.PostgresServer(binaries)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(_postgres_process: postgres.PostgresServer) -> str:
    """An empty PostgreSQL database for this test alone; not the one the suite runs on."""
    return _postgres_process.new_database()


@pytest.fixture
def prometheus_server(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], prometheus.PrometheusServer]]:
    """`prometheus_server(["127.0.0.1:8080"])` starts one that scrapes these targets each second."""
    binary = prometheus.find_binary()
    if binary is None:
        parts.did_not_run("Prometheus", "apt-get install prometheus")
    started: list[prometheus.PrometheusServer] = []

    def start(targets: Sequence[str]) -> prometheus.PrometheusServer:
        server = prometheus.PrometheusServer(binary, targets, folder=tmp_path / f"prometheus-{len(started)}")
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def chromium_path() -> str:
    found = [
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    ]
    if not found:
        parts.did_not_run("Chromium", "apt-get install chromium")
    return found[0]


# Time


class FrozenClock:
    """What console.kit.clock.now answers during a test; moves only when told."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> datetime:
        self.at += timedelta(seconds=seconds)
        return self.at


@pytest.fixture
def frozen_clock(monkeypatch: pytest.MonkeyPatch) -> FrozenClock:
    from console.kit import clock

    frozen = FrozenClock(clock.now().replace(microsecond=0))
    monkeypatch.setattr(clock, "now", frozen)
    return frozen
