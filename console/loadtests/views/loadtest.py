"""`/loadtests/<id>`: its figures against the thresholds, over time and as a distribution, beside an earlier run."""

import json
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from console.kit import clock
from console.loadtests import actions, reports
from console.loadtests.board import address_of, done_percent, title_of
from console.loadtests.models import LoadTest, LoadTestQuerySet
from console.loadtests.present import judged
from console.loadtests.states import State
from console.metrics.source import Indicator, Query
from console.tenants.permissions import Actor, actor_of, may
from console.ui import signals
from console.ui.access import found, page
from console.ui.render import page_or_part
from console.ui.signals import Figure
from console.ui.verbs import Dialog, Done, act_now, with_preview

OTHERS_SHOWN = 20
PARTS = {"head", "live"}
_LIVE = {
    "rate": Indicator.REQUEST_RATE,
    "errors": Indicator.ERROR_RATIO,
    "p95": Indicator.LATENCY_P95,
    "p99": Indicator.LATENCY_P99,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of the report as the page prints it, beside the same of another run."""

    name: str
    here: Figure
    there: Figure | None
    change: str
    role: str


@page()
def loadtest(request: HttpRequest, pk: int) -> HttpResponse:
    actor, part = actor_of(request), request.GET.get("part")
    row = found(visible(actor), pk=pk)
    context: dict[str, Any] = {"loadtest": row, "title": title_of(row), "now": clock.now()}
    if part in (None, "head"):
        context["may_cancel"] = "cancel" in row.face.verbs and may(actor, "loadtest.cancel", row.tenant)
        context["may_start"] = may(actor, "loadtest.start", row.tenant)
    if part in (None, "live"):
        context |= {"done": done_percent(row), "live": live_of(row)}
    if part is None:
        context |= {"others": others_of(actor, row), **report_context(row, other_of(request, actor, row))}
    answer = page_or_part(request, "loadtests/loadtest.html", context, parts=PARTS)
    if part == "live" and row.is_terminal:
        answer["HX-Refresh"] = "true"  # the report with its charts is there now
    return answer


def visible(actor: Actor) -> LoadTestQuerySet:
    return LoadTest.objects.for_actor(actor).with_names()


def live_of(row: LoadTest) -> dict[str, Figure]:
    """What the planes say of the service while it runs: the tool's own report comes at the end."""
    if row.is_terminal or row.started_at is None:
        return {}
    queries = {
        name: Query(kind, row.service, row.version, window_seconds=10.0) for name, kind in _LIVE.items()
    }
    readings = signals.readings(queries.values())
    return {name: signals.figure(_LIVE[name], readings[query]) for name, query in queries.items()}


def others_of(actor: Actor, row: LoadTest) -> list[LoadTest]:
    """Earlier and later tests of the same service with a report."""
    rows = visible(actor).without_report().filter(service=row.service, state=State.FINISHED)
    return list(rows.exclude(pk=row.pk)[:OTHERS_SHOWN])


def other_of(request: HttpRequest, actor: Actor, row: LoadTest) -> LoadTest | None:
    wished = request.GET.get("with", "")
    if not wished.isdigit() or len(wished) > 18:
        return None
    return (
        visible(actor)
        .filter(pk=int(wished), service=row.service, report__isnull=False)
        .exclude(pk=row.pk)
        .first()
    )


def report_context(row: LoadTest, other: LoadTest | None) -> dict[str, Any]:
    if row.report is None:
        return {"lines": []}
    return {
        "report": row.report,
        "other": other,
        "lines": lines_of(row.report, other.report if other else None),
        "judged": judged(row),
        "p99_limit": next(
            (one.threshold.limit for one in judged(row) if one.threshold.figure == "p99"), None
        ),
        "chart_lines": {
            name: json.dumps(chart_lines(row, other, name)) for name in ("latency", "qps", "distribution")
        },
    }


def chart_lines(row: LoadTest, other: LoadTest | None, chart: str) -> list[dict[str, str]]:
    """Alone: P50 grey and P99 in the accent. Beside another: ours in the accent, the other grey."""
    if chart == "latency" and other is None:
        return [
            {"label": "p99", "ink": "canary", "url": _series(row, "p99")},
            {"label": "p95", "ink": "all", "url": _series(row, "p95")},
            {"label": "p50", "ink": "stable", "url": _series(row, "p50")},
        ]
    indicator = "p99" if chart == "latency" else chart
    lines = [{"label": f"test {row.pk}", "ink": "canary", "url": _series(row, indicator)}]
    if other is not None:
        lines.append({"label": f"test {other.pk}", "ink": "stable", "url": _series(other, indicator)})
    return lines


def _series(row: LoadTest, indicator: str) -> str:
    return f"/api/v1/loadtests/{row.pk}/series?indicator={indicator}"


def lines_of(report: dict[str, Any], other: dict[str, Any] | None) -> list[Line]:
    """The figures in the order of the mission: QPS, mean, P50, P95, P99, errors."""
    found_lines = []
    for name, words in reports.FIGURES.items():
        here, there = reports.value_of(report, name), reports.value_of(other, name) if other else None
        change, role = _change(name, here, there)
        figure = figure_of(name, there) if other is not None else None
        found_lines.append(Line(words, figure_of(name, here), figure, change, role))
    return found_lines


def figure_of(name: str, value: float | None) -> Figure:
    if value is None:
        return Figure("–", known=False, why="no request was answered")
    if name == "qps":
        return signals.in_words(Indicator.REQUEST_RATE, value)
    if name == "errors":
        return signals.in_words(Indicator.ERROR_RATIO, value)
    if value < 10:
        return Figure(f"{value:.2f}", "ms", value=value)
    return signals.in_words(Indicator.LATENCY_P99, value)


def _change(name: str, here: float | None, there: float | None) -> tuple[str, str]:
    """How far from the other run, and which colour it has: under a tenth neither good nor bad."""
    if here is None or not there:
        return "", ""
    percent = 100 * (here - there) / there
    better = percent > 0 if name == "qps" else percent < 0
    role = "" if abs(percent) < 10 else "ok" if better else "warn"
    return f"{percent:+.0f} %", role


@page("GET", "HEAD", "POST")
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Stopping harm asks nothing: POST acts; from Jump it opens as a dialog."""
    actor = actor_of(request)
    row = found(visible(actor), pk=pk)

    def act(reason: str = "", revision: int | None = None) -> Done:
        changed = actions.cancel(row, actor=actor, reason=reason, revision=revision)
        word = "Stopped" if changed.is_terminal else "Stopping"
        return Done(f"{word} the load test of {title_of(row)}.", address_of(row), events=row.topics)

    if request.method == "POST" and "was" not in request.POST:
        return act_now(request, act)

    def preview() -> Dialog:
        return Dialog(
            title=f"Stop the load test of {title_of(row)}",
            action="Stop load test",
            url=request.path,
            sentence="The agent ends the load tool; what was measured so far is thrown away.",
            revision=row.revision,
            kind="danger",
            back=address_of(row),
        )

    return with_preview(request, preview, act)
