"""Stories of people's verbs and of newer versions that arrive meanwhile."""

from dataclasses import replace
from typing import Any

import pytest

from console.audit.models import Entry
from console.kit.errors import Conflict, Forbidden
from console.services import leases
from console.tenants.permissions import SYSTEM, Actor, process
from rollouts import actions
from rollouts.models import Measurement, Rollout
from rollouts.states import Reason, State
from tests.rollouts.conftest import Story, gated


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


def limited(most: int) -> Actor:
    return replace(SYSTEM, name="token:ci", most_weight_percent=most)


def test_a_limited_token_may_move_a_version_only_as_far_as_its_limit(story: Story) -> None:
    steps: list[dict[str, Any]] = [{"setWeight": 10}, {"pause": {}}, {"setWeight": 50}, {"pause": {}}]
    wanted = actions.Wanted(story.versions[1].service, story.versions[2], steps)
    rollout = actions.start(wanted, actor=limited(10))
    story.tick_until(rollout, lambda row: row.state == State.PAUSED)
    with pytest.raises(Forbidden, match="at most 10 %; without a pause for a person this would reach 50 %"):
        actions.resume(rollout, actor=limited(10))
    with pytest.raises(Forbidden, match="would reach 100 %"):
        actions.promote(rollout, actor=limited(50))
    actions.resume(rollout, actor=limited(50))
    story.tick_until(rollout, lambda row: row.state == State.PAUSED)
    actions.abort(rollout, actor=limited(10))


def test_a_limited_token_cannot_start_what_goes_further_by_itself(story: Story) -> None:
    wanted = actions.Wanted(story.versions[1].service, story.versions[2], [{"setWeight": 10}])
    with pytest.raises(Forbidden, match="would reach 100 %") as caught:
        actions.start(wanted, actor=limited(10))
    assert caught.value.code == "weight_limited"
