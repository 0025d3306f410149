"""A rollout as its page draws it: the step bar, the gates as rows, stable beside canary. Reads, and decides nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from console.metrics.source import Indicator, Query
from console.ui import signals
from console.ui.signals import Figure
from console.ui.words import span
from inference.fleet import Readiness, readiness
from inference.models import Placement, Version
from rollouts.gates import Gate
from rollouts.models import Measurement, Rollout
from rollouts.plan import Analysis, Experiment, Pause, SetWeight
from rollouts.present import StepView, beside_of
from rollouts.standings import Outcome, Standing
from rollouts.states import State
from rollouts.steps import SetCanaryScale, SetHeaderRoute, SetMirrorRoute, SetTenantRoute
from rollouts.verdicts import Verdict

VERDICT_ROLES = {
    Verdict.PASSED: "ok",
    Verdict.FAILED: "fail",
    Verdict.INCONCLUSIVE: "warn",
    Verdict.LOW_EVIDENCE: "warn",
    Verdict.NO_DATA: "unknown",
    Verdict.PROVIDER_ERROR: "unknown",
    Verdict.CANCELLED: "idle",
}
_COMPARED = (Indicator.REQUEST_RATE, Indicator.ERROR_RATIO, Indicator.LATENCY_P50, Indicator.LATENCY_P95)
_NAMES = {
    Indicator.REQUEST_RATE: "Traffic",
    Indicator.ERROR_RATIO: "Errors",
    Indicator.LATENCY_P50: "p50 latency",
    Indicator.LATENCY_P95: "p95 latency",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One step of the bar. at: done, now, next or never. left: until when, for a step that ends by the clock."""

    title: str
    under: str
    at: str
    role: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class GateRow:
    """value, limit: with their unit. n: requests the value rests on."""

    step: int
    name: str
    role: str
    word: str
    value: str
    n: float | None
    limit: str
    passed: str
    sentence: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Compared:
    name: str
    stable: Figure
    canary: Figure


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two versions beside each other."""

    version: Version
    weight_percent: int | None
    ready: Readiness

    @property
    def is_known(self) -> bool:
        """False while no node reports: then nothing is wanted and nothing is ready, which says nothing."""
        return self.ready.wanted > 0 or self.weight_percent is None


def bar_of(rollout: Rollout, views: Sequence[StepView]) -> list[Cell]:
    """The steps and, as the last cell, the promotion."""
    cells = [_cell(rollout, view) for view in views]
    past = rollout.state == State.PROMOTED
    now = not rollout.is_terminal and rollout.step_index >= len(views) and rollout.state != State.QUEUED
    at = "done" if past else "now" if now else "never" if rollout.is_terminal else "next"
    last = Cell(
        "Promote", f"version {rollout.to_version.number} stable", at, "ok" if past else rollout.face.role
    )
    return [*cells, last]


def _cell(rollout: Rollout, view: StepView) -> Cell:
    title, under = _words(view)
    stopped = view.status == "cancelled" and view.index == rollout.step_index
    at = {"done": "done", "now": "now", "next": "next"}.get(view.status, "now" if stopped else "never")
    role = "ok" if at == "done" else rollout.face.role
    return Cell(title, under, at, role, view.until)


def _words(view: StepView) -> tuple[str, str]:
    match view.step:
        case SetWeight(percent):
            return f"{percent} %", "of the traffic"
        case Pause(duration_seconds=None):
            return "Pause", "until a person resumes"
        case Pause():
            return "Pause", span(view.step.duration_seconds)
        case Analysis(gates):
            return "Judge", ", ".join(gate.name for gate in gates)
        case SetCanaryScale():
            return "Scale", view.step.sentence.removeprefix("scale the new version ")
        case SetHeaderRoute(name, matches):
            return "Headers", ", ".join(one.header for one in matches) or f"no {name}"
        case SetTenantRoute(tenants):
            return "Tenants", ", ".join(tenants) or "none"
        case SetMirrorRoute(percent):
            return "Shadow", f"{percent} %" if percent else "stopped"
        case Experiment(percent):
            return "Experiment", f"{percent} % in the shadow, {span(view.step.duration_seconds)}"


def time_left(views: Sequence[StepView], now: datetime) -> datetime | None:
    """When the present step ends if all goes well; None when only a person or the fleet can say."""
    present = next((view for view in views if view.status == "now"), None)
    if present is None:
        return None
    if present.until is not None:
        return present.until
    if not present.gates:
        return None
    return max(_end_of(standing, now) for standing in present.gates)


def _end_of(standing: Standing, now: datetime) -> datetime:
    left = max((standing.gate.count or 0) - standing.passes - standing.fails, 0)
    if left == 0:
        return now
    return max(standing.next_at, now) + timedelta(seconds=(left - 1) * standing.gate.interval_seconds)


def beside_rows(rollout: Rollout, now: datetime) -> list[GateRow]:
    """The gates beside the steps; step 0 says so."""
    found = []
    for standing, last in beside_of(rollout, now=now):
        view = StepView(
            -1, rollout.plan.steps[0], "cancelled" if rollout.is_terminal else "now", None, (), ()
        )
        row = Measurement.objects.filter(rollout=rollout, gate=standing.gate.name).order_by("-id").first()
        found.append(_gate_row(view, standing, row if last is not None else None))
    return found


def gate_rows(rollout: Rollout, views: Sequence[StepView]) -> list[GateRow]:
    """The gates of the analysis under way or just over, the present one first, with their latest measurement."""
    latest: dict[tuple[int, str], Measurement] = {}
    for one in Measurement.objects.filter(rollout=rollout).order_by("-id")[:500]:
        latest.setdefault((one.step_index, one.gate), one)
    judged = [view for view in views if view.gates and view.index <= rollout.step_index]
    rows = []
    for view in reversed(judged):
        for standing in view.gates:
            rows.append(_gate_row(view, standing, latest.get((view.index, standing.gate.name))))
    return rows


def _gate_row(view: StepView, standing: Standing, last: Measurement | None) -> GateRow:
    gate = standing.gate
    verdict = Verdict(last.verdict) if last is not None else None
    if view.status == "cancelled" and verdict is not Verdict.FAILED:
        verdict = Verdict.CANCELLED
    word = verdict.value.replace("_", " ") if verdict is not None else "not measured"
    role = VERDICT_ROLES[verdict] if verdict is not None else "idle"
    if view.status == "now" and verdict is Verdict.PASSED and standing.outcome is not Outcome.PASSED:
        role, word = "busy", "passing"
    return GateRow(
        step=view.index + 1,
        name=gate.name,
        role=role,
        word=word,
        value=_show(_of(gate, last), last.value if last is not None else None),
        n=last.requests if last is not None else None,
        limit=_limit(gate, last.stable_value if last is not None else None),
        passed=f"{min(standing.passes, gate.count)} of {gate.count}" if gate.count else str(standing.passes),
        sentence=last.detail if last is not None else f"measured every {gate.interval_seconds:g} s",
        at=last.at if last is not None else None,
    )


def _of(gate: Gate, last: Measurement | None) -> Indicator | None:
    """What the value is: the judge measures several, each for all or for one tenant."""
    if gate.judge is None or last is None:
        return gate.indicator
    return Indicator(last.metric.partition("@")[0])


def _show(indicator: Indicator | None, value: float | None) -> str:
    """In the units of the page's charts: a ratio as percent. A query's value has no unit."""
    if value is None:
        return "–"
    if indicator is None:
        return f"{value:.4g}"
    shown = signals.in_words(indicator, value)
    return f"{shown.text} {shown.unit}".strip()


def _limit(gate: Gate, stable: float | None) -> str:
    """What the gate allows; a relative limit as what it came to against stable last time."""
    if gate.judge is not None:
        return f"at most {gate.judge.risk.harm:g} × stable"
    if gate.asks:
        return gate.success or f"not ({gate.failure})"
    if gate.maximum is not None:
        return _show(gate.indicator, gate.maximum)
    if gate.minimum is not None:
        return f"at least {_show(gate.indicator, gate.minimum)}"
    if gate.max_ratio_to_stable is None:
        return "–"
    if stable is None:
        return f"{gate.max_ratio_to_stable:g} × stable"
    return _show(gate.indicator, relative_limit(gate, stable))


def relative_limit(gate: Gate, stable: float) -> float:
    """As rollouts.judge computes it: never closer to stable than the tolerance."""
    return max(stable * (gate.max_ratio_to_stable or 0.0), stable + gate.tolerance)


def chart_limit(rollout: Rollout, indicator: Indicator) -> float | None:
    """Where the dashed line of a chart is: the gate's own limit, else what it came to against stable last time."""
    gates = [
        gate
        for step in rollout.plan.steps
        if isinstance(step, Analysis)
        for gate in step.gates
        if gate.indicator is indicator
    ]
    for gate in gates:
        if gate.maximum is not None:
            return gate.maximum
        if gate.max_ratio_to_stable is not None:
            stable = (
                Measurement.objects.filter(rollout=rollout, gate=gate.name, stable_value__isnull=False)
                .order_by("-id")
                .values_list("stable_value", flat=True)
                .first()
            )
            if stable is not None:
                return relative_limit(gate, stable)
    return None


def compared(rollout: Rollout) -> list[Compared]:
    """The last minute of both versions, indicator by indicator; of an ended rollout the minute before its end."""
    at = rollout.finished_at.timestamp() if rollout.finished_at is not None else None
    name = rollout.service.name
    stable = rollout.from_version.number if rollout.from_version else None
    canary = rollout.to_version.number
    numbers = [number for number in (stable, canary) if number is not None]
    found = signals.readings((Query(kind, name, number) for kind in _COMPARED for number in numbers), at=at)
    return [
        Compared(
            _NAMES[kind],
            signals.figure(kind, found.get(Query(kind, name, stable)) if stable is not None else None),
            signals.figure(kind, found[Query(kind, name, canary)]),
        )
        for kind in _COMPARED
    ]


def sides_of(rollout: Rollout) -> tuple[Side | None, Side]:
    placed = {one.version_id: one for one in Placement.objects.filter(service=rollout.service)}

    def side(version: Version) -> Side:
        placement = placed.get(version.pk)
        weight = placement.weight_percent if placement else None
        return Side(version, weight, readiness(rollout.service, version))

    before = rollout.from_version
    return (side(before) if before is not None else None), side(rollout.to_version)
