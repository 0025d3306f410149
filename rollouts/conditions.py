"""The judgement of one answer, of a query or of a web request: Argo's rules for success and failure conditions."""

import json
import math
from typing import Any

from console.metrics.source import NoData, ProviderError, Sampled, Sampling
from rollouts.expressions import EvaluationError, SyntaxProblem, evaluate, parse
from rollouts.gates import Gate
from rollouts.judge import Judgement
from rollouts.verdicts import Verdict


def judge_answer(gate: Gate, sampling: Sampling) -> Judgement:
    """An empty answer on which a condition has no outcome is no data; any other condition without one is an error.

    Only success given: fail is its opposite. Only failure: pass is its opposite. Both true: fail. Neither:
    inconclusive.
    """
    match sampling:
        case ProviderError():
            return _judgement(gate, Verdict.PROVIDER_ERROR, f"no answer: {sampling.reason}", sampling)
        case NoData():
            return _judgement(gate, Verdict.NO_DATA, f"no data: {sampling.reason}", sampling)
        case Sampled():
            return _judge(gate, sampling)


def _judge(gate: Gate, sampled: Sampled) -> Judgement:
    shown = show_result(sampled.result)
    environment = {"result": sampled.result}
    try:
        passed = evaluate(parse(gate.success), environment) if gate.success else None
        failed = evaluate(parse(gate.failure), environment) if gate.failure else None
    except (EvaluationError, SyntaxProblem) as error:
        if sampled.result == []:
            return _judgement(gate, Verdict.NO_DATA, "no data: the query found nothing", sampled)
        return _judgement(gate, Verdict.PROVIDER_ERROR, f"cannot judge {shown}: {error}", sampled)
    if failed or (failed is None and passed is False):
        broken = gate.failure if failed else f"not ({gate.success})"
        return _judgement(gate, Verdict.FAILED, f"{shown} fails: {broken}", sampled)
    if passed or (passed is None and failed is False):
        kept = gate.success if passed else f"not ({gate.failure})"
        return _judgement(gate, Verdict.PASSED, f"{shown} passes: {kept}", sampled)
    neither = f"{shown} neither passes {gate.success} nor fails {gate.failure}"
    return _judgement(gate, Verdict.INCONCLUSIVE, neither, sampled)


def show_result(result: Any) -> str:
    """As Argo writes a measurement's value: 0.97 or [0.97,1]."""
    if isinstance(result, list):
        inner = ",".join(show_result(value) for value in result[:5])
        return f"[{inner}{',...' if len(result) > 5 else ''}]"
    return f"{result:g}" if isinstance(result, float) else json.dumps(result)[:100]


def _judgement(gate: Gate, verdict: Verdict, sentence: str, sampling: Sampling) -> Judgement:
    value = None
    if isinstance(sampling, Sampled):
        first = sampling.result
        first = first[0] if isinstance(first, list) and first else first
        value = first if isinstance(first, float) and math.isfinite(first) else None
    limit = gate.success or f"not ({gate.failure})"
    return Judgement(
        verdict,
        f"{gate.name}: {sentence}",
        limit,
        value,
        source=sampling.source,
        query=sampling.query,
    )
