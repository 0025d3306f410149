"""`/services/<name>`: one service with its versions, replicas, charts, changes, and a place to try it."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from console.audit.models import Entry
from console.kit import clock
from console.metrics.source import Indicator, Query
from console.services.models import Service
from console.tenants.audit_api import visible_entries
from console.tenants.permissions import Actor, actor_of, may
from console.ui import board, refusals, signals
from console.ui.access import found, page
from console.ui.render import page_or_part
from console.ui.signals import Figure
from console.ui.verbs import Dialog, Done, with_preview
from inference import actions
from inference.board import replicas_of
from inference.condition import Condition, conditions
from inference.forms import try_form
from inference.models import Placement, Replica, Version
from inference.states import Face
from inference.views.batching import batching_of
from inference.views.services import shares_of

VERSIONS_SHOWN, CHANGES_SHOWN = 50, 15
CHART_SECONDS = 900
_MARKED_VERBS = ("placement.shift", "placement.promote", "placement.withdraw")
_TILES = {
    "rate": Indicator.REQUEST_RATE,
    "errors": Indicator.ERROR_RATIO,
    "p95": Indicator.LATENCY_P95,
    "p99": Indicator.LATENCY_P99,
}
_CHARTS = {**_TILES, "refused": Indicator.REFUSED_RATE}
PARTS = {"head", "tiles", "batching", "versions", "replicas", "changes"}


@dataclass(frozen=True, slots=True)
class VersionLine:
    version: Version
    placement: Placement | None
    aliases: tuple[str, ...]
    role: str
    word: str
    may_start: bool


@dataclass(frozen=True, slots=True)
class ReplicaLine:
    """phases: of its last load, longest first, in seconds; total: their sum."""

    replica: Replica
    face: Face
    phases: list[tuple[str, float]]
    total: float | None


@page()
def service(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    row = visible_service(actor, name)
    part = request.GET.get("part")
    state = conditions([row])[row.pk]
    context: dict[str, Any] = {"service": row, "condition": state, "shares": shares_of(state)}
    if part in (None, "head"):
        context |= {"running": [one for one in board.running(actor) if one.service == name]}
        marks = marks_of(name)
        lines = lines_of(state, has_shifted=bool(marks))
        context |= {"chart_lines": json.dumps(lines), "chart_marks": json.dumps(marks)}
        context["refused_lines"] = json.dumps(refusals.lines_of(name, seconds=CHART_SECONDS))
    if part in (None, "head", "tiles"):
        context |= {"tiles": tiles_of(name), "refused": refusals.refused_of([name])}
    if part in (None, "batching"):
        context["batching"] = batching_of(name)
    if part in (None, "versions"):
        context["versions"] = version_lines(actor, row, state)
    if part in (None, "replicas"):
        context["replicas"] = [replica_line(one) for one in replicas_of(actor, row)]
        context["may_restart"] = may(actor, "replica.restart", row.tenant)
    if part in (None, "changes"):
        context["changes"] = changes_of(actor, name)
    if part is None:
        context |= {"form": try_form(row), **series_of(name)}
        context |= {
            "chart_seconds": CHART_SECONDS,
            "may_register": may(actor, "version.register", row.tenant),
        }
    return page_or_part(request, "services/service.html", context, parts=PARTS)


def series_of(name: str) -> dict[str, str]:
    """Addresses of the charts' numbers."""
    address = f"/api/v1/services/{name}/series?indicator="
    return {f"series_{tile}": f"{address}{kind.value}" for tile, kind in _CHARTS.items()}


def visible_service(actor: Actor, name: str) -> Service:
    return found(Service.objects.for_actor(actor).select_related("tenant"), name=name)


def tiles_of(name: str) -> dict[str, Figure]:
    readings = signals.readings(Query(kind, name) for kind in _TILES.values())
    return {tile: signals.figure(kind, readings[Query(kind, name)]) for tile, kind in _TILES.items()}


