"""Gates: what an analysis measures and against which limits. What its measurements amount to is in standings.py.

A gate reads an indicator against limits, or a PromQL query against conditions, or lets the judge compare two versions.
A measurement has one of seven verdicts. Pass and fail count; the four kinds of not knowing (no data, too few requests,
an unclear value, no answer) never promote, and each has its own policy: wait for a while, then pause, abort or go on.
"""

import re
from dataclasses import dataclass
from typing import Any

from console.metrics.source import Indicator
from rollouts.durations import text_of
from rollouts.evidence import Risk
from rollouts.verdicts import DEFAULT_POLICIES, POLICY_KEYS, Do, Policy, Verdict

PLACEHOLDERS = frozenset({"service", "canary", "stable"})
PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Judge:
    """Compare the canary with stable by shares of bad answers (rollouts.evidence), for as long as it takes.

    The step lasts at least least_seconds, and what is not decided after most_seconds is low evidence.
    strata: tenants whose own errors are tested too, since a big tenant hides the harm of a small one. A stratum may
    stop the rollout; to go on, the whole has to be acceptable.
    """

    metrics: tuple[Indicator, ...]
    risk: Risk
    objective_ms: float | None
    least_seconds: float
    most_seconds: float
    strata: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[tuple[Indicator, str], ...]:
        """Each metric for all tenants together (""), and errors for each stratum. Latency is not counted by tenant."""
        whole = tuple((metric, "") for metric in self.metrics)
        if Indicator.ERROR_RATIO not in self.metrics:
            return whole
        return whole + tuple((Indicator.ERROR_RATIO, tenant) for tenant in self.strata)

    @property
    def shared_risk(self) -> Risk:
        return self.risk.shared_by(len(self.tests))

    def as_json(self) -> dict[str, Any]:
        return {
            "metrics": [metric.value for metric in self.metrics],
            "alpha": self.risk.alpha,
            "beta": self.risk.beta,
            "harm": self.risk.harm,
            **({"floor": self.risk.floor} if self.risk.floor else {}),
            **({"objective_ms": self.objective_ms} if self.objective_ms is not None else {}),
            **({"strata": list(self.strata)} if self.strata else {}),
            "min_duration": text_of(self.least_seconds),
            "max_duration": text_of(self.most_seconds),
        }


@dataclass(frozen=True, slots=True)
class Web:
    """A request to a host that the installation allows; its JSON answer, or the part at json_path, is the result."""

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    json_path: str = "$"
    timeout_seconds: float = 10.0

    def as_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "method": self.method,
            **({"headers": dict(self.headers)} if self.headers else {}),
            **({"body": self.body} if self.body else {}),
            "json_path": self.json_path,
            "timeout": text_of(self.timeout_seconds),
        }


@dataclass(frozen=True, slots=True)
class Gate:
    """One of three kinds: an indicator of the canary against limits, an answer with conditions, or the judge.

    maximum, minimum: absolute, in the indicator's unit (ratio 0..1, milliseconds, requests).
    fail_above, fail_below: where failing begins; between there and the limit the measurement is inconclusive.
    max_ratio_to_stable: the limit is this many times stable's own value in the same window, but never closer to it
    than `tolerance`, so that two milliseconds against one are no breach.
    query or web, success, failure: PromQL or a request, and conditions over its `result` as Argo's analysis has them.
    A query may name {{service}}, {{canary}} and {{stable}}: the service and the two versions' numbers.
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
    web: Web | None = None
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
    def asks(self) -> bool:
        """It judges an answer by conditions."""
        return bool(self.query) or self.web is not None

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
            **({} if self.asks else {"min_requests": self.min_requests}),
            **{key: value for key, value in optional.items() if value is not None},
            **{POLICY_KEYS[verdict]: policy.as_json() for verdict, policy in self.policies},
        }


def _what(gate: Gate) -> dict[str, Any]:
    if gate.judge is not None:
        return {"judge": gate.judge.as_json()}
    if gate.indicator is None:
        asked: dict[str, Any] = {"web": gate.web.as_json()} if gate.web else {"query": gate.query}
        conditions = {"success": gate.success, "failure": gate.failure}
        return asked | {key: text for key, text in conditions.items() if text}
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


def filled(query: str, *, service: str, canary: int, stable: int | None) -> str:
    """A query with its placeholders replaced."""
    values = {"service": service, "canary": str(canary), "stable": "" if stable is None else str(stable)}
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), query)
