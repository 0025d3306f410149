"""The judgement of one measurement: readings in, verdict and sentence out."""

from dataclasses import dataclass, field
from typing import Any

from console.metrics.source import Indicator, NoData, ProviderError, Reading, Value
from console.ui.words import percent
from rollouts.gates import Gate
from rollouts.verdicts import Verdict

_WORDS = {
    Indicator.REQUESTS: "requests",
    Indicator.REQUEST_RATE: "request rate",
    Indicator.ERROR_RATIO: "error ratio",
    Indicator.LATENCY_P50: "p50 latency",
    Indicator.LATENCY_P95: "p95 latency",
    Indicator.LATENCY_P99: "p99 latency",
    Indicator.REFUSED_RATE: "refused requests",
    Indicator.SLOW_SHARE: "share of slow answers",
    Indicator.AGREEMENT: "agreement with stable",
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """sentence: such as `error ratio 31.0 % over 94 requests is above the limit 2.0 %`.

    limit: as text, also of a relative gate.
    """

    verdict: Verdict
    sentence: str
    limit: str
    value: float | None = None
    requests: float | None = None
    stable_value: float | None = None
    source: str = ""
    query: str = ""
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def evidence(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "requests": self.requests,
            "limit": self.limit,
            "stable_value": self.stable_value,
            "source": self.source,
            "query": self.query,
        }


def wants_stable(gate: Gate, canary: Reading) -> bool:
    """Stable is read for a comparison, and on a breach: when both are ill, the canary is not to blame alone."""
    if gate.indicator is Indicator.AGREEMENT:
        return False  # it compares with stable already
    return gate.max_ratio_to_stable is not None or (
        isinstance(canary, Value) and _absolute(gate, canary.value) is Verdict.FAILED
    )


def judge(gate: Gate, canary: Reading, stable: Reading | None) -> Judgement:
    """stable: None when `wants_stable` says no. A request-count gate needs no minimum of requests."""
    match canary:
        case ProviderError():
            return _unknown(gate, Verdict.PROVIDER_ERROR, canary, f"no answer: {canary.reason}")
        case NoData():
            return _unknown(gate, Verdict.NO_DATA, canary, f"no data: {canary.reason}")
        case Value():
            return _judge_value(gate, canary, stable)


def _judge_value(gate: Gate, canary: Value, stable: Reading | None) -> Judgement:
    if gate.indicator is not Indicator.REQUESTS and canary.requests < gate.min_requests:
        return _with(
            gate,
            Verdict.LOW_EVIDENCE,
            canary,
            f"only {canary.requests:.0f} requests of the {gate.min_requests} needed to judge the {_word(gate)}",
        )
    absolute = _absolute(gate, canary.value)
    said = f"{_word(gate)} {show(gate.indicator, canary.value)} over {canary.requests:.0f} requests"
    if absolute is Verdict.FAILED:
        return _breach(gate, canary, stable, said)
    if absolute is Verdict.INCONCLUSIVE:
        return _with(gate, absolute, canary, f"{said} is beyond the limit {_limit(gate)}, yet not failing")
    if gate.max_ratio_to_stable is not None:
        return _compare(gate, canary, stable, said)
    return _with(gate, Verdict.PASSED, canary, f"{said} is within the limit {_limit(gate)}")


def _breach(gate: Gate, canary: Value, stable: Reading | None, said: str) -> Judgement:
    side = "above" if gate.maximum is not None and canary.value > gate.maximum else "below"
    sentence = f"{said} is {side} the limit {_limit(gate, side)}"
    if (
        isinstance(stable, Value)
        and stable.requests >= gate.min_requests
        and _absolute(gate, stable.value) is Verdict.FAILED
    ):
        both = f"{sentence}, but so is stable with {show(gate.indicator, stable.value)}: a fault they share"
        return _with(gate, Verdict.INCONCLUSIVE, canary, both, stable=stable.value)
    beside = stable.value if isinstance(stable, Value) else None
    return _with(gate, Verdict.FAILED, canary, sentence, stable=beside)


def _compare(gate: Gate, canary: Value, stable: Reading | None, said: str) -> Judgement:
    assert gate.max_ratio_to_stable is not None
    match stable:
        case Value() if stable.requests >= gate.min_requests:
            pass
        case Value():
            few = f"stable answered only {stable.requests:.0f} requests of the {gate.min_requests} needed to compare"
            return _with(gate, Verdict.LOW_EVIDENCE, canary, few)
        case ProviderError():
            return _with(gate, Verdict.PROVIDER_ERROR, canary, f"no answer about stable: {stable.reason}")
        case _:
            why = stable.reason if stable is not None else "there is no stable version"
            return _with(gate, Verdict.NO_DATA, canary, f"no data about stable: {why}")
    limit = max(stable.value * gate.max_ratio_to_stable, stable.value + gate.tolerance)
    text = f"{show(gate.indicator, limit)} ({gate.max_ratio_to_stable:g} times stable)"
    verdict = Verdict.FAILED if canary.value > limit else Verdict.PASSED
    side = "above" if verdict is Verdict.FAILED else "within"
    sentence = f"{said} is {side} the limit {text}, stable has {show(gate.indicator, stable.value)}"
    return _with(gate, verdict, canary, sentence, limit=text, stable=stable.value)


def _absolute(gate: Gate, value: float) -> Verdict:
    """Against the absolute limits alone; reaching a limit is within it."""
    if gate.maximum is not None and value > gate.maximum:
        beyond = gate.maximum if gate.fail_above is None else gate.fail_above
        return Verdict.FAILED if value > beyond else Verdict.INCONCLUSIVE
    if gate.minimum is not None and value < gate.minimum:
        beyond = gate.minimum if gate.fail_below is None else gate.fail_below
        return Verdict.FAILED if value < beyond else Verdict.INCONCLUSIVE
    return Verdict.PASSED


def _unknown(gate: Gate, verdict: Verdict, reading: NoData | ProviderError, sentence: str) -> Judgement:
    return Judgement(
        verdict, f"{_word(gate)}: {sentence}", _limit(gate), source=reading.source, query=reading.query
    )


def _with(
    gate: Gate,
    verdict: Verdict,
    canary: Value,
    sentence: str,
    *,
    limit: str = "",
    stable: float | None = None,
) -> Judgement:
    return Judgement(
        verdict,
        sentence,
        limit or _limit(gate),
        canary.value,
        canary.requests,
        stable,
        canary.source,
        canary.query,
    )


def _limit(gate: Gate, side: str = "") -> str:
    """The limit that a breach on that side is about, else all of them."""
    if side == "above" and gate.maximum is not None:
        return show(gate.indicator, gate.maximum)
    if side == "below" and gate.minimum is not None:
        return show(gate.indicator, gate.minimum)
    parts = []
    if gate.minimum is not None and gate.maximum is not None:
        parts.append(f"{show(gate.indicator, gate.minimum)} to {show(gate.indicator, gate.maximum)}")
    elif gate.maximum is not None:
        parts.append(show(gate.indicator, gate.maximum))
    elif gate.minimum is not None:
        parts.append(f"at least {show(gate.indicator, gate.minimum)}")
    if gate.max_ratio_to_stable is not None:
        parts.append(f"{gate.max_ratio_to_stable:g} times stable")
    return " and ".join(parts)


def _word(gate: Gate) -> str:
    assert gate.indicator is not None
    return _WORDS[gate.indicator]


def show(indicator: Indicator | None, value: float) -> str:
    """A value of the indicator with its unit; None is a query's, which has none."""
    match indicator:
        case Indicator.LATENCY_P50 | Indicator.LATENCY_P95 | Indicator.LATENCY_P99:
            return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"
        case Indicator.REQUEST_RATE | Indicator.REFUSED_RATE:
            return f"{value:.3g}/s"
        case Indicator.REQUESTS:
            return f"{value:.0f}"
        case None:
            return f"{value:.4g}"
        case _:
            return f"{percent(value)} %"
