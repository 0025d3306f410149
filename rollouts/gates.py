"""Gates: what an analysis measures and against which limits. What its measurements amount to is in standings.py.

A gate reads an indicator against limits, or a PromQL query against conditions, or lets the judge compare two versions.
A measurement has one of seven verdicts. Pass and fail count; the four kinds of not knowing (no data, too few requests,
an unclear value, no answer) never promote, and each has its own policy: wait for a while, then pause, abort or go on.
"""

from dataclasses import dataclass, replace
from typing import Any

from console.metrics.source import Indicator
from rollouts.durations import text_of
from rollouts.evidence import Risk
from rollouts.expressions import SyntaxProblem, parse
from rollouts.reading import Fields, Problems
from rollouts.verdicts import DEFAULT_POLICIES, POLICY_KEYS, Do, Policy, Verdict, read_do, read_policy

JUDGED = (Indicator.ERROR_RATIO, Indicator.SLOW_SHARE)


@dataclass(frozen=True, slots=True)
class Judge:
    """Compare the canary with stable by shares of bad answers (rollouts.evidence), for as long as it takes.

    The step lasts at least least_seconds, and what is not decided after most_seconds is low evidence.
    """

    metrics: tuple[Indicator, ...]
    risk: Risk
    objective_ms: float | None
    least_seconds: float
    most_seconds: float

    @property
    def shared_risk(self) -> Risk:
        return self.risk.shared_by(len(self.metrics))

    def as_json(self) -> dict[str, Any]:
        return {
            "metrics": [metric.value for metric in self.metrics],
            "alpha": self.risk.alpha,
            "beta": self.risk.beta,
            "harm": self.risk.harm,
            **({"floor": self.risk.floor} if self.risk.floor else {}),
            **({"objective_ms": self.objective_ms} if self.objective_ms is not None else {}),
            "min_duration": text_of(self.least_seconds),
            "max_duration": text_of(self.most_seconds),
        }


@dataclass(frozen=True, slots=True)
class Gate:
    """One of three kinds: an indicator of the canary against limits, a query with conditions, or the judge.

    maximum, minimum: absolute, in the indicator's unit (ratio 0..1, milliseconds, requests).
    fail_above, fail_below: where failing begins; between there and the limit the measurement is inconclusive.
    max_ratio_to_stable: the limit is this many times stable's own value in the same window, but never closer to it
    than `tolerance`, so that two milliseconds against one are no breach.
    query, success, failure: PromQL, and conditions over its `result` as Argo's analysis has them.
    count: measurements that use it up (errors and missing data do not); None: until the rollout ends.
    failure_limit: failed measurements that are forgiven in all, -1 for any number. consecutive_failure_limit,
    inconclusive_limit, error_limit: likewise, in a row for the first and the last; None: the policy alone decides.
    success_limit: passes in a row that end the gate early; 0 is off. dry_run: measured and shown, never counted.
    """

    name: str
    indicator: Indicator | None = None
    maximum: float | None = None
    minimum: float | None = None
    fail_above: float | None = None
    fail_below: float | None = None
    max_ratio_to_stable: float | None = None
    tolerance: float = 0.0
    objective_ms: float | None = None
    query: str = ""
    success: str = ""
    failure: str = ""
    judge: Judge | None = None
    window_seconds: float = 60.0
    interval_seconds: float = 15.0
    initial_delay_seconds: float = 0.0
    count: int | None = 3
    failure_limit: int = 0
    consecutive_failure_limit: int | None = None
    inconclusive_limit: int | None = None
    error_limit: int | None = None
    success_limit: int = 0
    min_requests: int = 20
    dry_run: bool = False
    on_fail: Do = Do.ABORT
    policies: tuple[tuple[Verdict, Policy], ...] = tuple(DEFAULT_POLICIES.items())

    def policy(self, verdict: Verdict) -> Policy:
        return dict(self.policies)[verdict]

    @property
    def seconds(self) -> float:
        """How long it takes when every measurement is a pass; 0 for one without an end of its own."""
        if self.judge is not None:
            return self.judge.least_seconds
        return self.initial_delay_seconds + self.interval_seconds * (self.count or 0)

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"name": self.name, **_what(self)}
        optional = {
            "initial_delay": text_of(self.initial_delay_seconds) if self.initial_delay_seconds else None,
            "consecutive_failure_limit": self.consecutive_failure_limit,
            "inconclusive_limit": self.inconclusive_limit,
            "error_limit": self.error_limit,
            "success_limit": self.success_limit or None,
            "dry_run": self.dry_run or None,
            "on_fail": self.on_fail.value if self.on_fail is not Do.ABORT else None,
        }
        return {
            **told,
            "interval": text_of(self.interval_seconds),
            **({} if self.judge else {"window": text_of(self.window_seconds), "count": self.count}),
            **({} if self.judge else {"failure_limit": self.failure_limit}),
            **({} if self.query else {"min_requests": self.min_requests}),
            **{key: value for key, value in optional.items() if value is not None},
            **{POLICY_KEYS[verdict]: policy.as_json() for verdict, policy in self.policies},
        }


