"""Strategies that come with the house, made after each migration."""

from typing import Any

from rollouts.models import Strategy
from rollouts.plan import parse


def _errors(**fields: Any) -> dict[str, Any]:
    return {"name": "errors", "indicator": "error_ratio", "max": 0.02, **fields}


def _latency(**fields: Any) -> dict[str, Any]:
    # The tolerance keeps single milliseconds of an idle machine from counting as twice as slow.
    return {
        "name": "latency",
        "indicator": "latency_p95_ms",
        "max_ratio_to_stable": 2.0,
        "tolerance": 50.0,
        "failure_limit": 1,
        **fields,
    }


def _analysis(**fields: Any) -> dict[str, Any]:
    return {"analysis": {"gates": [_errors(**fields), _latency(**fields)]}}


def _quick(min_requests: int) -> dict[str, Any]:
    """Answers within seconds where there is traffic, and waits two minutes for it where there is little."""
    return _analysis(
        window="15s",
        interval="5s",
        count=3,
        min_requests=min_requests,
        on_low_evidence={"wait": "2m", "then": "pause"},
    )


def _patient() -> dict[str, Any]:
    return _analysis(
        window="5m",
        interval="1m",
        count=5,
        failure_limit=1,
        min_requests=200,
        on_no_data={"wait": "10m", "then": "pause"},
        on_low_evidence={"wait": "30m", "then": "pause"},
        on_provider_error={"wait": "10m", "then": "pause"},
    )


DEFAULT = "canary"

BUILT_IN: dict[str, list[dict[str, Any]]] = {
    "canary": [
        {"setWeight": 10},
        {"pause": {"duration": "5s"}},
        _quick(min_requests=20),
        {"setWeight": 50},
        _quick(min_requests=40),
        {"setWeight": 100},
    ],
    "canary-slow": [
        {"setWeight": 5},
        {"pause": {"duration": "5m"}},
        _patient(),
        {"setWeight": 20},
        _patient(),
        {"setWeight": 50},
        _patient(),
        {"pause": {}},
        {"setWeight": 100},
    ],
    "immediate": [{"setWeight": 100}],
}
# The way back to a version that has already carried the traffic: loaded, it takes over at once.
RETURN = [{"setWeight": 100}]


def ensure_defaults(**_: object) -> None:
    """Make the built-in strategies that are missing; what an operator changed stays. Also a post_migrate receiver."""
    for name, steps in BUILT_IN.items():
        Strategy.objects.get_or_create(tenant=None, name=name, defaults={"steps": parse(steps).as_json()})
