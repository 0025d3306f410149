"""Reading a gate from JSON, strictly: a key that means nothing for its kind is as wrong as one that does not exist."""

from dataclasses import replace
from typing import Any

from console.metrics.source import OF_VERSIONS, Indicator
from rollouts.evidence import Risk
from rollouts.expressions import SyntaxProblem, parse
from rollouts.gates import PLACEHOLDER, PLACEHOLDERS, Gate, Judge, Web
from rollouts.reading import Fields, Problems
from rollouts.verdicts import DEFAULT_POLICIES, POLICY_KEYS, Do, Policy, Verdict, read_do, read_policy

_JUDGED = (Indicator.ERROR_RATIO, Indicator.SLOW_SHARE)
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
_OF_ANSWERS = frozenset({"query", "web", "success", "failure"})
_OF_ALL = frozenset(
    {"name", "window", "interval", "initial_delay", "count", "failure_limit", "consecutive_failure_limit",
     "inconclusive_limit", "error_limit", "success_limit", "min_requests", "dry_run", "on_fail",
     *POLICY_KEYS.values()}
)  # fmt: skip
_KEYS = _OF_ALL | _OF_INDICATORS | _OF_ANSWERS | {"judge"}
_NOT_OF_JUDGES = frozenset({"window", "count", "failure_limit", "consecutive_failure_limit", "success_limit"})


def parse_gate(raw: Any, path: str, problems: Problems) -> Gate:
    fields = Fields(raw, path, problems, known=_KEYS)
    kinds = [key for key in ("indicator", "query", "web", "judge") if fields.has(key)]
    if len(kinds) != 1:
        fields.wrong("indicator", f"is missing; one of {', '.join(OF_VERSIONS)}, or a query, web or judge")
        return Gate(name=fields.text("name", "gate"))
    gate = _common(fields, default_name=_default_name(kinds[0], fields))
    match kinds[0]:
        case "indicator":
            gate = _indicator_gate(gate, fields)
        case "query" | "web":
            gate = _answer_gate(gate, fields)
        case _:
            gate = _judge_gate(gate, fields)
    for key in sorted(fields.raw.keys() & (_OF_INDICATORS | _OF_ANSWERS | _NOT_OF_JUDGES)):
        if (
            (key in _OF_INDICATORS and gate.indicator is None)
            or (key in _OF_ANSWERS and not gate.asks)
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


def _answer_gate(gate: Gate, fields: Fields) -> Gate:
    gate = replace(
        gate,
        query=fields.text("query", "", most=4000) if fields.has("query") else "",
        web=_web(fields) if fields.has("web") else None,
        success=fields.text("success", "", most=2000) if fields.has("success") else "",
        failure=fields.text("failure", "", most=2000) if fields.has("failure") else "",
    )
    for name in PLACEHOLDER.findall(gate.query):
        if name not in PLACEHOLDERS:
            fields.wrong("query", f"names {name!r}; there are {', '.join(sorted(PLACEHOLDERS))}")
    if not gate.success and not gate.failure:
        fields.wrong("success", "or failure is missing: without a condition every answer would pass")
    for key, text in (("success", gate.success), ("failure", gate.failure)):
        if text:
            fields.read(key, "", _condition)
    return gate


_WEB_KEYS = frozenset({"url", "method", "headers", "body", "json_path", "timeout"})


def _web(fields: Fields) -> Web:
    inner = Fields(fields.raw["web"], fields.at("web"), fields.problems, known=_WEB_KEYS)
    url = inner.text("url", "http://x", most=2000)
    if not url.startswith(("http://", "https://")):
        inner.wrong("url", "must begin with http:// or https://")
    headers = inner.raw.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        inner.wrong("headers", "must be an object of texts")
        headers = {}
    method = inner.raw.get("method", "GET")
    if method not in ("GET", "POST", "PUT"):
        inner.wrong("method", "must be GET, POST or PUT")
    return Web(
        url,
        method if isinstance(method, str) else "GET",
        tuple(headers.items()),
        inner.text("body", "", most=10_000) if inner.has("body") else "",
        inner.text("json_path", "$", most=200),
        inner.duration("timeout", 10.0, least=0.1),
    )


def _condition(raw: Any) -> str:
    try:
        return parse(raw).text
    except SyntaxProblem as problem:
        raise ValueError(f"is no condition: {problem}") from None


_JUDGE_KEYS = frozenset(
    {"metrics", "alpha", "beta", "harm", "floor", "objective_ms", "min_duration", "max_duration", "strata"}
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
        strata=inner.read("strata", (), _strata),
    )
    if (Indicator.SLOW_SHARE in judge.metrics) != (judge.objective_ms is not None):
        inner.wrong("objective_ms", "belongs to slow_share, which needs it: the latency that counts as slow")
    if judge.least_seconds > judge.most_seconds:
        inner.wrong("min_duration", "must not be above max_duration")
    policies = dict(gate.policies)
    if not fields.has("on_low_evidence"):
        policies[Verdict.LOW_EVIDENCE] = Policy(most, Do.PAUSE)
    return replace(gate, judge=judge, count=None, policies=tuple(policies.items()))


def _strata(raw: Any) -> tuple[str, ...]:
    if (
        isinstance(raw, list)
        and len(raw) <= 20
        and all(isinstance(one, str) and 0 < len(one) <= 63 for one in raw)
    ):
        return tuple(dict.fromkeys(raw))
    raise ValueError("must be a list of at most 20 tenants")


def _metrics(raw: Any) -> tuple[Indicator, ...]:
    if isinstance(raw, list) and raw and all(one in _JUDGED for one in raw) and len(set(raw)) == len(raw):
        return tuple(Indicator(one) for one in raw)
    raise ValueError(f"must be a list of {' and '.join(_JUDGED)}")


def _indicator(raw: Any) -> Indicator:
    if raw not in OF_VERSIONS:
        raise ValueError(f"must be one of {', '.join(OF_VERSIONS)}")
    return Indicator(raw)


def _boolean(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    raise ValueError("must be true or false")