def _what(gate: Gate) -> dict[str, Any]:
    if gate.judge is not None:
        return {"judge": gate.judge.as_json()}
    if gate.query:
        conditions = {"success": gate.success, "failure": gate.failure}
        return {"query": gate.query, **{key: text for key, text in conditions.items() if text}}
    assert gate.indicator is not None
    limits = {
        "max": gate.maximum,
        "min": gate.minimum,
        "fail_above": gate.fail_above,
        "fail_below": gate.fail_below,
        "max_ratio_to_stable": gate.max_ratio_to_stable,
        "objective_ms": gate.objective_ms,
    }
    return {
        "indicator": gate.indicator.value,
        **{key: value for key, value in limits.items() if value is not None},
        **({"tolerance": gate.tolerance} if gate.tolerance else {}),
    }


_OF_INDICATORS = frozenset(
    {
        "indicator",
        "max",
        "min",
        "fail_above",
        "fail_below",
        "max_ratio_to_stable",
        "tolerance",
        "objective_ms",
    }
)
_OF_QUERIES = frozenset({"query", "success", "failure"})
_OF_ALL = frozenset(
    {"name", "window", "interval", "initial_delay", "count", "failure_limit", "consecutive_failure_limit",
     "inconclusive_limit", "error_limit", "success_limit", "min_requests", "dry_run", "on_fail",
     *POLICY_KEYS.values()}
)  # fmt: skip
_KEYS = _OF_ALL | _OF_INDICATORS | _OF_QUERIES | {"judge"}
_NOT_OF_JUDGES = frozenset({"window", "count", "failure_limit", "consecutive_failure_limit", "success_limit"})


def parse_gate(raw: Any, path: str, problems: Problems) -> Gate:
    fields = Fields(raw, path, problems, known=_KEYS)
    kinds = [key for key in ("indicator", "query", "judge") if fields.has(key)]
    if len(kinds) != 1:
        fields.wrong("indicator", f"is missing; one of {', '.join(Indicator)}, or a query, or a judge")
        return Gate(name=fields.text("name", "gate"))
    gate = _common(fields, default_name=_default_name(kinds[0], fields))
    match kinds[0]:
        case "indicator":
            gate = _indicator_gate(gate, fields)
        case "query":
            gate = _query_gate(gate, fields)
        case _:
            gate = _judge_gate(gate, fields)
    for key in sorted(fields.raw.keys() & (_OF_INDICATORS | _OF_QUERIES | _NOT_OF_JUDGES)):
        if (
            (key in _OF_INDICATORS and gate.indicator is None)
            or (key in _OF_QUERIES and not gate.query)
            or (key in _NOT_OF_JUDGES and gate.judge is not None)
        ):
            fields.wrong(key, f"means nothing for a gate with {kinds[0]}")
    return gate


def _default_name(kind: str, fields: Fields) -> str:
    told = fields.raw["indicator"] if kind == "indicator" else kind
    return told if isinstance(told, str) and told else "gate"


def _common(fields: Fields, *, default_name: str) -> Gate:
    gate = Gate(
        name=fields.text("name", default_name),
        window_seconds=fields.duration("window", 60.0, least=2.0),
        interval_seconds=fields.duration("interval", 15.0, least=1.0),
        initial_delay_seconds=fields.duration("initial_delay", 0.0),
        count=None if fields.raw.get("count", 3) is None else fields.whole("count", 3, least=1, most=1000),
        failure_limit=fields.whole("failure_limit", 0, least=-1, most=1000),
        consecutive_failure_limit=_optional(fields, "consecutive_failure_limit"),
        inconclusive_limit=_optional(fields, "inconclusive_limit"),
        error_limit=_optional(fields, "error_limit"),
        success_limit=fields.whole("success_limit", 0, most=1000),
        min_requests=fields.whole("min_requests", 20),
        dry_run=fields.read("dry_run", False, _boolean),
        on_fail=fields.read("on_fail", Do.ABORT, read_do),
        policies=tuple(
            (verdict, fields.read(key, DEFAULT_POLICIES[verdict], read_policy))
            for verdict, key in POLICY_KEYS.items()
        ),
    )
    if gate.count is not None and gate.failure_limit >= gate.count:
        fields.wrong("failure_limit", "must be below count, or the gate can never fail")
    if gate.count is not None and gate.success_limit > gate.count:
        fields.wrong("success_limit", "must not be above count, or it can never be reached")
    return gate


