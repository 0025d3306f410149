"""A rollout as people and CI read it: its steps with what is done, now and next, its gates with their standing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from console.metrics.choose import source
from console.metrics.source import Indicator, Query, Value
from inference.models import Placement
from rollouts.models import Decision, Measurement, Rollout
from rollouts.observe import measured_beside, measured_in_step
from rollouts.plan import Analysis, Experiment, Pause, Step
from rollouts.standings import Measured, Standing, assess
from rollouts.states import State
from rollouts.verdicts import Verdict

SHOWN_MEASUREMENTS, SHOWN_DECISIONS = 200, 200


@dataclass(frozen=True, slots=True)
class StepView:
    """status: done, now, next, or cancelled for what a finished rollout never did. until: of a timed pause."""

    index: int
    step: Step
    status: str
    until: datetime | None
    gates: tuple[Standing, ...]
    last: tuple[Measured | None, ...]


def steps_of(rollout: Rollout, *, now: datetime) -> list[StepView]:
    return [_view(rollout, index, step, now) for index, step in enumerate(rollout.plan.steps)]


def _view(rollout: Rollout, index: int, step: Step, now: datetime) -> StepView:
    status = _status(rollout, index)
    started = rollout.step_started_at if status == "now" else None
    until = None
    if isinstance(step, Pause | Experiment) and step.duration_seconds is not None and started is not None:
        until = started + timedelta(seconds=step.duration_seconds)
    gates: list[Standing] = []
    last: list[Measured | None] = []
    if isinstance(step, Analysis | Experiment) and status != "next":
        measured = measured_in_step(rollout, index, since=rollout.judged_from if status == "now" else None)
        for gate in step.gates:
            mine = [one for one in measured if one.gate == gate.name]
            gates.append(assess(gate, measured, started_at=started or rollout.created_at, now=now))
            last.append(mine[-1] if mine else None)
    return StepView(index, step, status, until, tuple(gates), tuple(last))


def _status(rollout: Rollout, index: int) -> str:
    if index < rollout.step_index or rollout.state == State.PROMOTED:
        return "done"
    if rollout.is_terminal:
        return "cancelled"
    return "now" if index == rollout.step_index and rollout.state != State.QUEUED else "next"


def iso(at: datetime | None) -> str | None:
    """The one spelling of a time, in REST answers, kept answers and event streams alike."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def summary(rollout: Rollout) -> dict[str, Any]:
    """The row: what a list shows and what CI needs to go on."""
    return {
        "id": rollout.pk,
        "url": f"/api/v1/rollouts/{rollout.pk}",
        "page": f"/rollouts/{rollout.pk}",
        "service": rollout.service.name,
        "tenant": rollout.service.tenant.slug,
        "version": rollout.to_version.number,
        "from_version": rollout.from_version.number if rollout.from_version else None,
        "strategy": rollout.strategy_name or None,
        "on_new_version": rollout.on_new_version,
        "state": rollout.state,
        "reason": rollout.reason,
        "message": rollout.message,
        "needs_person": rollout.is_waiting_for_person,
        "settled": rollout.is_settled,
        "verbs": sorted(rollout.face.verbs),
        "step_index": rollout.step_index,
        "step_count": len(rollout.steps),
        "weight_percent": rollout.weight_percent,
        "retry_of": rollout.retry_of_id,
        "revision": rollout.revision,
        "created_by": rollout.created_by,
        "created_at": iso(rollout.created_at),
        "finished_at": iso(rollout.finished_at),
    }


def detail(rollout: Rollout, *, now: datetime) -> dict[str, Any]:
    """The row with steps, the newest measurements and the decisions, both oldest first."""
    measurements = Measurement.objects.filter(rollout=rollout).order_by("-id")[:SHOWN_MEASUREMENTS]
    decisions = Decision.objects.filter(rollout=rollout).order_by("-id")[:SHOWN_DECISIONS]
    return {
        **summary(rollout),
        "steps": [_step_json(view, rollout) for view in steps_of(rollout, now=now)],
        "beside": [
            _gate_json(standing, last, cancelled=rollout.is_terminal)
            for standing, last in beside_of(rollout, now=now)
        ],
        "watch": _watch_json(rollout),
        "weights": weights_of(rollout),
        "measurements": [measurement_json(row) for row in reversed(measurements)],
        "decisions": [decision_json(row) for row in reversed(decisions)],
    }


def beside_of(rollout: Rollout, *, now: datetime) -> list[tuple[Standing, Measured | None]]:
    """The gates beside the steps, each with its last measurement."""
    background = rollout.plan.background
    if background is None:
        return []
    measured = measured_beside(rollout)
    started = rollout.beside_from or rollout.traffic_since or rollout.created_at
    found = []
    for gate in background.gates:
        mine = [one for one in measured if one.gate == gate.name]
        standing = assess(gate, measured, started_at=started, now=now)
        found.append((standing, mine[-1] if mine else None))
    return found


