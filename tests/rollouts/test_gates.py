"""Verdicts of one measurement, and what several of them amount to."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.metrics.source import Indicator, NoData, ProviderError, Reading, Value
from rollouts.gates import Gate
from rollouts.judge import judge, wants_stable
from rollouts.standings import Measured, Outcome, assess, worst
from rollouts.verdicts import Do, Policy, Verdict

START = datetime(2026, 1, 1, tzinfo=UTC)
ERRORS = Gate("errors", Indicator.ERROR_RATIO, maximum=0.02, min_requests=20)
LATENCY = Gate("latency", Indicator.LATENCY_P95, max_ratio_to_stable=2.0, tolerance=50.0, min_requests=20)
GREY = Gate("errors", Indicator.ERROR_RATIO, maximum=0.02, fail_above=0.1, min_requests=20)
FLOOR = Gate("rate", Indicator.REQUEST_RATE, minimum=1.0, min_requests=0)
AWAY = ProviderError("connection refused", 0, "prometheus", "q")
SILENT = NoData("no requests in the last 15 s", 0, "prometheus", "q")


def value(number: float, requests: float = 100) -> Value:
    return Value(number, requests, 0, "prometheus", "q")


@pytest.mark.parametrize(
    ("gate", "canary", "stable", "verdict", "sentence"),
    [
        (ERRORS, value(0.0), None, "pass", "error ratio 0 % over 100 requests is within the limit 2.0 %"),
        (ERRORS, value(0.02), None, "pass", "error ratio 2.0 % over 100 requests is within the limit 2.0 %"),
        (ERRORS, value(0.31, 94), value(0.0), "fail", "error ratio 31.0 % over 94 requests is above the limit 2.0 %"),
        (ERRORS, value(0.31, 94), SILENT, "fail", "error ratio 31.0 % over 94 requests is above the limit 2.0 %"),
        (ERRORS, value(0.31, 94), value(0.4), "inconclusive", "so is stable with 40.0 %: a fault they share"),
        (ERRORS, value(0.31, 94), value(0.4, 5), "fail", "above the limit"),
        (ERRORS, value(1.0, 19), None, "low_evidence", "only 19 requests of the 20 needed to judge the error ratio"),
        (ERRORS, SILENT, None, "no_data", "error ratio: no data: no requests in the last 15 s"),
        (ERRORS, AWAY, None, "provider_error", "error ratio: no answer: connection refused"),
        (GREY, value(0.05), None, "inconclusive", "is beyond the limit 2.0 %, yet not failing"),
        (GREY, value(0.11), None, "fail", "above the limit 2.0 %"),
        (LATENCY, value(41), value(40), "pass", "p95 latency 41 ms over 100 requests is within the limit 90 ms"),
        (LATENCY, value(89), value(40), "pass", "stable has 40 ms"),
        (LATENCY, value(91), value(40), "fail", "is above the limit 90 ms (2 times stable), stable has 40 ms"),
        (LATENCY, value(201), value(100), "fail", "limit 200 ms"),
        (LATENCY, value(41), value(40, 3), "low_evidence", "stable answered only 3 requests of the 20"),
        (LATENCY, value(41), SILENT, "no_data", "no data about stable"),
        (LATENCY, value(41), AWAY, "provider_error", "no answer about stable"),
        (LATENCY, value(41), None, "no_data", "there is no stable version"),
        (FLOOR, value(0.5, 0), None, "fail", "request rate 0.5/s over 0 requests is below the limit 1/s"),
        (FLOOR, value(2.0, 0), None, "pass", "within the limit at least 1/s"),
    ],
)  # fmt: skip
def test_one_measurement(
    gate: Gate, canary: Reading, stable: Reading | None, verdict: str, sentence: str
) -> None:
    judgement = judge(gate, canary, stable)
    assert judgement.verdict == verdict
    assert sentence in judgement.sentence


def test_stable_is_asked_for_a_comparison_and_on_a_breach_only() -> None:
    assert wants_stable(LATENCY, value(1))
    assert wants_stable(ERRORS, value(0.5))
    assert not wants_stable(ERRORS, value(0.01))
    assert not wants_stable(ERRORS, SILENT)


def run(gate: Gate, verdicts: str, *, later: float = 0) -> Any:
    """Each letter is a measurement ten seconds after the one before: p, f, i, n, e (provider error), l."""
    words = dict(
        zip(
            "pfinel",
            ["pass", "fail", "inconclusive", "no_data", "provider_error", "low_evidence"],
            strict=True,
        )
    )
    measured = [
        Measured(gate.name, START + timedelta(seconds=10 * (n + 1)), Verdict(words[letter]), f"number {n}")
        for n, letter in enumerate(verdicts)
    ]
    now = START + timedelta(seconds=10 * len(verdicts) + later)
    return assess(gate, measured, started_at=START, now=now)


def gate(*, count: int = 3, failure_limit: int = 0, wait: float = 30, then: Do = Do.PAUSE) -> Gate:
    unknown = (Verdict.NO_DATA, Verdict.LOW_EVIDENCE, Verdict.INCONCLUSIVE, Verdict.PROVIDER_ERROR)
    policies = tuple((verdict, Policy(wait, then)) for verdict in unknown)
    return Gate(
        "g", Indicator.ERROR_RATIO, maximum=0.02, count=count, failure_limit=failure_limit, policies=policies,
        interval_seconds=10,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "failure_limit", "outcome", "reason"),
    [
        ("", 0, "running", ""),
        ("pp", 0, "running", ""),
        ("ppp", 0, "passed", ""),
        ("f", 0, "abort", "breach"),
        ("pppf", 0, "abort", "breach"),  # passed before, broke later
        ("pf", 1, "running", ""),
        ("pfp", 1, "passed", ""),
        ("pfpf", 1, "abort", "breach"),
        ("nnn", 0, "running", "no_data"),
        ("nnnn", 0, "pause", "no_data"),
        ("nele", 0, "pause", "provider_error"),  # one unknown after another is one streak
        ("nnpnn", 0, "running", "no_data"),  # what is known in between ends the streak
        ("pppn", 0, "running", "no_data"),  # not knowing now outweighs having passed
        ("llll", 0, "pause", "low_evidence"),
        ("iiii", 0, "pause", "inconclusive"),
        ("nnnnf", 0, "abort", "breach"),
    ],
)
def test_several_measurements(verdicts: str, failure_limit: int, outcome: str, reason: str) -> None:
    standing = run(gate(failure_limit=failure_limit), verdicts)
    assert (standing.outcome, standing.reason) == (outcome, reason)


def test_unknown_measurements_never_add_up_to_a_pass() -> None:
    for letter in "inel":
        for number in range(1, 40):
            assert run(gate(count=1, wait=1e6), letter * number).outcome is Outcome.RUNNING


def test_a_policy_may_abort() -> None:
    assert run(gate(wait=0, then=Do.ABORT), "n").outcome is Outcome.ABORT


def test_the_wait_is_measured_by_the_clock_and_not_by_measurements() -> None:
    assert run(gate(wait=30), "n", later=29).outcome is Outcome.RUNNING
    assert run(gate(wait=30), "n", later=30).outcome is Outcome.PAUSE


def test_the_next_measurement_is_due_one_interval_after_the_last() -> None:
    assert run(gate(), "").next_at == START + timedelta(seconds=10)
    assert run(gate(), "pp").next_at == START + timedelta(seconds=30)


def test_the_worst_gate_decides() -> None:
    standings = [run(gate(), verdicts) for verdicts in ("ppp", "pp", "nnnn", "f")]
    assert worst(standings).outcome is Outcome.ABORT
    assert worst(standings[:3]).outcome is Outcome.PAUSE
    assert worst(standings[:2]).outcome is Outcome.RUNNING
    assert worst(standings[:1]).outcome is Outcome.PASSED
