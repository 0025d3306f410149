"""The decision table: row and world in, one decision out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rollouts import decisions as d
from rollouts.decide import decide
from rollouts.plan import parse
from rollouts.standings import Measured
from rollouts.states import Reason, State
from rollouts.verdicts import Verdict

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PLAN = parse(
    [
        {"setWeight": 10},
        {"pause": {"duration": "60s"}},
        {"analysis": {"gates": [{"name": "errors", "indicator": "error_ratio", "max": 0.02, "interval": "10s"}]}},
        {"pause": {}},
        {"setWeight": 50},
    ]
)  # fmt: skip


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


ROW = d.Progress(
    state=State.PROGRESSING,
    reason=Reason.NONE,
    from_version=1,
    to_version=2,
    step_index=0,
    weight_percent=10,
    moved_at=ago(5),
    step_started_at=ago(5),
    judged_from=ago(5),
    traffic_since=ago(5),
)
WORLD = d.Seen(
    stable_version=1,
    canary_version=2,
    canary_weight=10,
    wanted=1,
    ready=1,
    failed_detail="",
    applied=True,
)
FRESH = {"weight_percent": 0, "traffic_since": None}


def failed(seconds_ago: float) -> Measured:
    return Measured("errors", ago(seconds_ago), Verdict.FAILED, "error ratio 0.5 is above", (("value", 0.5),))


@pytest.mark.parametrize(
    ("row", "world", "expected"),
    [
        # Before it begins
        ({"state": State.QUEUED}, {}, d.Start),
        ({"state": State.QUEUED, "to_version": 1}, {}, d.Promote),
        # Getting the canary there
        (FRESH, {"canary_version": None, "canary_weight": None}, d.Place),
        (FRESH, {"canary_version": 7}, d.Clear),
        (FRESH, {"canary_weight": 0, "ready": 0}, d.Wait),
        (FRESH, {"canary_weight": 0, "ready": 1, "wanted": 2}, d.Wait),
        (FRESH, {"canary_weight": 0}, d.Shift),
        (FRESH, {"canary_weight": 0, "ready": 0, "failed_detail": "bad model"}, d.Wait),
        ({**FRESH, "moved_at": ago(10)}, {"canary_weight": 0, "ready": 0, "failed_detail": "bad"}, d.Abort),
        ({**FRESH, "moved_at": ago(600)}, {"canary_weight": 0, "ready": 0}, d.Abort),
        # The fleet differs from the row
        ({}, {"canary_weight": 11}, d.Shift),
        ({"weight_percent": 0}, {}, d.Shift),
        ({}, {"ready": 0}, d.Shift),
        ({"weight_percent": 0}, {"ready": 0, "canary_weight": 0}, d.Wait),
        ({}, {"ready": 1, "wanted": 2}, d.NextStep),  # some are ready, and traffic flows already
        ({}, {"stable_version": 9}, d.Abort),
        ({}, {"stable_version": 2, "canary_version": None}, d.Promote),
        # The steps
        ({}, {"applied": False}, d.Wait),
        ({"moved_at": ago(600)}, {"applied": False}, d.Abort),
        ({}, {}, d.NextStep),
        ({"step_index": 1, "step_started_at": ago(59)}, {}, d.Wait),
        ({"step_index": 1, "step_started_at": ago(60)}, {}, d.NextStep),
        ({"step_index": 2, "judged_from": ago(9)}, {}, d.Wait),
        ({"step_index": 2, "judged_from": ago(10)}, {}, d.Measure),
        ({"step_index": 2, "judged_from": ago(20)}, {"measured": (failed(5),)}, d.Abort),
        ({"step_index": 3}, {}, d.PauseNow),
        ({"step_index": 4}, {}, d.Shift),
        ({"step_index": 5, "weight_percent": 50}, {"canary_weight": 50}, d.Promote),
        ({"step_index": 5, **FRESH}, {"canary_weight": 0, "ready": 0}, d.Wait),
        ({"step_index": 5, **FRESH}, {"canary_weight": 0}, d.Promote),
        # While it is paused
        ({"state": State.PAUSED, "step_index": 2, "judged_from": ago(99)}, {}, d.Wait),
        ({"state": State.PAUSED}, {"ready": 0}, d.Shift),
        ({"state": State.PAUSED, **FRESH, "moved_at": ago(9999)}, {"ready": 0, "canary_weight": 0}, d.Wait),
        ({"state": State.PAUSED}, {"canary_weight": 0}, d.Shift),
        # After the end
        ({"state": State.ABORTED}, {}, d.Withdraw),
        ({"state": State.ABORTED}, {"canary_version": None}, d.Settle),
        ({"state": State.SUPERSEDED}, {}, d.Withdraw),
        ({"state": State.SUPERSEDED}, {"canary_version": 3}, d.Settle),
        ({"state": State.ABORTED}, {"canary_version": None, "applied": False}, d.Wait),
        ({"state": State.ABORTED, "moved_at": ago(30)}, {"canary_version": None, "applied": False}, d.Settle),
        ({"state": State.SUPERSEDED}, {"canary_version": 3, "applied": False}, d.Settle),
        ({"state": State.PROMOTED}, {"stable_version": 2, "canary_version": None, "applied": False}, d.Wait),
        ({"state": State.PROMOTED}, {}, d.Install),
        ({"state": State.PROMOTED}, {"stable_version": 2, "canary_version": None}, d.Settle),
    ],
)  # fmt: skip
def test_decisions(row: dict[str, Any], world: dict[str, Any], expected: type[d.Decision]) -> None:
    decision = decide(PLAN, replace(ROW, **row), replace(WORLD, **world), NOW)
    assert isinstance(decision, expected), decision


def test_a_canary_without_ready_replicas_gets_weight_0() -> None:
    decision = decide(PLAN, ROW, replace(WORLD, ready=0), NOW)
    assert isinstance(decision, d.Shift) and (decision.to_percent, decision.outage) == (0, True)


def test_an_abort_carries_the_numbers_of_the_measurement() -> None:
    row = replace(ROW, step_index=2, judged_from=ago(20))
    decision = decide(PLAN, row, replace(WORLD, measured=(failed(5),)), NOW)
    assert isinstance(decision, d.Abort)
    assert (decision.reason, decision.sentence) == (Reason.BREACH, "error ratio 0.5 is above")
    assert decision.evidence["value"] == 0.5
    assert decision.evidence["rule"]["max"] == 0.02


def test_load_failures_keep_their_reason() -> None:
    row = replace(ROW, weight_percent=0, traffic_since=None, moved_at=ago(11))
    decision = decide(PLAN, row, replace(WORLD, canary_weight=0, ready=0, failed_detail="no such op"), NOW)
    assert isinstance(decision, d.Abort) and decision.reason is Reason.LOAD_FAILED
    assert "no such op" in decision.sentence
