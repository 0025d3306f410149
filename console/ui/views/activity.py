"""`/activity`: who did what to what, when and why, with the difference it made."""

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse

from console.audit.models import Entry
from console.tenants.audit_api import visible_entries
from console.tenants.permissions import Actor
from console.ui.access import page
from console.ui.listing import Filters, Listing, filters_of, listed
from console.ui.render import page_or_part
from console.ui.scope import reader_of

FILTERS = ("q", "actor", "kind", "tenant")
KINDS = (
    "service",
    "version",
    "placement",
    "rollout",
    "strategy",
    "loadtest",
    "replica",
    "tenant",
    "member",
    "token",
    "quota",
    "user",
)


@page()
def activity(request: HttpRequest) -> HttpResponse:
    filters = filters_of(request, FILTERS)
    listing: Listing[Entry] = listed(request, matching(reader_of(request), filters), filters)
    newest = listing.rows[0].pk if listing.rows else 0
    if request.GET.get("part") == "news":
        since = request.GET.get("since", "")
        count = (
            matching(reader_of(request), filters).filter(pk__gt=int(since)).count() if since.isdigit() else 0
        )
        return page_or_part(
            request, "activity/activity.html", {"news": count, "newest": since}, parts={"news"}
        )
    return page_or_part(
        request,
        "activity/activity.html",
        {"listing": listing, "filters": filters, "kinds": KINDS, "newest": newest},
        parts={"news"},
    )


def matching(reader: Actor, filters: Filters) -> QuerySet[Entry]:
    rows = visible_entries(reader)
    if text := filters.of("q"):
        rows = rows.filter(Q(target__icontains=text) | Q(reason__icontains=text) | Q(verb__icontains=text))
    if actor := filters.of("actor"):
        rows = rows.filter(actor__icontains=actor)
    if (kind := filters.of("kind")) in KINDS:
        rows = rows.filter(verb__startswith=f"{kind}.")
    if tenant := filters.of("tenant"):
        rows = rows.filter(tenant=tenant)
    return rows