def lines_of(state: Condition, *, has_shifted: bool) -> list[dict[str, Any]]:
    """The lines of every chart: one for each version with traffic, stable grey and canary in the accent.

    has_shifted: versions that have no traffic now had some in the time shown. The line of all keeps what they did.
    """
    weighted = [one for one in state.placements if one.weight_percent > 0]
    if not weighted:
        return [{"label": "all versions", "ink": "all", "version": None}]
    lines = [
        {
            "label": f"version {one.version.number}",
            "ink": "canary" if one.role == "canary" else "stable" if len(weighted) > 1 else "canary",
            "version": one.version.number,
        }
        for one in sorted(weighted, key=lambda one: one.role != "canary")
    ]
    # The first line gives the title its answer, so with several versions it is all of them together.
    is_shared = has_shifted or len(lines) > 1
    return [{"label": "all", "ink": "all", "version": None}, *lines] if is_shared else lines


def marks_of(name: str) -> list[dict[str, Any]]:
    """Shifts of traffic on the time axis, which every reader of the service may see as such."""
    since = clock.now() - timedelta(seconds=CHART_SECONDS)
    entries = Entry.objects.filter(target=f"service:{name}", verb__in=_MARKED_VERBS, at__gte=since)
    marks = []
    for entry in reversed(entries[:20]):
        after = entry.after or {}
        words = {
            "placement.shift": f"{after.get('weight_percent')} %",
            "placement.promote": f"version {after.get('version')} stable",
            "placement.withdraw": f"version {after.get('version')} out",
        }
        marks.append({"at": entry.at.timestamp(), "label": words[entry.verb]})
    return marks


def version_lines(actor: Actor, row: Service, state: Condition) -> list[VersionLine]:
    placed = {one.version_id: one for one in state.placements}
    rows = (
        Version.objects.of(row)
        .select_related("parent")
        .prefetch_related("aliases")
        .defer("contract", "files")
        .order_by("-number")[:VERSIONS_SHOWN]
    )
    may_start = may(actor, "rollout.start", row.tenant)
    lines = []
    for version in rows:
        placement = placed.get(version.pk)
        role, word = _word_of(placement)
        names = tuple(sorted(alias.name for alias in version.aliases.all()))
        lines.append(
            VersionLine(version, placement, names, role, word, may_start and word not in ("stable", "canary"))
        )
    return lines


def _word_of(placement: Placement | None) -> tuple[str, str]:
    if placement is None:
        return "idle", "registered"
    return {"stable": ("ok", "stable"), "canary": ("busy", "canary"), "warm": ("idle", "kept warm")}[
        placement.role
    ]


def replica_line(replica: Replica) -> ReplicaLine:
    phases = sorted(replica.load_phases.items(), key=lambda item: -item[1])
    return ReplicaLine(replica, replica.face, phases, sum(replica.load_phases.values()) if phases else None)


def changes_of(actor: Actor, name: str) -> list[Entry]:
    return list(visible_entries(actor).filter(target=f"service:{name}")[:CHANGES_SHOWN])


@page("GET", "HEAD", "POST")
def restart(request: HttpRequest, pk: int) -> HttpResponse:
    """Preview and act: end one worker after its batch and start it anew."""
    actor = actor_of(request)
    rows = Replica.objects.for_actor(actor).select_related("node", "version__service", "service__tenant")
    replica = found(rows, pk=pk)
    name = replica.service.name
    back = f"{reverse('inference:service', args=[name])}#replicas"

    def preview() -> Dialog:
        said = actions.preview_restart(replica, actor=actor)
        return Dialog(
            title=f"Restart {replica}",
            action="Restart replica",
            url=request.path,
            sentence=said.sentence,
            affected=said.affected,
            curl=curl_for(request, f"replicas/{pk}/restart"),
            back=back,
        )

    def act(reason: str, revision: int | None) -> Done:
        actions.restart_replica(replica, actor=actor, reason=reason)
        topics = [f"service:{name}", f"node:{replica.node.name}"]
        return Done(
            f"Asked {replica.node.name} to restart {replica.version}#{replica.ordinal}.", back, events=topics
        )

    return with_preview(request, preview, act)


def curl_for(request: HttpRequest, path: str) -> str:
    address = request.build_absolute_uri(f"/api/v1/{path}")
    return f'curl -X POST {address} \\\n  -H "Authorization: Bearer $PILOTHOUSE_TOKEN"'
