"""What load tests tell the overview, the rail and Jump."""

from datetime import timedelta

from django.urls import reverse

from console.kit import clock
from console.loadtests.models import LoadTest
from console.loadtests.states import State
from console.tenants.permissions import Actor, may
from console.ui import board
from console.ui.board import Entry, Jump, Need, Running, matches

# A run that failed is worth a look for this long; a missed threshold is a finding, not a fault.
FAILED_SHOWN = timedelta(hours=1)
_MOST = 50
_MOST_JUMPS = 8


def title_of(row: LoadTest) -> str:
    return row.title or f"{row.service}{f' version {row.version}' if row.version else ''}"


def address_of(row: LoadTest) -> str:
    return reverse("loadtests:loadtest", args=[row.pk])


def done_percent(row: LoadTest) -> int | None:
    """How much of its time is over; None before the first request."""
    if row.started_at is None or row.seconds <= 0:
        return None
    past = (clock.now() - row.started_at).total_seconds()
    return max(0, min(100, round(100 * past / row.seconds)))


class LoadTestsSection(board.Section):
    entries = (Entry("loadtests", "Load tests", "loadtests:loadtests", "l", 50),)

    def needs(self, reader: Actor) -> list[Need]:
        since = clock.now() - FAILED_SHOWN
        rows = LoadTest.objects.for_actor(reader).without_report()
        failed = rows.filter(state=State.FAILED, finished_at__gte=since)
        return [
            Need(
                "loadtests",
                "warn",
                "load test failed",
                title_of(row),
                address_of(row),
                row.finished_at,
                row.message,
                "See why",
                address_of(row),
            )
            for row in failed[:_MOST]
        ]

    def running(self, reader: Actor) -> list[Running]:
        rows = LoadTest.objects.for_actor(reader).unfinished().without_report()
        return [
            Running(
                role=row.face.role,
                word=row.face.word,
                subject=f"Load test of {title_of(row)}",
                url=address_of(row),
                why=row.message,
                done_percent=done_percent(row),
                service=row.service,
            )
            for row in rows[:_MOST]
        ]

    def jumps(self, reader: Actor, text: str) -> list[Jump]:
        if not text:
            return []
        found = []
        for row in LoadTest.objects.for_actor(reader).without_report().with_names()[:_MOST]:
            label = f"load test {row.pk}: {title_of(row)}"
            if matches(text, label, row.state):
                found.append(Jump(label, row.state, address_of(row)))
            may_stop = "cancel" in row.face.verbs and may(reader, "loadtest.cancel", row.tenant)
            if may_stop and matches(text, "stop cancel", label):
                url = reverse("loadtests:cancel", args=[row.pk])
                found.append(Jump(f"stop {label}", "verb", url, dialog=True))
        if matches(text, "start load test", "new"):
            found.append(Jump("start a load test", "verb", reverse("loadtests:new")))
        return found[: 2 * _MOST_JUMPS]


def may_hear(actor: Actor, name: str) -> bool:
    return (
        name.isdigit() and len(name) < 19 and LoadTest.objects.for_actor(actor).filter(pk=int(name)).exists()
    )
