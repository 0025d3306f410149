"""Stories: tick, replicas get ready, tick, look."""

import pytest

from console.services import leases
from console.tenants.permissions import SYSTEM
from rollouts import actions
from rollouts.models import Decision, Measurement, Rollout
from rollouts.states import Reason, State
from tests.rollouts.conftest import GATE, STEPS, Story, gated


def test_a_good_version_walks_every_step_and_becomes_stable(story: Story) -> None:
    rollout = story.tick_to_end(story.start(2))
    assert (rollout.state, rollout.weight_percent, rollout.step_index) == (State.PROMOTED, 100, 5)
    assert story.target.calls == ["place 2", "shift 2 10", "shift 2 50", "shift 2 100", "install 2"]
    assert story.target.stable == 2
    assert leases.holder("service:file-type") == ""
    assert story.kinds(rollout) == [
        "request", "begin", "place", "shift", "next_step", "next_step", "next_step", "shift", "next_step",
        "shift", "next_step", "promote",
    ]  # fmt: skip


def test_every_revision_has_exactly_one_decision(story: Story) -> None:
    rollout = story.tick_to_end(story.start(2))
    revisions = list(Decision.objects.filter(rollout=rollout).values_list("revision", flat=True))
    assert revisions == list(range(1, rollout.revision + 1))


def test_nothing_is_sent_before_every_replica_is_ready(story: Story) -> None:
    rollout = story.start(2)
    story.target.wanted = 2
    story.tick(rollout, 4)
    assert story.target.calls == ["place 2"]
    assert rollout.message == "Waiting: 0 of 2 replicas of version 2 are ready"
    story.target.ready = 2
    story.tick(rollout)
    assert story.target.calls[-1] == "shift 2 10"


def test_the_clock_of_a_step_starts_when_every_node_has_applied_the_weight(story: Story) -> None:
    rollout = story.start(2)
    story.target.applied = False
    story.tick_until(rollout, lambda row: row.weight_percent == 10)
    story.tick(rollout, 20)
    assert (rollout.step_index, rollout.message) == (0, "Waiting for every node to send 10 %")
    story.target.applied = True
    story.tick(rollout)
    assert rollout.step_index == 1 and rollout.step_started_at == story.clock.at


def test_a_breach_aborts_by_itself_and_the_weight_is_0_within_two_ticks(story: Story) -> None:
    story.source.errors[3] = 0.31
    story.source.requests = 94
    rollout = story.start(3)
    story.tick_until(rollout, lambda row: Measurement.objects.filter(rollout=row, verdict="fail").exists())
    story.tick(rollout)
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.BREACH)
    assert (story.target.canary, story.target.canary_weight, rollout.weight_percent) == (None, 0, 0)
    assert rollout.message == "Aborted: error ratio 31.0 % over 94 requests is above the limit 2.0 %"
    decision = story.last(rollout)
    assert decision.actor == f"rollout:{rollout.pk}"
    assert {key: decision.evidence[key] for key in ("indicator", "value", "n", "limit", "source")} == {
        "indicator": "error_ratio", "value": 0.31, "n": 94, "limit": "2.0 %", "source": "fake",
    }  # fmt: skip
    assert decision.evidence["query"]


def test_an_abort_is_told_to_the_fleet_again_until_it_obeys(story: Story) -> None:
    story.source.errors[3] = 0.31
    rollout = story.start(3)
    story.tick_to_step(rollout, 2)
    story.target.away = True
    story.tick(rollout, 10)
    assert (rollout.state, rollout.settled_at) == (State.ABORTED, None)
    assert story.target.canary_weight == 10
    story.target.away = False
    story.tick(rollout)
    assert rollout.is_settled and story.target.canary is None


def test_a_fault_that_stable_shares_pauses_instead_of_blaming_the_canary(story: Story) -> None:
    story.source.errors = {1: 0.4, 2: 0.5}
    rollout = story.tick_until(story.start(2), lambda row: row.is_waiting_for_person)
    assert rollout.reason == Reason.INCONCLUSIVE
    assert "so is stable with 40.0 %" in rollout.message
    assert story.target.canary_weight == 10


@pytest.mark.parametrize(
    ("state", "reason"),
    [("no_data", "no_data"), ("away", "provider_error"), ("few", "low_evidence")],
)
@pytest.mark.parametrize("then", ["pause", "abort"])
def test_not_knowing_waits_for_its_limit_and_never_promotes(
    story: Story, state: str, reason: str, then: str
) -> None:
    rollout = story.start(2, steps=gated(**{f"on_{reason}": {"wait": "30s", "then": then}}))
    story.tick_to_step(rollout, 2)
    story.source.no_data, story.source.away = state == "no_data", state == "away"
    story.source.requests = 3 if state == "few" else 100
    story.tick(rollout, 30)
    assert (rollout.state, rollout.step_index) == (State.PROGRESSING, 2)
    story.tick(rollout, 8)
    assert rollout.state == (State.PAUSED if then == "pause" else State.ABORTED)
    assert rollout.reason == reason
    assert story.target.canary_weight == (10 if then == "pause" else 0)


