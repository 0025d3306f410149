"""`/`: does anything need me?"""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from console.kit import clock
from console.metrics.source import Indicator, Query
from console.tenants.audit_api import visible_entries
from console.ui import board, signals
from console.ui.access import page
from console.ui.refusals import Refused, refused_of
from console.ui.render import page_or_part
from console.ui.scope import chosen_tenant, reader_of
from console.ui.signals import Figure

CHANGES_SHOWN = 10
# A sum over more services than this would make the page wait; it says so instead.
MOST_SERVICES = 200
_RUNNING_TOPICS = ("rollouts", "services", "nodes")


@dataclass(frozen=True, slots=True)
class Traffic:
    rate: Figure
    errors: Figure
    p95: Figure
    slowest: str
    refused: Refused


@page()
def overview(request: HttpRequest) -> HttpResponse:
    part = request.GET.get("part")
    reader = reader_of(request)
    context: dict[str, object] = {"now": clock.now(), "tenant": chosen_tenant(request)}
    if part in (None, "needs"):
        context["health"] = board.health(reader)
    if part in (None, "stats"):
        context["traffic"] = traffic_of(board.services(reader)[:MOST_SERVICES])
        context["health"] = board.health(reader)
    if part in (None, "running"):
        context["running"] = board.running(reader)
    if part in (None, "changes"):
        context["changes"] = visible_entries(reader)[:CHANGES_SHOWN]
    return page_or_part(
        request, "overview/overview.html", context, parts={"needs", "stats", "running", "changes"}
    )


def traffic_of(services: list[str]) -> Traffic:
    """The last minute of all these services together."""
    wanted = {
        name: [
            Query(indicator, name)
            for indicator in (Indicator.REQUEST_RATE, Indicator.ERROR_RATIO, Indicator.LATENCY_P95)
        ]
        for name in services
    }
    found = signals.readings(query for queries in wanted.values() for query in queries)
    p95, slowest = signals.slowest({name: found[queries[2]] for name, queries in wanted.items()})
    return Traffic(
        rate=signals.added(found[queries[0]] for queries in wanted.values()),
        errors=signals.error_ratio_of(found[queries[1]] for queries in wanted.values()),
        p95=p95,
        slowest=slowest if len(services) > 1 else "",
        refused=refused_of(services),
    )
