"""Stories: tick, replicas get ready, tick, look."""

import contextlib
from itertools import count
from typing import Any

import pytest

from console.audit.models import Entry
from console.kit.errors import Conflict
from console.services import leases
from console.tenants.permissions import SYSTEM, process
from rollouts import actions, controller
from rollouts.models import Decision, Measurement, Rollout
from rollouts.record import record
from rollouts.states import Reason, State
from tests.rollouts.conftest import GATE, STEPS, Story, gated
from tests.rollouts.fakes import Crash


def test_a_good_version_walks_every_step_and_becomes_stable(story: Story) -> None:
    rollout = story.tick_to_end(story.start(2))
    assert (rollout.state, rollout.weight_percent, rollout.step_index) == (State.PROMOTED, 100, 5)
    assert story.target.calls == ["place 2", "shift 2 10", "shift 2 50", "shift 2 100", "install 2"]
    assert story.target.stable == 2
    assert leases.holder("service:file-type") == ""
    assert story.kinds(rollout) == [
        "request", "start", "place", "shift", "next_step", "next_step", "next_step", "shift", "next_step",
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
    assert rollout.message == "Aborted: error ratio 0.31 over 94 requests is above the limit 0.02"
    decision = story.last(rollout)
    assert decision.actor == f"rollout:{rollout.pk}"
    assert {key: decision.evidence[key] for key in ("indicator", "value", "n", "limit", "source")} == {
        "indicator": "error_ratio", "value": 0.31, "n": 94, "limit": "0.02", "source": "fake",
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
    assert "so is stable with 0.4" in rollout.message
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


# People


def test_a_pause_of_the_plan_waits_for_a_person_and_goes_on_after_resume(story: Story) -> None:
    steps: list[dict[str, Any]] = [{"setWeight": 10}, {"pause": {}}, {"setWeight": 100}]
    rollout = story.tick_until(story.start(2, steps=steps), lambda row: row.is_waiting_for_person)
    assert rollout.reason == Reason.PAUSE_STEP
    story.tick(rollout, 50)
    assert rollout.step_index == 1
    actions.resume(rollout, actor=process("user:ada"), reason="looks good")
    assert story.last(rollout).sentence == "Resumed by user:ada: looks good"
    assert story.tick_to_end(rollout).state == State.PROMOTED


def test_the_time_a_person_held_it_does_not_count_as_pause_of_the_plan(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 1)
    story.tick(rollout, 2)
    actions.pause(rollout, actor=SYSTEM)
    story.tick(rollout, 100)
    assert (rollout.state, rollout.reason, rollout.step_index) == (State.PAUSED, Reason.MANUAL, 1)
    assert story.target.canary_weight == 10
    actions.resume(rollout, actor=SYSTEM)
    story.tick(rollout, 2)
    assert rollout.step_index == 1
    story.tick(rollout, 2)
    assert rollout.step_index == 2


def test_resuming_after_not_knowing_begins_the_analysis_anew(story: Story) -> None:
    rollout = story.start(2, steps=gated(on_no_data="pause"))
    story.tick_to_step(rollout, 2)
    story.source.no_data = True
    story.tick_until(rollout, lambda row: row.is_waiting_for_person)
    story.source.no_data = False
    actions.resume(rollout, actor=SYSTEM)
    assert story.tick_to_end(rollout).state == State.PROMOTED


def test_promote_skips_every_step_but_waits_for_ready_replicas(story: Story) -> None:
    rollout = story.start(2)
    story.tick(rollout, 2)
    actions.promote(rollout, actor=SYSTEM, reason="hotfix")
    story.tick(rollout, 3)
    assert (rollout.state, story.target.stable) == (State.PROGRESSING, 1)
    story.target.ready = 1
    story.tick(rollout)
    assert (rollout.state, story.target.stable) == (State.PROMOTED, 2)
    assert not Measurement.objects.filter(rollout=rollout).exists()


def test_skip_leaves_one_step_undone(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 2)
    actions.skip(rollout, actor=SYSTEM)
    rollout.refresh_from_db()
    assert rollout.step_index == 3
    assert story.last(rollout).sentence == "Step 3 was skipped by system"


@pytest.mark.parametrize("steps_taken", range(0, 24, 2))
def test_a_person_may_abort_at_any_moment(story: Story, steps_taken: int) -> None:
    rollout = story.start(2)
    for _ in range(steps_taken):
        story.tick(rollout)
        if story.target.canary is not None:
            story.target.ready = 1
    actions.abort(rollout, actor=process("user:ada"), reason="I saw something")
    rollout.refresh_from_db()
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.MANUAL)
    story.tick(rollout)
    assert rollout.is_settled
    assert (story.target.stable, story.target.canary, story.target.canary_weight) == (1, None, 0)
    assert rollout.message == "Aborted by user:ada: I saw something"


def test_a_person_aborts_while_another_operation_holds_the_lease(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 1)
    leases.release(rollout.target, rollout.owner)
    leases.take(rollout.target, "chaos:7")
    story.tick(rollout)
    assert "held by chaos:7" in rollout.message
    actions.abort(rollout, actor=SYSTEM)
    story.tick(rollout)
    assert rollout.is_settled and story.target.canary is None


def test_an_abort_in_the_middle_of_a_tick_wins(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 2)
    story.tick_until(rollout, lambda row: row.step_index == 3)

    def abort_once() -> None:
        story.target.before_look = None
        actions.abort(Rollout.objects.get(pk=rollout.pk), actor=SYSTEM)

    story.target.before_look = abort_once  # after the tick has read its row
    story.tick(rollout)
    story.tick(rollout)
    assert (rollout.state, story.target.canary) == (State.ABORTED, None)


def test_a_finished_rollout_cannot_be_aborted(story: Story) -> None:
    rollout = story.tick_to_end(story.start(2))
    with pytest.raises(Conflict):
        actions.abort(rollout, actor=SYSTEM)


def test_a_retry_is_a_new_rollout_and_the_old_record_stays(story: Story) -> None:
    story.source.errors[3] = 0.31
    old = story.tick_to_end(story.start(3))
    story.source.errors[3] = 0.0
    new = actions.retry(old, actor=SYSTEM)
    assert (new.retry_of_id, new.steps) == (old.pk, old.steps)
    assert story.tick_to_end(new).state == State.PROMOTED
    old.refresh_from_db()
    assert old.state == State.ABORTED


def test_every_verb_and_every_end_leaves_an_audit_row(story: Story) -> None:
    rollout = story.start(2)
    story.tick_to_step(rollout, 1)
    actions.pause(rollout, actor=process("user:ada"), reason="lunch")
    actions.resume(rollout, actor=process("user:ada"))
    story.tick_to_end(rollout)
    rows = Entry.objects.filter(target=f"rollout:{rollout.pk}").order_by("pk")
    assert [(row.actor, row.verb) for row in rows if row.actor == "user:ada"] == [
        ("user:ada", "rollout.pause"), ("user:ada", "rollout.resume"),
    ]  # fmt: skip
    assert rows[0].verb == "rollout.start"
    pause = rows.get(verb="rollout.pause")
    assert (pause.reason, pause.tenant) == ("lunch", "platform")
    assert pause.before == {"state": "progressing"} and (pause.after or {})["state"] == "paused"
    assert rows[rows.count() - 1].verb == "rollout.promote"


# A newer version


def test_a_newer_version_supersedes_and_is_compared_with_the_original_stable(story: Story) -> None:
    old = story.start(2)
    story.tick_to_step(old, 1)
    new = story.start(3)
    old.refresh_from_db()
    assert (old.state, old.reason) == (State.SUPERSEDED, Reason.NEWER_VERSION)
    assert new.from_version == story.versions[1]
    story.tick(new)
    assert new.message == f"Waiting for rollout {old.pk} of the same service to end"
    story.tick(old)
    assert story.target.canary is None
    assert story.tick_to_end(new).state == State.PROMOTED
    assert (story.target.stable, story.target.canary) == (3, None)


def test_a_newer_version_waits_behind_one_that_wants_to_finish(story: Story) -> None:
    old = story.start(2, on_new_version="queue")
    new = story.start(3)
    story.tick(new, 3)
    assert new.state == State.QUEUED
    story.tick_to_end(old)
    assert (old.state, story.target.stable) == (State.PROMOTED, 2)
    story.tick(new)
    assert (
        new.from_version == story.versions[2]
    )  # what it replaces now, not what was stable when it was asked for
    assert story.tick_to_end(new).state == State.PROMOTED
    assert story.target.stable == 3


def test_a_rollout_that_rejects_others_refuses_a_newer_version(story: Story) -> None:
    old = story.start(2, on_new_version="reject")
    with pytest.raises(Conflict) as refused:
        story.start(3)
    assert f"Rollout {old.pk}" in refused.value.detail


def test_going_back_to_stable_skips_every_step(story: Story) -> None:
    old = story.start(2)
    story.tick_to_step(old, 1)
    back = story.start(1)
    story.tick(old)
    story.tick(back, 2)
    assert (back.state, back.is_settled, story.target.stable, story.target.canary) == (
        State.PROMOTED, True, 1, None,
    )  # fmt: skip
    assert story.kinds(back) == ["request", "promote"]


def test_the_stable_version_alone_is_refused(story: Story) -> None:
    with pytest.raises(Conflict):
        story.start(1)


def test_aborting_one_that_waits_leaves_the_running_canary_of_the_same_version_alone(story: Story) -> None:
    running = story.start(2, on_new_version="queue")
    story.tick_to_step(running, 1)
    waiting = story.start(2)
    actions.abort(waiting, actor=SYSTEM)
    story.tick(waiting)
    assert waiting.is_settled and story.target.canary == 2


# Death of the controller


_POINTS = [f"{when} {call}" for when in ("before", "after") for call in ("place", "shift", "install")]


@pytest.mark.parametrize("point", _POINTS)
def test_a_controller_killed_at_any_write_to_the_fleet_ends_the_same(story: Story, point: str) -> None:
    rollout = story.start(2)
    story.target.crash_at = point
    story.crash(rollout)
    story.tick_to_end(rollout)
    assert (rollout.state, story.target.stable, story.target.canary) == (State.PROMOTED, 2, None)
    assert leases.holder(rollout.target) == ""


@pytest.mark.parametrize("point", ["before withdraw", "after withdraw"])
def test_a_controller_killed_while_it_withdraws_ends_aborted(story: Story, point: str) -> None:
    story.source.errors[3] = 0.5
    rollout = story.start(3)
    story.target.crash_at = point
    story.crash(rollout)
    story.tick_to_end(rollout)
    assert (rollout.state, story.target.stable, story.target.canary) == (State.ABORTED, 1, None)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 12, 2))
def test_a_controller_killed_around_any_write_to_the_database_ends_the_same(
    story: Story, monkeypatch: pytest.MonkeyPatch, nth: int, when: str, version: int
) -> None:
    story.source.errors[3] = 0.5
    rollout = story.start(version)
    calls = count(1)

    def dying(*args: Any, **kwargs: Any) -> None:
        fatal = next(calls) == nth
        if fatal and when == "before":
            raise Crash
        record(*args, **kwargs)
        if fatal:
            raise Crash

    monkeypatch.setattr(controller, "record", dying)
    with contextlib.suppress(Crash):
        story.tick_to_end(rollout)
    story.tick_to_end(rollout)
    end = (State.PROMOTED, 2) if version == 2 else (State.ABORTED, 1)
    assert (rollout.state, story.target.stable) == end
    assert story.target.canary is None and leases.holder(rollout.target) == ""


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
