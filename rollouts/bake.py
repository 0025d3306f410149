"""How long a judge will probably need: from its risk, the baseline that was measured, and today's traffic."""

from dataclasses import dataclass

from console.metrics.source import Indicator, Query, SignalSource, Value
from rollouts.evidence import windows_to_conclude
from rollouts.gates import Gate
from rollouts.plan import Plan
from rollouts.steps import Analysis

_BASELINE_SECONDS = 600.0
# Where nothing bad was seen: what ten thousand clean requests would just not rule out.
_LEAST_SHARE = 0.0003


@dataclass(frozen=True, slots=True)
class Bake:
    """Expected seconds until the judge knows, if the version is as good as stable, or `harm` times as bad.

    None: with this traffic it never does.
    """

    step: int
    gate: str
    equal_seconds: float | None
    harmful_seconds: float | None

    @property
    def sentence(self) -> str:
        if self.equal_seconds is None or self.harmful_seconds is None:
            return f"{self.gate} cannot decide anything: no requests reach the version or stable then"
        return (
            f"{self.gate} needs about {_minutes(self.equal_seconds)} to accept an equal version"
            f" and about {_minutes(self.harmful_seconds)} to catch a harmful one, at today's traffic"
        )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(seconds, 1):.0f} s"


def bakes_of(plan: Plan, service: str, version: int | None, source: SignalSource) -> list[Bake]:
    """One for each judge of the steps and beside them, at the weight it first looks at."""
    judges = [
        (index, gate)
        for index, step in enumerate(plan.steps)
        if isinstance(step, Analysis)
        for gate in step.gates
        if gate.judge is not None
    ]
    if plan.background is not None:
        first = next(
            (i for i in range(len(plan.steps)) if i >= plan.background.first and plan.weight_at(i)), 0
        )
        judges += [(first, gate) for gate in plan.background.gates if gate.judge is not None]
    if not judges:
        return []
    rate = _read(source, Query(Indicator.REQUEST_RATE, service, version, window_seconds=_BASELINE_SECONDS))
    return [
        _bake(index, gate, plan.weight_at(index), service, version, rate, source) for index, gate in judges
    ]


def _bake(
    index: int,
    gate: Gate,
    weight: int,
    service: str,
    version: int | None,
    rate: float | None,
    source: SignalSource,
) -> Bake:
    assert gate.judge is not None
    slowest: list[float | None] = [None, None]
    times: list[list[float | None]] = [[], []]
    for metric in gate.judge.metrics:
        query = Query(
            metric, service, version, window_seconds=_BASELINE_SECONDS, objective_ms=gate.judge.objective_ms
        )
        share = max(_read(source, query) or 0.0, _LEAST_SHARE)
        canary, stable = (rate or 0.0) * weight / 100, (rate or 0.0) * (100 - weight) / 100
        for found, ratio in zip(times, (1.0, gate.judge.risk.harm * 1.5), strict=True):
            found.append(
                windows_to_conclude(
                    risk=gate.judge.shared_risk, canary=canary, stable=stable, bad_share=share, ratio=ratio
                )
            )
    for place, found in enumerate(times):
        known = [one for one in found if one is not None]
        # All metrics must accept; the first that objects ends it.
        slowest[place] = (max(known) if place == 0 else min(known)) if len(known) == len(found) else None
    return Bake(index, gate.name, slowest[0], slowest[1])


def _read(source: SignalSource, query: Query) -> float | None:
    reading = source.read(query)
    return reading.value if isinstance(reading, Value) else None
