"""`/healthz`, `/readyz` and `/metrics` of the console."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from console.kit import broker, clock, metrics
from console.kit.errors import Unauthenticated
from console.kit.problems import response as problem

CONTROLLER_SILENT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Check:
    """needed: without it the console cannot answer people at all."""

    name: str
    ok: bool
    detail: str
    needed: bool = False


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. Looks at nothing else, so a restart by an orchestrator is never asked for in vain."""
    return JsonResponse({"status": "alive"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """503 `unfit` without the database; 200 `degraded` without Redis or controller.

    Degraded is still 200 on purpose: pages and REST go on reading, and taking the console out of service would hide
    the very trouble that people come to see.
    """
    checks = [check() for check in _CHECKS]
    unfit = any(not check.ok for check in checks if check.needed)
    status = "unfit" if unfit else "ready" if all(check.ok for check in checks) else "degraded"
    body = {
        "status": status,
        "reasons": [f"{check.name}: {check.detail}" for check in checks if not check.ok],
        "checks": {check.name: {"ok": check.ok, "detail": check.detail} for check in checks},
    }
    return JsonResponse(body, status=503 if unfit else 200)


@require_safe
@never_cache
def exposition(request: HttpRequest) -> HttpResponse:
    """Prometheus text. METRICS_TOKEN, when set, must come as bearer token."""
    wanted = settings.METRICS_TOKEN
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if wanted and not hmac.compare_digest(given.encode(), wanted.encode()):
        return problem(Unauthenticated("These metrics need the bearer token of METRICS_TOKEN."))
    return HttpResponse(generate_latest(metrics.REGISTRY), content_type=CONTENT_TYPE_LATEST)


def database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
        waiting = _migrations.waiting()
    except DatabaseError as error:
        return Check("database", False, f"does not answer: {_first_line(error)}", needed=True)
    if waiting:
        return Check("database", False, f"{waiting} migrations are not applied; run migrate", needed=True)
    return Check("database", True, connection.vendor, needed=True)


def redis_answers() -> Check:
    try:
        broker.client().ping()
    except redis.RedisError as error:
        return Check("redis", False, f"does not answer: {_first_line(error)}")
    return Check("redis", True, "answers")


def controller() -> Check:
    try:
        raw = broker.client().get(broker.CONTROLLER_SEEN_KEY)
    except redis.RedisError:
        return Check("controller", False, "unknown: Redis does not answer")
    if not isinstance(raw, bytes):
        return Check("controller", False, "never seen; are beat and the controller running?")
    age = clock.now().timestamp() - float(raw)
    if age > CONTROLLER_SILENT_SECONDS:
        return Check("controller", False, f"last seen {age:.0f} s ago")
    return Check("controller", True, f"seen {max(age, 0):.0f} s ago")


_CHECKS: tuple[Callable[[], Check], ...] = (database, redis_answers, controller)


class _Migrations:
    """Building the migration graph takes long, so a database once found complete is not asked again."""

    complete = False

    def waiting(self) -> int:
        if self.complete:
            return 0
        executor = MigrationExecutor(connection)
        waiting = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        self.complete = waiting == 0
        return waiting


_migrations = _Migrations()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
