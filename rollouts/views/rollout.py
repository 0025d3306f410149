"""`/rollouts/<id>`: where it stands, why it waits, what it rests on - and its verbs."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse

from console.kit import clock
from console.metrics.source import Indicator
from console.services import leases
from console.tenants.permissions import Actor, actor_of, may
from console.ui.access import found, page
from console.ui.render import page_or_part
from console.ui.verbs import Dialog, Done, Guard, act_now, with_preview
from rollouts import actions, judge_view, previews, progress
from rollouts.board import address_of, title_of
from rollouts.models import Decision, Rollout
from rollouts.present import StepView, steps_of, weights_of

DECISIONS_SHOWN = 100
PARTS = {"head", "steps", "gates", "judge", "sides", "log"}
_BEFORE = timedelta(seconds=60)
_CHARTS = {"errors": Indicator.ERROR_RATIO, "p95": Indicator.LATENCY_P95}

# The ladder (ui.md 4.3): what acts at once, and the verb that takes an undoable one back.
AT_ONCE = {"abort": None, "pause": "resume", "resume": "pause"}
_DONE = {
    "abort": "Aborted {title}. All traffic goes back to the stable version.",
    "pause": "Paused {title}.",
    "resume": "Resumed {title}.",
    "promote": "Promoting {title}.",
    "skip": "Skipped a step of {title}.",
    "retry": "Started {title} again.",
}


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    label: str
    at_once: bool
    kind: str


# In the order of the page; abort is the last, so that it is always in the same corner.
_VERBS = (
    Verb("retry", "Retry", False, "primary"),
    Verb("skip", "Skip step", False, ""),
    Verb("promote", "Promote", False, ""),
    Verb("pause", "Pause", True, ""),
    Verb("resume", "Resume", True, "primary"),
    Verb("abort", "Abort", True, "stop"),
)


@page()
def rollout(request: HttpRequest, pk: int) -> HttpResponse:
    actor, part, now = actor_of(request), request.GET.get("part"), clock.now()
    row = found(visible(actor), pk=pk)
    context: dict[str, Any] = {"rollout": row, "title": title_of(row), "now": now}
    if part in (None, "head", "steps", "gates"):
        views = steps_of(row, now=now)
        gates = progress.gate_rows(row, views) + progress.beside_rows(row, now)
        context |= {"gates": gates, "until": progress.time_left(views, now)}
        context["cells"] = progress.bar_of(row, views)
    if part in (None, "head"):
        context |= {"verbs": verbs_of(actor, row), "may_act": may(actor, "rollout.abort", row.service.tenant)}
    if part in (None, "judge"):
        context |= {"judged": judge_view.judge_rows(row)}
    if part in (None, "sides"):
        context |= {"weights": weights_of(row)}
        context |= {"compared": progress.compared(row), "sides": progress.sides_of(row)}
    if part in (None, "steps"):
        context |= chart_facts(row)
    if part in (None, "log"):
        context["decisions"] = Decision.objects.filter(rollout=row).order_by("-id")[:DECISIONS_SHOWN]
    if part is None:
        context["evidence_charts"] = [
            chart_of(row, gate.name, metric) for gate, metric in judge_view.pairs_of(row)
        ]
        base = f"/api/v1/services/{row.service.name}/series?indicator="
        context |= {f"series_{name}": f"{base}{kind.value}" for name, kind in _CHARTS.items()}
    return page_or_part(request, "rollouts/rollout.html", context, parts=PARTS)


def chart_of(row: Rollout, gate: str, metric: str) -> dict[str, str]:
    """The two proofs of a judge as lines of one chart."""
    base = f"/api/v1/rollouts/{row.pk}/evidence?{urlencode({'gate': gate, 'metric': metric})}&proof="
    lines = [
        {"label": "it is worse", "ink": "canary", "url": f"{base}worse"},
        {"label": "it is good enough", "ink": "stable", "url": f"{base}acceptable"},
    ]
    return {"title": f"How far is the proof about {judge_view.word_of(metric)}?", "lines": json.dumps(lines)}


def visible(actor: Actor) -> QuerySet[Rollout]:
    return Rollout.objects.for_actor(actor).with_names()


def verbs_of(actor: Actor, row: Rollout) -> list[Verb]:
    """What this reader may do now, from the state table."""
    tenant = row.service.tenant
    return [one for one in _VERBS if one.name in row.face.verbs and may(actor, f"rollout.{one.name}", tenant)]


def chart_facts(row: Rollout) -> dict[str, str]:
    """Lines, marks, limits and the time span shared by the page's charts."""
    lines = [{"label": f"version {row.to_version.number}", "ink": "canary", "version": row.to_version.number}]
    if row.from_version is not None:
        before = row.from_version.number
        lines.append({"label": f"version {before}", "ink": "stable", "version": before})
    shifts = Decision.objects.filter(rollout=row, kind__in=["shift", "promote", "abort"]).order_by("id")[:40]
    marks = [
        {"at": one.at.timestamp(), "label": f"{one.weight_percent} %" if one.kind == "shift" else one.kind}
        for one in shifts
    ]
    begin = row.created_at - _BEFORE
    end = (row.finished_at + _BEFORE) if row.finished_at else None
    limits = {name: progress.chart_limit(row, kind) for name, kind in _CHARTS.items()}
    return {
        "chart_lines": json.dumps(lines),
        "chart_marks": json.dumps(marks),
        "chart_from": f"{begin.timestamp():.0f}",
        "chart_to": f"{end.timestamp():.0f}" if end is not None and end < clock.now() else "",
        **{f"limit_{name}": "" if limit is None else f"{limit:g}" for name, limit in limits.items()},
    }


