"""What a tick looks at: the row, the fleet, and the measurements of the step."""

from datetime import datetime

from rollouts.decisions import Progress, Seen
from rollouts.models import Measurement, Rollout
from rollouts.standings import Measured
from rollouts.states import Reason, State
from rollouts.traffic.base import Standing
from rollouts.verdicts import Verdict


def progress_of(rollout: Rollout) -> Progress:
    return Progress(
        state=State(rollout.state),
        reason=Reason(rollout.reason),
        from_version=rollout.from_version.number if rollout.from_version else None,
        to_version=rollout.to_version.number,
        step_index=rollout.step_index,
        weight_percent=rollout.weight_percent,
        moved_at=rollout.moved_at or rollout.created_at,
        step_started_at=rollout.step_started_at,
        judged_from=rollout.judged_from,
        traffic_since=rollout.traffic_since,
        outages=rollout.outages,
        started_at=rollout.begun_at,
        beside_from=rollout.beside_from,
    )


def seen_by(rollout: Rollout, standing: Standing) -> Seen:
    return Seen(
        stable_version=standing.stable_version,
        canary_version=standing.canary_version,
        canary_weight=standing.canary_weight,
        wanted=standing.wanted,
        ready=standing.ready,
        failed_detail=standing.failed_detail,
        applied=standing.applied,
        measured=measured_in_step(rollout, rollout.step_index, since=rollout.judged_from),
        stable_replicas=standing.stable_replicas,
        canary_replicas=standing.canary_replicas,
        routing=standing.routing,
        beside=measured_beside(rollout),
    )


def measured_in_step(
    rollout: Rollout, step_index: int, *, since: datetime | None = None
) -> tuple[Measured, ...]:
    """Oldest first. since: leave out what was measured before a person let the step begin anew."""
    rows = Measurement.objects.filter(rollout=rollout, step_index=step_index)
    if since is not None:
        rows = rows.filter(at__gt=since)
    return tuple(_measured(row) for row in rows)


def measured_beside(rollout: Rollout) -> tuple[Measured, ...]:
    """Of the gates beside the steps, over all steps; oldest first."""
    background = rollout.plan.background
    if background is None:
        return ()
    return measured_of(rollout, [gate.name for gate in background.gates], since=rollout.beside_from)


def measured_of(rollout: Rollout, gates: list[str], *, since: datetime | None) -> tuple[Measured, ...]:
    """Of these gates, whatever the step; oldest first."""
    rows = Measurement.objects.filter(rollout=rollout, gate__in=gates)
    if since is not None:
        rows = rows.filter(at__gt=since)
    return tuple(_measured(row) for row in rows)


def _measured(row: Measurement) -> Measured:
    evidence = {
        "indicator": row.indicator,
        "value": row.value,
        "n": row.requests,
        "limit": row.limit,
        "stable_value": row.stable_value,
        "query": row.query,
        "source": row.source,
        "verdict": row.verdict,
        "at": row.at.isoformat(),
        **row.evidence,
    }
    return Measured(row.gate, row.at, Verdict(row.verdict), row.detail, tuple(evidence.items()))
