"""A load test as REST answers it. Pages draw from the same rows."""

from typing import Any

from django.urls import reverse

from console.loadtests import reports
from console.loadtests.models import LoadTest
from console.loadtests.plan import thresholds_of
from console.loadtests.reports import Judged


def address_of(row: LoadTest) -> str:
    return reverse("loadtests:loadtest", args=[row.pk])


def summary(row: LoadTest) -> dict[str, Any]:
    return {
        "id": row.pk,
        "url": f"/api/v1/loadtests/{row.pk}",
        "page": address_of(row),
        "tenant": row.tenant.slug,
        "service": row.service,
        "version": row.version,
        "kind": row.source,
        "title": row.title,
        "settings": row.settings,
        "state": row.state,
        "stopping": row.stop_asked_at is not None and not row.is_terminal,
        "message": row.message,
        "verdict": row.verdict,
        "thresholds": row.thresholds,
        "requests": row.requests,
        "error_count": row.errors,
        "qps": row.qps,
        "p99_ms": row.p99_ms,
        "verbs": sorted(row.face.verbs),
        "revision": row.revision,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "csv": f"/api/v1/loadtests/{row.pk}/csv" if row.csv_bytes else None,
    }


def judged(row: LoadTest) -> list[Judged]:
    return reports.judge(row.report, thresholds_of(row.thresholds)) if row.report else []


def detail(row: LoadTest) -> dict[str, Any]:
    lines = [
        {
            "threshold": line.threshold.text,
            "figure": line.threshold.figure,
            "value": line.value,
            "limit": line.threshold.limit,
            "met": line.is_met,
            "sentence": line.sentence,
        }
        for line in judged(row)
    ]
    return {**summary(row), "report": row.report, "judged": lines}
