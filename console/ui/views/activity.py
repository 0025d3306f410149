"""`/activity`: who did what to what, when and why, with the difference it made; sorted, filtered, exported."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse

from console.audit import log as audit
from console.audit.models import Entry
from console.kit import clock
from console.tenants.audit_api import visible_entries
from console.tenants.permissions import Actor, actor_of
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
    "audit",
)
# Column -> its header. Among equals the newest first.
SORTABLE = {"at": "When", "actor": "Who", "verb": "Verb", "target": "Target", "tenant": "Tenant"}
# More than a person reads, little enough for one answer; the REST list turns pages for programs.
MOST_EXPORTED = 10_000
EXPORTS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
_COLUMNS = ("id", "at", "actor", "verb", "target", "tenant", "reason", "before", "after")


@page()
def activity(request: HttpRequest) -> HttpResponse:
    filters = filters_of(request, FILTERS)
    matched = matching(reader_of(request), filters)
    if request.GET.get("part") == "news":
        since = request.GET.get("since", "")
        count = matched.filter(pk__gt=int(since)).count() if since.isdigit() and len(since) < 19 else 0
        return page_or_part(
            request, "activity/activity.html", {"news": count, "newest": since}, parts={"news"}
        )
    column, descending = sort_of(request)
    listing: Listing[Entry] = listed(request, ordered(matched, column, descending), filters)
    newest = matched.values_list("pk", flat=True).first() or 0
    context = {
        "listing": listing,
        "filters": filters,
        "kinds": KINDS,
        "newest": newest,
        "headers": headers_of(column, descending),
        "exports": [("csv", "CSV"), ("jsonl", "JSON lines")],
        "most_exported": MOST_EXPORTED,
    }
    return page_or_part(request, "activity/activity.html", context, parts={"news"})


def sort_of(request: HttpRequest) -> tuple[str, bool]:
    """(column, descending); newest first when the URL names no known one."""
    wished = request.GET.get("sort", "")
    column = wished.removeprefix("-")
    return (column, wished.startswith("-")) if column in SORTABLE else ("at", True)


def ordered(rows: QuerySet[Entry], column: str, descending: bool) -> QuerySet[Entry]:
    # Ids grow with time, and an index has them; two entries of one instant keep their order.
    if column == "at":
        return rows.order_by("-id" if descending else "id")
    return rows.order_by(f"-{column}" if descending else column, "-id")


def headers_of(column: str, descending: bool) -> list[dict[str, str]]:
    """Each header as a link to the order that a click gives, with its `aria-sort`."""
    found = []
    for name, label in SORTABLE.items():
        is_now = name == column
        flips = descending if is_now else name == "at"
        wanted = name if is_now and flips else f"-{name}" if is_now or flips else name
        aria = ("descending" if descending else "ascending") if is_now else ""
        found.append({"label": label, "sort": "" if wanted == "-at" else wanted, "aria": aria})
    return found


@page("POST")
def export(request: HttpRequest, kind: str) -> HttpResponse:
    """The rows as shown, up to MOST_EXPORTED. POST, for it leaves a line in what it exports from."""
    if kind not in EXPORTS:
        raise Http404
    filters = filters_of(request, FILTERS)
    rows = ordered(matching(reader_of(request), filters), *sort_of(request))[:MOST_EXPORTED]
    found = [_plain(entry) for entry in rows]
    text = (
        _csv(found) if kind == "csv" else "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in found)
    )
    audit.record(
        actor_of(request),
        "audit.export",
        "audit",
        tenant=filters.of("tenant") if _is_one_tenant(filters, found) else "",
        reason=f"{len(found)} rows as {kind}",
        after={"rows": len(found), "format": kind, "filters": filters.text},
    )
    answer = HttpResponse(text, content_type=EXPORTS[kind])
    answer["Content-Disposition"] = f'attachment; filename="activity-{clock.now():%Y%m%d-%H%M%S}.{kind}"'
    return answer


def _is_one_tenant(filters: Filters, found: list[dict[str, Any]]) -> bool:
    """Of a tenant that the reader sees rows of: the name alone comes from the URL."""
    return bool(filters.of("tenant")) and bool(found)


def _plain(entry: Entry) -> dict[str, Any]:
    row = {name: getattr(entry, name) for name in _COLUMNS}
    return {**row, "at": entry.at.isoformat()}


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    writer.writerows(list(_cells(row)) for row in rows)
    return out.getvalue()


def _cells(row: dict[str, Any]) -> Iterator[str]:
    for value in row.values():
        text = (
            value
            if isinstance(value, str)
            else ""
            if value is None
            else json.dumps(value, ensure_ascii=False)
        )
        # A spreadsheet runs a cell that begins so; reasons and names are other people's text.
        yield f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


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
