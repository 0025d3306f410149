"""Gates: what an analysis measures, and what its measurements amount to.

A measurement has one of six verdicts. Pass and fail count; the four kinds of not knowing (no data, too few requests,
an unclear value, no answer) never promote, and each has its own policy: wait for a while, then pause or abort.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from console.metrics.source import OF_VERSIONS, Indicator
from rollouts.durations import seconds_of, text_of
from rollouts.reading import Fields, Problems
from rollouts.states import Reason


class Verdict(StrEnum):
    PASSED = "pass"
    FAILED = "fail"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"
    PROVIDER_ERROR = "provider_error"
    LOW_EVIDENCE = "low_evidence"
    CANCELLED = "cancelled"  # of a gate whose rollout ended before it did: never a pass


UNKNOWN = {
    Verdict.INCONCLUSIVE: Reason.INCONCLUSIVE,
    Verdict.NO_DATA: Reason.NO_DATA,
    Verdict.PROVIDER_ERROR: Reason.PROVIDER_ERROR,
    Verdict.LOW_EVIDENCE: Reason.LOW_EVIDENCE,
}


class Do(StrEnum):
    ABORT = "abort"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Policy:
    """What follows when a gate does not know: go on measuring for wait_seconds, then `then`."""

    wait_seconds: float
    then: Do

    def as_json(self) -> Any:
        if self.wait_seconds == 0:
            return self.then.value
        return {"wait": text_of(self.wait_seconds), "then": self.then.value}


DEFAULT_WAIT_SECONDS = 300.0
DEFAULT_POLICIES = {
    Verdict.NO_DATA: Policy(120.0, Do.PAUSE),
    Verdict.LOW_EVIDENCE: Policy(600.0, Do.PAUSE),
    Verdict.INCONCLUSIVE: Policy(0.0, Do.PAUSE),
    Verdict.PROVIDER_ERROR: Policy(120.0, Do.PAUSE),
}
_POLICY_KEYS = {verdict: f"on_{verdict.value}" for verdict in DEFAULT_POLICIES}


@dataclass(frozen=True, slots=True)
class Gate:
    """One indicator of the canary against its limits.

    maximum, minimum: absolute, in the indicator's unit (ratio 0..1, milliseconds, requests).
    fail_above, fail_below: where failing begins; between there and the limit the measurement is inconclusive.
    max_ratio_to_stable: the limit is this many times stable's own value in the same window, but never closer to it
    than `tolerance`, so that two milliseconds against one are no breach.
    """

    name: str
    indicator: Indicator
    maximum: float | None = None
    minimum: float | None = None
    fail_above: float | None = None
    fail_below: float | None = None
    max_ratio_to_stable: float | None = None
    tolerance: float = 0.0
    window_seconds: float = 60.0
    interval_seconds: float = 15.0
    count: int = 3
    failure_limit: int = 0
    min_requests: int = 20
    policies: tuple[tuple[Verdict, Policy], ...] = tuple(DEFAULT_POLICIES.items())

    def policy(self, verdict: Verdict) -> Policy:
        return dict(self.policies)[verdict]

    def as_json(self) -> dict[str, Any]:
        limits = {
            "max": self.maximum,
            "min": self.minimum,
            "fail_above": self.fail_above,
            "fail_below": self.fail_below,
            "max_ratio_to_stable": self.max_ratio_to_stable,
        }
        return {
            "name": self.name,
            "indicator": self.indicator.value,
            **{key: value for key, value in limits.items() if value is not None},
            **({"tolerance": self.tolerance} if self.tolerance else {}),
            "window": text_of(self.window_seconds),
            "interval": text_of(self.interval_seconds),
            "count": self.count,
            "failure_limit": self.failure_limit,
            "min_requests": self.min_requests,
            **{_POLICY_KEYS[verdict]: policy.as_json() for verdict, policy in self.policies},
        }


_KEYS = frozenset(
    {"name", "indicator", "max", "min", "fail_above", "fail_below", "max_ratio_to_stable", "tolerance", "window",
     "interval", "count", "failure_limit", "min_requests", *_POLICY_KEYS.values()}
)  # fmt: skip


def parse_gate(raw: Any, path: str, problems: Problems) -> Gate:
    fields = Fields(raw, path, problems, known=_KEYS)
    if not fields.has("indicator"):
        fields.wrong("indicator", f"is missing; one of {', '.join(OF_VERSIONS)}")
    indicator = fields.read("indicator", Indicator.ERROR_RATIO, _indicator)
    gate = Gate(
        name=fields.text("name", indicator.value),
        indicator=indicator,
        maximum=fields.number("max"),
        minimum=fields.number("min"),
        fail_above=fields.number("fail_above"),
        fail_below=fields.number("fail_below"),
        max_ratio_to_stable=fields.number("max_ratio_to_stable", above=0.0, most=1000.0),
        tolerance=fields.number("tolerance") or 0.0,
        window_seconds=fields.duration("window", 60.0, least=2.0),
        interval_seconds=fields.duration("interval", 15.0, least=1.0),
        count=fields.whole("count", 3, least=1, most=1000),
        failure_limit=fields.whole("failure_limit", 0, most=1000),
        min_requests=fields.whole("min_requests", 20),
        policies=tuple(
            (verdict, fields.read(key, DEFAULT_POLICIES[verdict], _policy))
            for verdict, key in _POLICY_KEYS.items()
        ),
    )
    _check_limits(gate, fields)
    return gate


def _check_limits(gate: Gate, fields: Fields) -> None:
    if not any(fields.has(key) for key in ("max", "min", "max_ratio_to_stable")):
        fields.problems.add(fields.path, "needs a limit: max, min or max_ratio_to_stable")
    if gate.indicator is Indicator.ERROR_RATIO and (gate.maximum or 0) > 1:
        fields.wrong("max", "must be a ratio between 0 and 1")
    if gate.failure_limit >= gate.count:
        fields.wrong("failure_limit", "must be below count, or the gate can never fail")
    for limit, beyond, side in (("max", "fail_above", 1), ("min", "fail_below", -1)):
        inner, outer = fields.number(limit), fields.number(beyond)
        if outer is None:
            continue
        if inner is None:
            fields.wrong(beyond, f"needs {limit} beside it")
        elif (outer - inner) * side < 0:
            fields.wrong(beyond, f"must not be {'below' if side > 0 else 'above'} {limit}")
    if gate.tolerance and gate.max_ratio_to_stable is None:
        fields.wrong("tolerance", "only widens max_ratio_to_stable")


def _indicator(raw: Any) -> Indicator:
    if raw not in OF_VERSIONS:
        raise ValueError(f"must be one of {', '.join(OF_VERSIONS)}")
    return Indicator(raw)


def _policy(raw: Any) -> Policy:
    if raw in ("abort", "pause"):
        return Policy(0.0, Do(raw))
    if raw == "wait":
        return Policy(DEFAULT_WAIT_SECONDS, Do.PAUSE)
    if isinstance(raw, dict) and raw.keys() <= {"wait", "then"} and raw.get("then", "pause") in tuple(Do):
        return Policy(seconds_of(raw.get("wait", DEFAULT_WAIT_SECONDS)), Do(raw.get("then", "pause")))
    raise ValueError('must be abort, pause, wait or {"wait": "5m", "then": "pause" or "abort"}')


# What measurements amount to


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement, as far as a decision needs it. sentence: the verdict with its numbers."""

    gate: str
    at: datetime
    verdict: Verdict
    sentence: str
    evidence: tuple[tuple[str, Any], ...] = ()


