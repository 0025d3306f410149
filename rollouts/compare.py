"""The judgement of one look of the canary judge: two readings of one metric join the evidence so far."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from console.metrics.source import Indicator, NoData, ProviderError, Reading, Value
from rollouts.evidence import Conclusion, Evidence, Window, interval
from rollouts.gates import Gate
from rollouts.judge import Judgement, show
from rollouts.verdicts import Verdict

_BAD = {Indicator.ERROR_RATIO: "errors", Indicator.SLOW_SHARE: "slow answers"}


@dataclass(frozen=True, slots=True)
class Look:
    """window: what this look adds to the evidence; None when it could not be read."""

    judgement: Judgement
    window: Window | None


def look(
    gate: Gate,
    metric: Indicator,
    before: Sequence[Window],
    canary: Reading,
    stable: Reading | None,
    *,
    tenant: str = "",
) -> Look:
    """before: the windows of all earlier looks of this rollout, oldest first. stable None: there is none.

    tenant: the stratum that is tested; "" is all of them together.
    """
    found = _look(gate, metric, before, canary, stable)
    judgement = found.judgement
    told = {**judgement.told, "metric": key_of(metric, tenant), "stratum": tenant}
    sentence = f"tenant {tenant}: {judgement.sentence}" if tenant else judgement.sentence
    return Look(replace(judgement, told=told, sentence=sentence), found.window)


def key_of(metric: Indicator, tenant: str) -> str:
    """What tells the tests of one judge apart."""
    return f"{metric.value}@{tenant}" if tenant else metric.value


def _look(
    gate: Gate, metric: Indicator, before: Sequence[Window], canary: Reading, stable: Reading | None
) -> Look:
    for reading, whose in ((canary, "the canary"), (stable, "stable")):
        if isinstance(reading, ProviderError):
            return _unknown(
                metric, Verdict.PROVIDER_ERROR, f"no answer about {whose}: {reading.reason}", reading
            )
    if stable is None:
        told = NoData("there is no stable version to compare with", canary.at, canary.source, canary.query)
        return _unknown(metric, Verdict.NO_DATA, told.reason, told)
    if isinstance(canary, NoData):
        return _unknown(metric, Verdict.NO_DATA, f"no data about the canary: {canary.reason}", canary)
    assert isinstance(canary, Value)
    window = Window(*_counts(canary), *_counts(stable))
    return Look(_judged(gate, metric, [*before, window], canary), window)


def _counts(reading: Reading) -> tuple[int, int]:
    if not isinstance(reading, Value):
        return 0, 0  # no requests in this window: it tells nothing and breaks nothing
    requests = round(reading.requests)
    return requests, min(requests, round(reading.value * reading.requests))


def _judged(gate: Gate, metric: Indicator, windows: Sequence[Window], canary: Value) -> Judgement:
    assert gate.judge is not None
    risk = gate.judge.shared_risk
    evidence = Evidence(risk).after_all(windows)
    verdict = _verdict(gate, evidence)
    low, high = interval(windows, risk.alpha)
    shares = [_share(evidence.canary_bad, evidence.canary), _share(evidence.stable_bad, evidence.stable)]
    told = {
        "metric": metric.value,
        "window": [windows[-1].canary, windows[-1].canary_bad, windows[-1].stable, windows[-1].stable_bad],
        "canary": [evidence.canary, evidence.canary_bad],
        "stable": [evidence.stable, evidence.stable_bad],
        "e_worse": _rounded(evidence.e_worse),
        "e_worse_limit": 1.0 / risk.alpha,
        "e_acceptable": _rounded(evidence.e_acceptable),
        "e_acceptable_limit": 1.0 / risk.beta_each,
        "ratio_low": _rounded(low),
        "ratio_high": _rounded(high) if math.isfinite(high) else None,
        "alpha": risk.alpha,
        "harm": risk.harm,
    }
    return Judgement(
        verdict,
        _sentence(metric, evidence, verdict, (low, high), gate),
        f"at most {risk.harm:g} times stable",
        shares[0],
        float(evidence.canary),
        shares[1],
        canary.source,
        canary.query,
        told,
    )


def _verdict(gate: Gate, evidence: Evidence) -> Verdict:
    if evidence.conclusion is Conclusion.WORSE:
        return Verdict.FAILED
    if evidence.canary >= gate.min_requests and evidence.conclusion is Conclusion.ACCEPTABLE:
        return Verdict.PASSED
    return Verdict.LOW_EVIDENCE


def _sentence(
    metric: Indicator, evidence: Evidence, verdict: Verdict, ratio: tuple[float, float], gate: Gate
) -> str:
    what = _BAD[metric]
    seen = (
        f"{evidence.canary_bad} {what} in {evidence.canary} requests beside stable's {evidence.stable_bad} in"
        f" {evidence.stable}"
    )
    assert gate.judge is not None
    match verdict:
        case Verdict.FAILED:
            return f"{seen}: at least {ratio[0]:.2g} times as many"
        case Verdict.PASSED if evidence.clean_peak >= evidence.better_peak and gate.judge.risk.floor:
            return f"{seen}: below {show(metric, gate.judge.risk.floor)}"
        case Verdict.PASSED:
            return f"{seen}: less than {gate.judge.risk.harm:g} times as many"
    if evidence.canary < gate.min_requests:
        return f"{seen}; at least {gate.min_requests} requests are needed"
    return f"{seen}: not decided yet"


def _share(bad: int, requests: int) -> float | None:
    return bad / requests if requests else None


def _rounded(value: float) -> float:
    return float(f"{min(value, 1e12):.4g}")


def _unknown(metric: Indicator, verdict: Verdict, sentence: str, reading: NoData | ProviderError) -> Look:
    name = _BAD[metric]
    judgement = Judgement(
        verdict,
        f"{name}: {sentence}",
        "",
        source=reading.source,
        query=reading.query,
        told={"metric": metric.value},
    )
    return Look(judgement, None)