def _optional(fields: Fields, key: str) -> int | None:
    return fields.whole(key, 0, most=1000) if fields.has(key) else None


def _indicator_gate(gate: Gate, fields: Fields) -> Gate:
    gate = replace(
        gate,
        indicator=fields.read("indicator", Indicator.ERROR_RATIO, _indicator),
        maximum=fields.number("max"),
        minimum=fields.number("min"),
        fail_above=fields.number("fail_above"),
        fail_below=fields.number("fail_below"),
        max_ratio_to_stable=fields.number("max_ratio_to_stable", above=0.0, most=1000.0),
        tolerance=fields.number("tolerance") or 0.0,
        objective_ms=fields.number("objective_ms", above=0.0, most=600_000.0),
    )
    _check_limits(gate, fields)
    return gate


def _check_limits(gate: Gate, fields: Fields) -> None:
    if not any(fields.has(key) for key in ("max", "min", "max_ratio_to_stable")):
        fields.problems.add(fields.path, "needs a limit: max, min or max_ratio_to_stable")
    if gate.indicator in (Indicator.ERROR_RATIO, Indicator.SLOW_SHARE, Indicator.AGREEMENT):
        for key, value in (("max", gate.maximum), ("min", gate.minimum)):
            if (value or 0) > 1:
                fields.wrong(key, "must be a ratio between 0 and 1")
    if (gate.indicator is Indicator.SLOW_SHARE) != (gate.objective_ms is not None):
        fields.wrong("objective_ms", "belongs to slow_share, which needs it: the latency that counts as slow")
    if gate.indicator is Indicator.AGREEMENT and gate.max_ratio_to_stable is not None:
        fields.wrong("max_ratio_to_stable", "means nothing for agreement: it compares with stable already")
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


def _query_gate(gate: Gate, fields: Fields) -> Gate:
    gate = replace(
        gate,
        query=fields.text("query", "", most=4000),
        success=fields.text("success", "", most=2000) if fields.has("success") else "",
        failure=fields.text("failure", "", most=2000) if fields.has("failure") else "",
    )
    if not gate.success and not gate.failure:
        fields.wrong("success", "or failure is missing: without a condition every answer would pass")
    for key, text in (("success", gate.success), ("failure", gate.failure)):
        if text:
            fields.read(key, "", _condition)
    return gate


def _condition(raw: Any) -> str:
    try:
        return parse(raw).text
    except SyntaxProblem as problem:
        raise ValueError(f"is no condition: {problem}") from None


_JUDGE_KEYS = frozenset(
    {"metrics", "alpha", "beta", "harm", "floor", "objective_ms", "min_duration", "max_duration"}
)


def _judge_gate(gate: Gate, fields: Fields) -> Gate:
    inner = Fields(fields.raw["judge"], fields.at("judge"), fields.problems, known=_JUDGE_KEYS)
    most = inner.duration("max_duration", 1800.0, least=1.0)
    judge = Judge(
        metrics=inner.read("metrics", (Indicator.ERROR_RATIO,), _metrics),
        risk=Risk(
            alpha=inner.number("alpha", above=0.0, most=0.5) or 0.01,
            beta=inner.number("beta", above=0.0, most=0.5) or 0.05,
            harm=inner.number("harm", above=1.0, most=100.0) or 2.0,
            floor=inner.number("floor", most=0.5) or 0.0,
        ),
        objective_ms=inner.number("objective_ms", above=0.0, most=600_000.0),
        least_seconds=inner.duration("min_duration", 0.0),
        most_seconds=most,
    )
    if (Indicator.SLOW_SHARE in judge.metrics) != (judge.objective_ms is not None):
        inner.wrong("objective_ms", "belongs to slow_share, which needs it: the latency that counts as slow")
    if judge.least_seconds > judge.most_seconds:
        inner.wrong("min_duration", "must not be above max_duration")
    policies = dict(gate.policies)
    if not fields.has("on_low_evidence"):
        policies[Verdict.LOW_EVIDENCE] = Policy(most, Do.PAUSE)
    return replace(gate, judge=judge, count=None, policies=tuple(policies.items()))


def _metrics(raw: Any) -> tuple[Indicator, ...]:
    if isinstance(raw, list) and raw and all(one in JUDGED for one in raw) and len(set(raw)) == len(raw):
        return tuple(Indicator(one) for one in raw)
    raise ValueError(f"must be a list of {' and '.join(JUDGED)}")


def _indicator(raw: Any) -> Indicator:
    try:
        return Indicator(raw)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Indicator)}") from None


def _boolean(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    raise ValueError("must be true or false")
