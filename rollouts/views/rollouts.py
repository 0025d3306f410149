"""`/rollouts`: what moves, what waits, and how earlier ones ended."""

from django.http import HttpRequest, HttpResponse

from console.tenants.permissions import actor_of
from console.ui.access import page
from console.ui.listing import filters_of, listed
from console.ui.render import page_or_part
from console.ui.scope import reader_of
from rollouts.models import Rollout
from rollouts.states import State

FILTERS = ("service", "state")


@page()
def rollouts(request: HttpRequest) -> HttpResponse:
    filters = filters_of(request, FILTERS)
    rows = Rollout.objects.for_actor(reader_of(request)).with_names()
    if service := filters.of("service"):
        rows = rows.filter(service__name__icontains=service)
    if filters.of("state") in State.values:
        rows = rows.filter(state=filters.of("state"))
    elif filters.of("state") == "unfinished":
        rows = rows.unfinished()
    actor = actor_of(request)
    context = {
        "listing": listed(request, rows, filters),
        "filters": filters,
        "states": ["unfinished", *State.values],
        "may_start": actor.is_superuser or bool(actor.roles),
    }
    return page_or_part(request, "rollouts/rollouts.html", context, parts={"rows"})