def _watch_json(rollout: Rollout) -> dict[str, Any] | None:
    if rollout.watch_until is None:
        return None
    outcome = rollout.watch_outcome or None
    return {"until": iso(rollout.watch_until), "ended_at": iso(rollout.watch_ended_at), "outcome": outcome}


def weights_of(rollout: Rollout) -> dict[str, Any]:
    """Percent of the requests: what the plan wants, what the nodes were told, what was measured in a minute."""
    placed = Placement.objects.filter(service=rollout.service, version=rollout.to_version).first()
    return {
        "wanted": rollout.weight_percent,
        "told": placed.weight_percent if placed is not None else None,
        **_measured_weight(rollout, placed.weight_percent if placed is not None else None),
    }


def _measured_weight(rollout: Rollout, told: int | None) -> dict[str, Any]:
    """measured: percent of a minute's requests. differs: by more than chance explains, so a route is not obeyed."""
    share = None if rollout.is_terminal else measured_share(rollout)
    if share is None:
        return {"measured": None, "differs": False}
    percent, requests = share
    if told is None or rollout.plan.routing_at(rollout.step_index).sends:
        return {"measured": percent, "differs": False}
    spread = 100 * math.sqrt(max(told * (100 - told), 100) / 1e4 / max(requests, 1))
    return {"measured": percent, "differs": abs(percent - told) > max(4 * spread, 2.0)}


def measured_share(rollout: Rollout) -> tuple[float, float] | None:
    """Percent and the requests it rests on; None while nothing is known. The shadow's are not among them."""
    name = rollout.service.name
    canary = source().read(Query(Indicator.REQUESTS, name, rollout.to_version.number))
    whole = source().read(Query(Indicator.REQUESTS, name))
    if not isinstance(whole, Value) or whole.value <= 0:
        return None
    if not isinstance(canary, Value):
        return None
    return round(100 * canary.value / whole.value, 1), whole.value


def _step_json(view: StepView, rollout: Rollout) -> dict[str, Any]:
    return {
        "index": view.index,
        "spec": view.step.as_json(),
        "sentence": view.step.sentence,
        "status": view.status,
        "until": iso(view.until),
        "gates": [
            _gate_json(standing, last, cancelled=view.status == "cancelled")
            for standing, last in zip(view.gates, view.last, strict=True)
        ],
    }


def _gate_json(standing: Standing, last: Measured | None, *, cancelled: bool) -> dict[str, Any]:
    """A gate that was cut short before it failed is cancelled; it never counts as passed."""
    verdict = last.verdict if last is not None else None
    if cancelled and verdict is not Verdict.FAILED:
        verdict = Verdict.CANCELLED
    return {
        "name": standing.gate.name,
        "indicator": standing.gate.indicator,
        "outcome": standing.outcome,
        "verdict": verdict,
        "passes": standing.passes,
        "fails": standing.fails,
        "count": standing.gate.count,
        "next_at": None if cancelled else iso(standing.next_at),
        "sentence": last.sentence if last is not None else "not measured yet",
    }


def measurement_json(row: Measurement) -> dict[str, Any]:
    return {
        "id": row.pk,
        "step_index": row.step_index,
        "gate": row.gate,
        "indicator": row.indicator,
        "at": iso(row.at),
        "verdict": row.verdict,
        "value": row.value,
        "requests": row.requests,
        "limit": row.limit,
        "stable_value": row.stable_value,
        "source": row.source,
        "query": row.query,
        "sentence": row.detail,
        "metric": row.metric or None,
        "evidence": row.evidence,
    }


def decision_json(row: Decision) -> dict[str, Any]:
    return {
        "id": row.pk,
        "at": iso(row.at),
        "actor": row.actor,
        "kind": row.kind,
        "step_index": row.step_index,
        "from_state": row.from_state,
        "to_state": row.to_state,
        "weight_percent": row.weight_percent,
        "sentence": row.sentence,
        "evidence": row.evidence,
        "revision": row.revision,
    }


def outcome_of(rollout: Rollout) -> str:
    """What a waiting CI job acts on: an end, needs_person, or running."""
    if rollout.is_terminal:
        return rollout.state if rollout.is_settled else "settling"
    return "needs_person" if rollout.is_waiting_for_person else "running"


def decisions_after(rollout: Rollout, decision_id: int) -> Sequence[Decision]:
    return list(Decision.objects.filter(rollout=rollout, pk__gt=decision_id).order_by("pk"))
