"""`/loadtests`: what was measured, and whether it met its thresholds."""

from django.http import HttpRequest, HttpResponse

from console.loadtests.models import LoadTest
from console.loadtests.states import State, Verdict
from console.tenants.permissions import actor_of
from console.ui.access import page
from console.ui.listing import filters_of, listed
from console.ui.render import page_or_part
from console.ui.scope import reader_of

FILTERS = ("service", "state", "verdict")
VERDICTS = (Verdict.MET, Verdict.MISSED)


@page()
def loadtests(request: HttpRequest) -> HttpResponse:
    filters = filters_of(request, FILTERS)
    rows = LoadTest.objects.for_actor(reader_of(request)).with_names().without_report()
    if service := filters.of("service"):
        rows = rows.filter(service__icontains=service)
    if filters.of("state") in State.values:
        rows = rows.filter(state=filters.of("state"))
    elif filters.of("state") == "unfinished":
        rows = rows.unfinished()
    if filters.of("verdict") in VERDICTS:
        rows = rows.filter(verdict=filters.of("verdict"))
    actor = actor_of(request)
    context = {
        "listing": listed(request, rows, filters),
        "filters": filters,
        "states": ["unfinished", *State.values],
        "verdicts": VERDICTS,
        "may_start": actor.is_superuser or bool(actor.roles),
    }
    return page_or_part(request, "loadtests/loadtests.html", context, parts={"rows"})
