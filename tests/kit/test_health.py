"""What the console says of itself: alive, fit to serve, and in numbers."""

from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from console.audit import log as audit
from console.kit import health, metrics
from console.kit.tasks import controller_seen
from tests.conftest import FrozenClock
from tests.services.redis import RedisServer

pytestmark = pytest.mark.django_db


def test_alive_needs_nothing(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert client.get("/healthz").json() == {"status": "alive"}


def test_ready_when_everything_answers(client: Client, redis_server: RedisServer) -> None:
    controller_seen()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json()["reasons"]) == (200, "ready", [])


def test_degraded_but_serving_while_the_controller_is_silent(
    client: Client, redis_server: RedisServer, frozen_clock: FrozenClock
) -> None:
    assert "never seen" in client.get("/readyz").json()["reasons"][0]
    controller_seen()
    frozen_clock.advance(31)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["reasons"] == ["controller: last seen 31 s ago"]


def test_degraded_but_serving_without_redis(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"]["redis"]["ok"] is False


def test_unfit_without_a_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("connection refused\nwith details")

    monkeypatch.setattr(connection, "cursor", refuse)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unfit")
    assert answer.json()["checks"]["database"]["detail"] == "does not answer: connection refused"


def test_unfit_while_migrations_are_missing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health._migrations, "waiting", lambda: 2)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["reasons"][0]) == (
        503,
        "database: 2 migrations are not applied; run migrate",
    )


def test_metrics_count_by_route_and_never_by_path(client: Client) -> None:
    client.get("/api/v1/tenants/a")
    client.get("/api/v1/nothing/at/all")
    client.generic("BREW", "/healthz")
    audit.record("system", "node.silent", "node:n1")
    text = client.get("/metrics").content.decode()
    assert 'pilothouse_console_requests_total{code="401",method="GET",route="api:tenant"}' in text
    assert 'pilothouse_console_requests_total{code="405",method="OTHER",route="healthz"}' in text
    assert "nothing/at" not in text
    assert "pilothouse_console_request_duration_seconds_bucket" in text
    assert "pilothouse_outbox_backlog 1.0" in text
    assert "pilothouse_live_connections 0.0" in text
    assert "process_resident_memory_bytes" in text


def test_metrics_take_a_token_when_one_is_set(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = "scrape-me"
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer scrape-me"}).status_code == 200


def test_a_gauge_that_cannot_be_read_is_missing_not_zero(client: Client) -> None:
    def broken() -> Any:
        raise OperationalError

    metrics.register_gauge("pilothouse_test_broken", "Fails.", broken)
    metrics.register_gauge("pilothouse_test_labelled", "Works.", lambda: [({"a": "b"}, 2)], ["a"])
    text = client.get("/metrics").content.decode()
    assert "\npilothouse_test_broken " not in text
    assert 'pilothouse_test_labelled{a="b"} 2.0' in text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_they_only_read(client: Client, path: str) -> None:
    assert client.post(path).status_code == 405
