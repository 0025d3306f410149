"""Taking the measurements that are due: read the indicators, judge them, keep the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from console.metrics.source import Indicator, Query, Reading, SignalSource
from rollouts import webmetric
from rollouts.compare import key_of, look
from rollouts.conditions import judge_answer
from rollouts.decisions import Measure
from rollouts.evidence import Window
from rollouts.gates import Gate, filled
from rollouts.judge import Judgement, judge, wants_stable
from rollouts.models import Measurement, Rollout
from rollouts.record import add_measurements
from rollouts.standings import Standing
from rollouts.verdicts import Verdict

_SHORTEST_WINDOW_SECONDS = 2.0


def measure(rollout: Rollout, due: Measure, source: SignalSource, now: datetime) -> None:
    standings = {standing.gate.name: standing for standing in due.standings}
    rows = [
        _row(rollout, gate, judgement, now)
        for gate in due.gates
        for judgement in _judgements(rollout, gate, standings[gate.name], source, now)
    ]
    add_measurements(rollout, rows)


def _judgements(
    rollout: Rollout, gate: Gate, standing: Standing, source: SignalSource, now: datetime
) -> Iterator[Judgement]:
    if gate.judge is not None:
        for metric, tenant in gate.judge.tests:
            yield _compared(rollout, gate, metric, tenant, source, now)
    elif gate.web is not None:
        yield judge_answer(gate, webmetric.ask(gate.web, at=now.timestamp()))
    elif gate.query:
        stable = rollout.from_version.number if rollout.from_version else None
        text = filled(
            gate.query, service=rollout.service.name, canary=rollout.to_version.number, stable=stable
        )
        yield judge_answer(gate, source.ask(text, at=now.timestamp()))
    else:
        since = rollout.traffic_since or rollout.step_started_at
        yield _one(rollout, gate, window_seconds(gate, standing, since, now), source)


def _one(rollout: Rollout, gate: Gate, window: float, source: SignalSource) -> Judgement:
    assert gate.indicator is not None
    canary = source.read(
        _query(rollout, gate.indicator, rollout.to_version.number, window, gate.objective_ms)
    )
    stable = None
    if rollout.from_version is not None and wants_stable(gate, canary):
        stable = source.read(
            _query(rollout, gate.indicator, rollout.from_version.number, window, gate.objective_ms)
        )
    return judge(gate, canary, stable)


def _compared(
    rollout: Rollout, gate: Gate, metric: Indicator, tenant: str, source: SignalSource, now: datetime
) -> Judgement:
    """One look: what was counted since the last one, so that no request is evidence twice."""
    assert gate.judge is not None
    earlier = looks_of(rollout, gate, key_of(metric, tenant))
    since = earlier[-1][0] if earlier else rollout.traffic_since or now
    window = max((now - since).total_seconds(), _SHORTEST_WINDOW_SECONDS)

    def read(version: int) -> Reading:
        query = _query(rollout, metric, version, window, gate.judge.objective_ms if gate.judge else None)
        return source.read(replace(query, tenant=tenant or None), at=now.timestamp())

    stable = read(rollout.from_version.number) if rollout.from_version is not None else None
    windows = [one for _, one in earlier]
    return look(gate, metric, windows, read(rollout.to_version.number), stable, tenant=tenant).judgement


def looks_of(rollout: Rollout, gate: Gate, metric: str) -> Sequence[tuple[datetime, Window]]:
    """Everything this rollout's judge has seen of a metric, in all steps: evidence does not begin anew with a step."""
    rows = Measurement.objects.filter(rollout=rollout, gate=gate.name, metric=metric).order_by("id")
    if rollout.beside_from is not None:
        rows = rows.filter(at__gt=rollout.beside_from)
    return [(row.at, Window(*row.evidence["window"])) for row in rows if "window" in row.evidence]


def _row(rollout: Rollout, gate: Gate, judgement: Judgement, now: datetime) -> Measurement:
    return Measurement(
        rollout=rollout,
        step_index=rollout.step_index,
        gate=gate.name,
        indicator=gate.indicator or "",
        metric=judgement.told.get("metric", ""),
        at=now,
        verdict=judgement.verdict,
        value=judgement.value,
        requests=judgement.requests,
        limit=judgement.limit[:63],
        stable_value=judgement.stable_value,
        source=judgement.source[:16],
        query=judgement.query,
        detail=judgement.sentence[:500],
        evidence=judgement.told,
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


def _query(
    rollout: Rollout, indicator: Indicator, version: int, window: float, objective_ms: float | None
) -> Query:
    return Query(indicator, rollout.service.name, version, window_seconds=window, objective_ms=objective_ms)
