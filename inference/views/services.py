"""`/services`: what is served, how it fares, and by which versions."""

from dataclasses import dataclass

from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from console.metrics.source import Indicator, Query
from console.services.models import Service
from console.tenants.permissions import actor_of
from console.ui import signals
from console.ui.access import page
from console.ui.board import ROLES
from console.ui.drawings import Share, Spark, Strip, shares, spark, strip
from console.ui.listing import filters_of, listed
from console.ui.render import page_or_part
from console.ui.scope import reader_of
from console.ui.signals import Figure, Span
from inference.condition import Condition, conditions

FILTERS = ("q", "tenant", "state")
STATES = {"ill": ("fail", "warn", "unknown"), "busy": ("busy",), "ok": ("ok",)}
_SPARK, _STRIP = Span(900, 30), Span(1800, 40)


@dataclass(frozen=True, slots=True)
class ServiceRow:
    service: Service
    condition: Condition
    rate: Figure
    errors: Figure
    p95: Figure
    spark: Spark
    strip: Strip
    shares: list[Share]

    @property
    def versions(self) -> str:
        """`1 at 82 %, 2 at 18 %`"""
        weighted = [one for one in self.condition.placements if one.weight_percent > 0]
        return ", ".join(f"{one.version.number} at {one.weight_percent} %" for one in weighted)


@page()
def services(request: HttpRequest) -> HttpResponse:
    filters = filters_of(request, FILTERS)
    reader = reader_of(request)
    rows = Service.objects.for_actor(reader).select_related("tenant").order_by("name")
    if text := filters.of("q"):
        rows = rows.filter(Q(name__icontains=text) | Q(description__icontains=text))
    if tenant := filters.of("tenant"):
        rows = rows.filter(tenant__slug=tenant)
    # State is no column, so it is sorted and filtered over all of the reader's services before the page is cut.
    everything = list(rows)
    found = conditions(everything)
    wanted = STATES.get(filters.of("state"))
    if wanted:
        everything = [one for one in everything if found[one.pk].face.role in wanted]
    everything.sort(key=lambda one: (ROLES.index(found[one.pk].face.role), one.name))
    listing = listed(request, everything, filters)
    context = {
        "listing": listing,
        "lines": rows_of(listing.rows, found),
        "filters": filters,
        "state_choices": [("ill", "not well"), ("busy", "changing"), ("ok", "serving")],
        "may_register": bool(actor_of(request).is_superuser or actor_of(request).roles),
    }
    return page_or_part(request, "services/services.html", context, parts={"rows"})


def rows_of(services: list[Service], found: dict[int, Condition]) -> list[ServiceRow]:
    kinds = (Indicator.REQUEST_RATE, Indicator.ERROR_RATIO, Indicator.LATENCY_P95)
    readings = signals.readings(Query(kind, service.name) for service in services for kind in kinds)
    rates = signals.histories((Query(kinds[0], service.name) for service in services), _SPARK)
    errors = signals.histories(
        (
            Query(kinds[1], service.name, window_seconds=_STRIP.seconds / _STRIP.points)
            for service in services
        ),
        _STRIP,
    )
    lines = []
    for service, history in zip(services, errors.values(), strict=True):
        rate, ratio, p95 = (signals.figure(kind, readings[Query(kind, service.name)]) for kind in kinds)
        lines.append(
            ServiceRow(
                service,
                found[service.pk],
                rate,
                ratio,
                p95,
                spark=spark(rates[Query(kinds[0], service.name)], unit=" /s", span="in 15 min"),
                strip=strip(history, span="in 30 min"),
                shares=shares_of(found[service.pk]),
            )
        )
    return lines


def shares_of(condition: Condition) -> list[Share]:
    return shares(
        [
            (str(one.role), one.weight_percent, f"version {one.version.number} {one.weight_percent} %")
            for one in condition.placements
        ]
    )