def test_data_that_comes_back_in_time_lets_the_gate_pass(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 2)
    story.source.away = True
    story.tick(rollout, 30)
    story.source.away = False
    assert story.tick_to_end(rollout).state == State.PROMOTED
    verdicts = Measurement.objects.filter(rollout=rollout).values_list("verdict", flat=True)
    assert {"provider_error", "pass"} == set(verdicts)


def test_a_window_grows_while_too_few_requests_come(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 2)
    story.source.requests = 3
    story.tick(rollout, 30)
    windows = [query.window_seconds for query in story.source.asked]
    assert windows == sorted(windows) and windows[-1] > 15


def test_no_measurement_reaches_back_before_the_first_request_of_the_canary(story: Story) -> None:
    rollout = story.start(2, steps=gated(window="10m"))
    story.tick_to_step(rollout, 3)
    assert max(query.window_seconds for query in story.source.asked) <= 20


def test_a_version_that_does_not_load_is_aborted_with_the_error(story: Story) -> None:
    rollout = story.start(2)
    story.target.failed = "model.onnx: protobuf parsing failed"
    story.tick_to_end(rollout)
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.LOAD_FAILED)
    assert rollout.message == "Aborted: version 2 does not load: model.onnx: protobuf parsing failed"
    assert story.target.canary is None


def test_one_crash_while_loading_is_forgiven(story: Story) -> None:
    rollout = story.start(2)
    story.tick(rollout, 2)
    story.target.failed = "killed by signal 9"
    story.tick(rollout, 5)
    story.target.failed, story.target.ready = "", 1
    assert story.tick_to_end(rollout).state == State.PROMOTED


def test_replicas_that_never_get_ready_end_in_a_deadline(story: Story) -> None:
    rollout = story.start(2)
    story.tick(rollout, 2)
    story.clock.advance(601)
    story.tick(rollout)
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.LOAD_FAILED)
    assert "0 of 1 replicas of version 2 are ready after 600 s" in rollout.message


def test_a_canary_without_ready_replicas_gets_nothing_until_it_is_back(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 1)
    story.target.ready = 0
    story.tick(rollout)
    assert (story.target.canary_weight, rollout.weight_percent, rollout.outages) == (0, 0, 1)
    assert rollout.state == State.PROGRESSING
    story.target.ready = 1
    story.tick(rollout)
    assert (story.target.canary_weight, rollout.weight_percent) == (10, 10)
    assert story.tick_to_end(rollout).state == State.PROMOTED


def test_a_canary_that_keeps_dying_is_aborted(story: Story) -> None:
    rollout = story.start(2, steps=[{"setWeight": 10}, {"pause": {}}, {"setWeight": 100}])
    story.tick_until(rollout, lambda row: row.is_waiting_for_person)
    actions.resume(rollout, actor=SYSTEM)
    Rollout.objects.filter(pk=rollout.pk).update(step_index=0)
    for _ in range(6):
        story.target.ready = 0
        story.tick(rollout, 2)
        story.target.ready = 1
        if rollout.is_terminal:
            break
        story.tick(rollout)
    story.target.ready = 0
    story.tick(rollout, 3)
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.LOAD_FAILED)


def test_a_weight_that_somebody_changed_is_set_again(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 1)
    story.target.canary_weight = 77
    story.tick(rollout)
    assert story.target.canary_weight == 10


def test_a_controller_that_was_away_for_an_hour_goes_on_without_catching_up(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 2)
    story.clock.advance(3600)
    story.tick(rollout)
    assert Measurement.objects.filter(rollout=rollout).count() == 1
    assert story.tick_to_end(rollout).state == State.PROMOTED


def test_a_tick_of_a_settled_rollout_does_nothing(story: Story) -> None:
    rollout = story.tick_to_end(story.start(2))
    calls = list(story.target.calls)
    story.tick(rollout, 3)
    assert story.target.calls == calls


def test_gates_are_measured_at_their_interval_only(story: Story) -> None:
    rollout = story.start(2, steps=gated(count=4))
    story.tick_to_step(rollout, 2)
    story.tick(rollout, 16)
    assert Measurement.objects.filter(rollout=rollout).count() == 3


def test_the_steps_are_a_copy_that_later_edits_do_not_reach(story: Story) -> None:
    rollout = story.start(2)
    assert rollout.steps[2]["analysis"]["gates"][0]["max"] == GATE["max"]
    assert [next(iter(step)) for step in rollout.steps] == [next(iter(step)) for step in STEPS]
