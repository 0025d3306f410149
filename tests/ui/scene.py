"""A house in full swing as rows and counter samples: a canary under judgement, and a node that fell silent."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from django.conf import settings

from console.audit import log as audit
from console.kit import clock
from console.metrics.source import Indicator
from console.services.models import Service
from inference.models import Version
from inference.protocol import SAMPLES_KEY, CounterSample, Series, encode
from rollouts.judge import show
from rollouts.models import Decision, Measurement, Rollout
from tests import factories

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, math.inf)
GATES: list[dict[str, Any]] = [
    {"name": "errors", "indicator": "error_ratio", "max": 0.02, "count": 3, "interval": "5s"},
    {
        "name": "latency",
        "indicator": "latency_p95_ms",
        "max_ratio_to_stable": 2.0,
        "tolerance": 50.0,
        "failure_limit": 1,
    },
]
STEPS: list[dict[str, Any]] = [
    {"setWeight": 10},
    {"pause": {"duration": "5s"}},
    {"analysis": {"gates": GATES}},
    {"setWeight": 50},
    {"setWeight": 100},
]


@dataclass(frozen=True)
class Scene:
    service: Service
    stable: Version
    canary: Version
    rollout: Rollout


def build() -> Scene:
    """Rows only; `samples` adds what the nodes counted."""
    stable = factories.stable(1, replicas=2)
    service = stable.service
    canary = factories.version(2, of=service, note="the same model, quantized to int8", parent=stable)
    stable.placements.update(weight_percent=90)
    factories.placement(canary, role="canary", weight=10)
    phases = {"read": 0.02, "session": 0.31, "provider": 0.01, "warmup": 0.12, "first": 0.02}
    since = clock.now() - timedelta(minutes=14)
    for ordinal, of in ((0, stable), (1, stable), (0, canary)):
        factories.replica(
            of, ordinal=ordinal, since=since, pid=4000 + ordinal, rss_bytes=181 << 20, load_phases=phases
        )
    factories.quota("acme", requests_per_second=60, burst=120, concurrency=32)
    factories.quota("globex", requests_per_second=10)
    factories.node("node-2", silent_seconds=95)
    rollout = factories.rollout(
        canary,
        from_version=stable,
        state="progressing",
        steps=STEPS,
        step_index=2,
        weight_percent=10,
        created_at=clock.now() - timedelta(seconds=150),
        step_started_at=clock.now() - timedelta(seconds=12),
        judged_from=clock.now() - timedelta(seconds=12),
        strategy_name="canary",
        message="Judging: errors 2 of 3 passed; latency 2 of 3 passed",
        created_by="user:ada",
    )
    _history(rollout)
    return Scene(service, stable, canary, rollout)


def _history(rollout: Rollout) -> None:
    began = rollout.created_at
    told = [
        (0, "start", 0, "Started the rollout from version 1 to 2"),
        (8, "shift", 10, "Sent 10 % to version 2"),
        (12, "next_step", 10, "Every node sends 10 % to version 2; next: pause 5 s"),
        (138, "next_step", 10, "Paused for 5 s; next: judge errors, latency"),
    ]
    for number, (after, kind, weight, sentence) in enumerate(told, start=2):
        Decision.objects.create(
            rollout=rollout,
            at=began + timedelta(seconds=after),
            actor=rollout.owner,
            kind=kind,
            step_index=0,
            from_state="progressing",
            to_state="progressing",
            weight_percent=weight,
            sentence=sentence,
            revision=number,
        )
        audit.record(
            rollout.owner, f"rollout.{kind}", f"rollout:{rollout.pk}", tenant="platform", reason=sentence
        )
    Rollout.objects.filter(pk=rollout.pk).update(revision=len(told) + 1)
    rollout.refresh_from_db()
    for age in (10, 5):
        for gate, indicator, value, limit in (
            ("errors", "error_ratio", 0.004, "2.0 %"),
            ("latency", "latency_p95_ms", 24.0, "2 times stable"),
        ):
            Measurement.objects.create(
                rollout=rollout,
                step_index=2,
                gate=gate,
                indicator=indicator,
                at=clock.now() - timedelta(seconds=age),
                verdict="pass",
                value=value,
                requests=74,
                limit=limit,
                stable_value=21.0 if gate == "latency" else None,
                source="embedded",
                query=f"{indicator}(service=file-type, version=2) over 15 s",
                detail=f"{show(Indicator(indicator), value)} over 74 requests is within the limit {limit}",
            )
    audit.record(
        "user:ada",
        "placement.shift",
        "service:file-type",
        tenant="platform",
        before={"placements": [{"version": 1, "weight_percent": 100}]},
        after={"weight_percent": 10, "version": 2, "placements": [{"version": 1, "weight_percent": 90}]},
        topics=["service:file-type"],
    )


def samples(*, seconds: int = 1800, errors_of: int = 2) -> None:
    """What one node counted in the last `seconds`, every two of them. errors_of: the version that errs a little."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    dice = random.Random(7)
    now = clock.now().timestamp()
    counted: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    pipe = client.pipeline()
    for step in range(seconds // 2 + 1):
        at = now - seconds + 2 * step
        _count(counted, dice, at, canary=now - at < 140, errors_of=errors_of)
        series = tuple(Series(name, dict(labels), value) for (name, labels), value in counted.items())
        sample = CounterSample(node="node-1", instance="a", at=at, series=series)
        pipe.xadd(SAMPLES_KEY, {"sample": encode(sample)}, id=f"{int(at * 1000)}-0")
    pipe.execute()


def _count(
    counted: dict[tuple[str, tuple[tuple[str, str], ...]], float],
    dice: random.Random,
    at: float,
    *,
    canary: bool,
    errors_of: int,
) -> None:
    def add(name: str, value: float, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        counted[key] = counted.get(key, 0.0) + value

    for limit, often in (("rate", 0.3), ("queue", 0.05)):
        add(
            "pilothouse_refused_total",
            float(dice.random() < often),
            service="file-type",
            tenant="globex",
            limit=limit,
        )
    counted["pilothouse_degradation_step", (("service", "file-type"), ("version", "1"))] = 2.0
    wave = 1 + 0.35 * math.sin(at / 170) + 0.1 * dice.random()
    for version, share in ((1, 0.9 if canary else 1.0), (2, 0.1 if canary else 0.0)):
        for tenant, rate in (("acme", 38.0), ("globex", 9.5)):
            requests = round(2 * rate * share * wave)
            bad = sum(dice.random() < 0.004 for _ in range(requests)) if version == errors_of else 0
            labels = {"service": "file-type", "version": str(version)}
            for code, count in (("200", requests - bad), ("500", bad)):
                add("pilothouse_requests_total", count, tenant=tenant, protocol="http", code=code, **labels)
            _batches(add, requests, labels)
            for _ in range(requests):
                seconds = dice.lognormvariate(math.log(0.012), 0.5)
                for bound in BUCKETS:
                    if seconds <= bound:
                        le = "+Inf" if bound == math.inf else f"{bound:g}"
                        add("pilothouse_request_duration_seconds_bucket", 1, le=le, **labels)
                add("pilothouse_request_duration_seconds_count", 1, **labels)


def _batches(add: Callable[..., None], requests: int, labels: dict[str, str]) -> None:
    """Most requests alone, some in fours; each waits 3 ms and runs for 9."""
    alone, fours = requests // 2, requests // 8
    for bound, count in ((1, alone), (2, alone), (4, alone + fours), (math.inf, alone + fours)):
        le = "+Inf" if bound == math.inf else f"{bound:g}"
        add("pilothouse_batch_size_bucket", count, le=le, **labels)
    for reason, count in (("idle", alone), ("full", fours)):
        add("pilothouse_batch_dispatch_total", count, reason=reason, **labels)
    for name, seconds in (("queue", 0.003), ("inference", 0.009)):
        add(f"pilothouse_{name}_duration_seconds_sum", seconds * (alone + fours), **labels)
        add(f"pilothouse_{name}_duration_seconds_count", alone + fours, **labels)