class Outcome(StrEnum):
    """From best to worst; a step is as good as its worst gate."""

    PASSED = "passed"
    RUNNING = "running"
    PAUSE = "pause"
    ABORT = "abort"


_SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a gate stands. deciding: the measurement that a pause or an abort rests on."""

    gate: Gate
    outcome: Outcome
    passes: int
    fails: int
    next_at: datetime
    unknown_since: datetime | None = None
    deciding: Measured | None = None

    @property
    def reason(self) -> Reason:
        if self.deciding is None:
            return Reason.NONE
        return UNKNOWN.get(self.deciding.verdict, Reason.BREACH)


def assess(gate: Gate, measured: Sequence[Measured], *, started_at: datetime, now: datetime) -> Standing:
    """Where the gate stands after these measurements of it, oldest first.

    A gate that passed is still measured while its step goes on: what breaks later still aborts.
    """
    mine = [one for one in measured if one.gate == gate.name]
    passes = sum(one.verdict is Verdict.PASSED for one in mine)
    failed = [one for one in mine if one.verdict is Verdict.FAILED]
    since = mine[-1].at if mine else started_at
    streak = _trailing_unknowns(mine)
    standing = Standing(
        gate,
        Outcome.PASSED if passes + len(failed) >= gate.count else Outcome.RUNNING,
        passes,
        len(failed),
        since + timedelta(seconds=gate.interval_seconds),
        unknown_since=streak[0].at if streak else None,
    )
    if len(failed) > gate.failure_limit:
        return _decided(standing, Outcome.ABORT, failed[-1])
    if not streak:
        return standing
    latest = streak[-1]
    policy = gate.policy(latest.verdict)
    if now - streak[0].at >= timedelta(seconds=policy.wait_seconds):
        return _decided(standing, Outcome.ABORT if policy.then is Do.ABORT else Outcome.PAUSE, latest)
    return _decided(standing, Outcome.RUNNING, latest)  # not knowing now outweighs having passed before


def worst(standings: Sequence[Standing]) -> Standing:
    """The standing that decides; the first of equals, so the order of gates in the plan is their order of blame."""
    return max(standings, key=lambda standing: _SEVERITY[standing.outcome])


def _decided(standing: Standing, outcome: Outcome, deciding: Measured) -> Standing:
    return Standing(
        standing.gate,
        outcome,
        standing.passes,
        standing.fails,
        standing.next_at,
        standing.unknown_since,
        deciding,
    )


def _trailing_unknowns(measured: Sequence[Measured]) -> list[Measured]:
    streak: list[Measured] = []
    for one in reversed(measured):
        if one.verdict not in UNKNOWN:
            break
        streak.append(one)
    return streak[::-1]
