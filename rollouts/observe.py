"""What a tick looks at: the row, the fleet, and the measurements of the step."""

from datetime import datetime

from rollouts.decide import Progress, Seen
from rollouts.gates import Measured, Verdict
from rollouts.models import Measurement, Rollout
from rollouts.states import Reason, State
from rollouts.traffic.base import Standing


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
    )


def measured_in_step(
    rollout: Rollout, step_index: int, *, since: datetime | None = None
) -> tuple[Measured, ...]:
    """Oldest first. since: leave out what was measured before a person let the step begin anew."""
    rows = Measurement.objects.filter(rollout=rollout, step_index=step_index)
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
    }
    return Measured(row.gate, row.at, Verdict(row.verdict), row.detail, tuple(evidence.items()))
