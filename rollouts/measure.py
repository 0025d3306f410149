"""Taking the measurements that are due: read the indicators, judge them, keep the rows."""

from datetime import datetime

from console.metrics.source import Query, SignalSource
from rollouts.decide import Measure
from rollouts.gates import Gate, Standing, Verdict
from rollouts.judge import judge, wants_stable
from rollouts.models import Measurement, Rollout
from rollouts.record import add_measurements

_SHORTEST_WINDOW_SECONDS = 2.0


def measure(rollout: Rollout, due: Measure, source: SignalSource, now: datetime) -> None:
    standings = {standing.gate.name: standing for standing in due.standings}
    rows = [_take(rollout, gate, standings[gate.name], source, now) for gate in due.gates]
    add_measurements(rollout, rows)


def _take(
    rollout: Rollout, gate: Gate, standing: Standing, source: SignalSource, now: datetime
) -> Measurement:
    window = window_seconds(gate, standing, rollout.traffic_since, now)
    canary = source.read(_query(rollout, gate, rollout.to_version.number, window))
    stable = None
    if rollout.from_version is not None and wants_stable(gate, canary):
        stable = source.read(_query(rollout, gate, rollout.from_version.number, window))
    judgement = judge(gate, canary, stable)
    return Measurement(
        rollout=rollout,
        step_index=rollout.step_index,
        gate=gate.name,
        indicator=gate.indicator,
        at=now,
        verdict=judgement.verdict,
        value=judgement.value,
        requests=judgement.requests,
        limit=judgement.limit[:63],
        stable_value=judgement.stable_value,
        source=judgement.source[:16],
        query=judgement.query,
        detail=judgement.sentence[:500],
    )


def window_seconds(gate: Gate, standing: Standing, traffic_since: datetime | None, now: datetime) -> float:
    """The gate's window; longer while too few requests came, never reaching back before the canary's first request.

    A retry would else be judged by the requests of the attempt before.
    """
    window = gate.window_seconds
    if (
        standing.deciding is not None
        and standing.unknown_since is not None
        and standing.deciding.verdict is Verdict.LOW_EVIDENCE
    ):
        window += (now - standing.unknown_since).total_seconds()
    if traffic_since is not None:
        window = min(window, (now - traffic_since).total_seconds())
    return max(float(int(window)), _SHORTEST_WINDOW_SECONDS)


def _query(rollout: Rollout, gate: Gate, version: int, window: float) -> Query:
    return Query(gate.indicator, rollout.service.name, version, window_seconds=window)
