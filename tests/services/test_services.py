"""The fixtures themselves: each real part starts, answers and is the one the product talks to."""

import urllib.request
from collections.abc import Callable, Sequence

import psycopg
import pytest
from django.conf import settings

from config.celery import app
from tests.conftest import CLOSED_REDIS, FrozenClock
from tests.services.prometheus import PrometheusServer
from tests.services.redis import RedisServer


def test_redis_answers_and_settings_and_celery_point_at_it(redis_server: RedisServer) -> None:
    assert redis_server.client.ping()
    assert redis_server.url == settings.REDIS_URL == app.conf.broker_url


def test_redis_is_running_again_after_a_test_killed_it(redis_server: RedisServer) -> None:
    redis_server.kill()
    redis_server.start()
    assert redis_server.client.ping()


def test_a_test_that_asks_for_no_redis_reaches_none() -> None:
    assert settings.REDIS_URL == CLOSED_REDIS
    assert app.conf.broker_url == "memory://"


def test_postgresql_has_an_empty_database(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert row == (0,)


def test_prometheus_scrapes_its_targets(
    prometheus_server: Callable[[Sequence[str]], PrometheusServer],
) -> None:
    first = prometheus_server([])
    second = prometheus_server([f"127.0.0.1:{first.port}"])
    second.wait_for_scrape()
    with urllib.request.urlopen(f"{second.url}/api/v1/query?query=up", timeout=2) as answer:
        assert b'"1"' in answer.read()


def test_the_frozen_clock_moves_only_when_told(frozen_clock: FrozenClock) -> None:
    from console.kit import clock

    before = clock.now()
    assert clock.now() == before
    frozen_clock.advance(30)
    assert (clock.now() - before).total_seconds() == 30


@pytest.mark.django_db
def test_the_database_takes_rows() -> None:
    from console.tenants.models import Tenant

    Tenant.objects.create(slug="acme", name="Acme")
    assert Tenant.objects.count() == 1