@page("GET", "HEAD", "POST")
def verb(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """Abort, pause and resume act on POST; promote, skip and retry show their preview first."""
    if name not in actions.VERBS:
        raise Http404
    actor = actor_of(request)
    row = found(visible(actor), pk=pk)
    if name in AT_ONCE and request.method == "POST" and "was" not in request.POST:
        return act_now(request, lambda: _act(row, name, actor, "", None))
    return with_preview(
        request,
        lambda: preview(request, found(visible(actor), pk=pk), name, actor),
        lambda reason, revision: _act(row, name, actor, reason, revision),
    )


def _act(row: Rollout, name: str, actor: Actor, reason: str, revision: int | None) -> Done:
    changed = actions.VERBS[name](row, actor=actor, reason=reason, revision=revision)
    back = AT_ONCE.get(name)
    undo = ("Undo", f"{address_of(row)}/{back}") if back else None
    text = _DONE[name].format(title=title_of(row))
    if changed.pk != row.pk:
        return Done(text, address_of(changed), leave=True)
    return Done(text, address_of(changed), events=changed.topics, undo=undo)


def preview(request: HttpRequest, row: Rollout, name: str, actor: Actor) -> Dialog:
    """The dry run of the verb, as a dialog."""
    said = previews.of_verb(row, name, actor=actor)
    goal = said["to_percent"]
    labels = {
        "promote": "Promote to 100 %",
        "skip": f"Skip to {goal} %" if goal != row.weight_percent else "Skip step",
        "retry": "Start again",
        "abort": "Abort rollout",
        "pause": "Pause rollout",
        "resume": "Resume rollout",
    }
    address = request.build_absolute_uri(f"/api/v1/rollouts/{row.pk}/{name}")
    return Dialog(
        title=f"{labels[name]}: {title_of(row)}",
        action=labels[name],
        url=request.path,
        sentence=said["effect"],
        before=f"{said['from_percent']} %",
        after=f"{goal} %",
        affected=tuple(said["affected"]),
        guards=guards_of(row) if name in ("promote", "skip", "resume") else (),
        curl=f'curl -X POST {address} \\\n  -H "Authorization: Bearer $PILOTHOUSE_TOKEN" '
        f"\\\n  -H 'If-Match: \"{row.revision}\"' -H 'Content-Type: application/json' -d '{{\"reason\": \"...\"}}'",
        revision=said["revision"],
        kind="danger" if name == "abort" else "primary",
        back=address_of(row),
    )


def guards_of(row: Rollout) -> tuple[Guard, ...]:
    """What speaks for and against going on, with its numbers."""
    views: list[StepView] = steps_of(row, now=clock.now())
    guards = [
        Guard(
            {"ok": True, "fail": False, "warn": False}.get(gate.role),
            f"{gate.name}: {gate.sentence} ({gate.passed} passed)",
        )
        for gate in progress.gate_rows(row, views)
        if gate.step == row.step_index + 1
    ]
    _, canary = progress.sides_of(row)
    ready = canary.ready
    guards.append(
        Guard(
            ready.is_ready,
            f"{ready.ready} of {ready.wanted} replicas of version {canary.version.number} ready",
        )
    )
    holder = leases.holder(row.target)
    if holder not in ("", row.owner):
        guards.append(Guard(False, f"{row.target} is held by {holder}"))
    return tuple(guards)
