"""A rollout under the judge, with the evidence that the judge itself makes of its windows."""

from datetime import timedelta

from console.kit import clock
from console.metrics.source import Indicator, Value
from inference.models import Version
from rollouts.compare import look
from rollouts.evidence import Window
from rollouts.gate_reading import parse_gate
from rollouts.models import Measurement, Rollout, Strategy
from rollouts.reading import Problems
from tests import factories

JUDGE = {"name": "judge", "judge": {"metrics": ["error_ratio"], "max_duration": "30m"}, "interval": "30s"}
STRATEGY = {
    "steps": [
        {"setMirrorRoute": {"percentage": 20}},
        {"setWeight": 10},
        {"analysis": {"gates": [JUDGE]}},
        {"setCanaryScale": {"replicas": 2}},
        {"setHeaderRoute": {"name": "beta", "match": [{"headerName": "x-beta", "headerValue": {"exact": "1"}}]}},
        {"pause": {}},
        {"setWeight": 100},
    ],
    "options": {
        "background": {"gates": [{"name": "errors", "indicator": "error_ratio", "max": 0.05, "count": None}]},
        "watch": {"duration": "30m", "gates": [{"indicator": "error_ratio", "max": 0.02, "count": None}]},
        "deadline": {"step": "1h", "then": "abort"},
        "sticky": {"by": "tenant"},
    },
}  # fmt: skip


def build(stable: Version, canary: Version) -> tuple[Strategy, Rollout]:
    """Twelve windows of 30 s: canary with about three times stable's errors, not quite proved."""
    strategy = Strategy.objects.create(tenant=stable.service.tenant, name="judged", **STRATEGY)
    now = clock.now()
    rollout = factories.rollout(
        canary,
        from_version=stable,
        state="aborted",
        reason="breach",
        finished_at=now,
        created_at=now - timedelta(minutes=7),
        steps=STRATEGY["steps"],
        options=STRATEGY["options"],
        step_index=2,
        strategy_name="judged",
        message="Aborted: the judge has proof",
    )
    gate = parse_gate(JUDGE, "gate", Problems())
    before: list[Window] = []
    for number in range(12):
        bad = (0, 1, 0, 2, 1, 1, 0, 2, 1, 1, 2, 1)[number]
        at = now - timedelta(seconds=30 * (12 - number))
        canary_seen = Value(bad / 30, 30, at.timestamp(), "embedded", "error_ratio")
        stable_seen = Value(3 / 270, 270, at.timestamp(), "embedded", "error_ratio")
        seen = look(gate, Indicator.ERROR_RATIO, before, canary_seen, stable_seen)
        assert seen.window is not None
        before.append(seen.window)
        told = seen.judgement
        Measurement.objects.create(
            rollout=rollout, step_index=2, gate="judge", metric="error_ratio", at=at, verdict=told.verdict,
            value=told.value, requests=told.requests, limit=told.limit, stable_value=told.stable_value,
            source="embedded", query="q", detail=told.sentence, evidence=told.told,
        )  # fmt: skip
    return strategy, rollout
