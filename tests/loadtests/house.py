"""Load tests of the scene as rows: two with a report, one that runs and one that failed."""

from datetime import timedelta

from console.kit import clock
from console.loadtests import actions
from console.loadtests.models import LoadTest
from console.loadtests.plan import Plan
from console.services.models import Service
from console.tenants.permissions import SYSTEM
from tests.loadtests.rows import csv_text


def build(service: Service) -> list[LoadTest]:
    """In the order: before, after, failed, running."""
    before, after = (
        actions.upload(
            service,
            service.tenant,
            [csv_text(rows=1200, milliseconds=milliseconds, failed=failed).encode()],
            actor=SYSTEM,
            thresholds=["p99=40ms", "errors=1%"],
            title=title,
        )
        for milliseconds, failed, title in ((11.0, 3, "before the release"), (15.0, 40, "after the release"))
    )
    now = clock.now()
    fields = {
        "tenant": service.tenant,
        "service": service.name,
        "settings": Plan(rate=120, duration_seconds=60).as_json(),
        "created_by": "user:ada",
        "node": "node-1",
    }
    failed_one = LoadTest.objects.create(
        **fields,
        state="failed",
        message="The load tool ended with code 1: the model answered 404",
        created_at=now - timedelta(minutes=9),
        finished_at=now - timedelta(minutes=8),
    )
    running = LoadTest.objects.create(
        **fields,
        thresholds=["p99=250ms"],
        state="running",
        message="The load tool runs.",
        created_at=now - timedelta(seconds=25),
        started_at=now - timedelta(seconds=20),
        beat_at=now + timedelta(minutes=5),
    )
    return [before, after, failed_one, running]
