"""The judge's evidence as a page and a chart draw it: how far each proof is, in percent of what it needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from console.metrics.source import Indicator
from console.ui.words import percent
from rollouts.compare import key_of
from rollouts.gates import Gate
from rollouts.models import Measurement, Rollout
from rollouts.steps import Analysis

_WORDS = {Indicator.ERROR_RATIO.value: "errors", Indicator.SLOW_SHARE.value: "slow answers"}
PROOFS = {"worse": ("e_worse", "e_worse_limit"), "acceptable": ("e_acceptable", "e_acceptable_limit")}


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One metric of one judge. worse, acceptable: percent of the proof that is there; 100 decides."""

    gate: str
    metric: str
    what: str
    canary: str
    stable: str
    ratio: str
    worse: int
    acceptable: int
    sentence: str
    at: datetime


def judges_of(rollout: Rollout) -> list[Gate]:
    plan = rollout.plan
    gates = [gate for step in plan.steps if isinstance(step, Analysis) for gate in step.gates]
    gates += plan.background.gates if plan.background is not None else ()
    return list({gate.name: gate for gate in gates if gate.judge is not None}.values())


def pairs_of(rollout: Rollout) -> list[tuple[Gate, str]]:
    """Each judge with each of its tests."""
    return [
        (gate, key_of(metric, tenant))
        for gate in judges_of(rollout)
        if gate.judge
        for metric, tenant in gate.judge.tests
    ]


def judge_rows(rollout: Rollout) -> list[JudgeRow]:
    """The newest look of each judge at each of its metrics."""
    rows = []
    for gate, metric in pairs_of(rollout):
        looks = Measurement.objects.filter(rollout=rollout, gate=gate.name, metric=metric)
        last = looks.order_by("-id").first()
        if last is not None and "window" in last.evidence:
            rows.append(_row(last))
    return rows


def word_of(metric: str) -> str:
    kind, _, tenant = metric.partition("@")
    word = _WORDS.get(kind, kind)
    return f"{word} of {tenant}" if tenant else word


def _row(last: Measurement) -> JudgeRow:
    told = last.evidence
    low, high = told["ratio_low"], told["ratio_high"]
    ratio = (
        f"{low:.2g} to {high:.2g} times"
        if high is not None
        else f"above {low:.2g} times"
        if low
        else "unknown"
    )
    return JudgeRow(
        last.gate,
        last.metric,
        word_of(last.metric),
        _share(told["canary"]),
        _share(told["stable"]),
        ratio,
        progress(told, "worse"),
        progress(told, "acceptable"),
        last.detail,
        last.at,
    )


def _share(counts: Sequence[int]) -> str:
    requests, bad = counts
    return f"{bad} of {requests} ({percent(bad / requests)} %)" if requests else "none yet"


def progress(told: dict[str, Any], proof: str) -> int:
    """The logarithm of the evidence over the one that is needed, 0 to 100."""
    value, limit = (told[key] for key in PROOFS[proof])
    if value <= 1.0:
        return 0
    return min(100, math.floor(100 * math.log(value) / math.log(limit)))


def points_of(rollout: Rollout, gate: str, metric: str, proof: str) -> list[tuple[float, int]]:
    rows = Measurement.objects.filter(rollout=rollout, gate=gate, metric=metric).order_by("id")
    return [(row.at.timestamp(), progress(row.evidence, proof)) for row in rows if "window" in row.evidence]
