"""Stories over a frozen clock: a controller, a fleet and a source that do what each story says."""

from datetime import timedelta
from typing import Any

import pytest

from console.kit import clock
from console.tenants.permissions import SYSTEM
from rollouts import actions, watch
from rollouts.models import Measurement, Rollout
from rollouts.states import Reason, State
from rollouts.verdicts import Verdict
from tests import factories
from tests.rollouts.conftest import GATE, Story, gated

JUDGE: dict[str, Any] = {
    "name": "judge",
    "judge": {"metrics": ["error_ratio"], "max_duration": "5m"},
    "interval": "5s",
    "min_requests": 50,
}


def judged(*, steps: list[dict[str, Any]] | None = None, **changes: Any) -> list[dict[str, Any]]:
    return [{"setWeight": 20}, {"analysis": {"gates": [{**JUDGE, **changes}]}}, *(steps or [])]


def beside(*gates: dict[str, Any], required: bool = False, **options: Any) -> dict[str, Any]:
    return {
        "steps": [{"setWeight": 20}, {"pause": {"duration": "30s"}}, {"setWeight": 50}],
        "background": {"gates": list(gates), "required": required},
        **options,
    }


def test_the_judge_promotes_an_equal_version_and_says_why(story: Story) -> None:
    story.source.requests, story.source.errors = 400, {1: 0.02, 2: 0.02}
    rollout = story.tick_to_end(story.start(2, steps=judged()))
    assert (rollout.state, rollout.reason) == (State.PROMOTED, Reason.NONE)
    last = Measurement.objects.filter(rollout=rollout).latest("pk")
    assert last.verdict == Verdict.PASSED
    assert "less than 2 times as many" in last.detail
    assert last.evidence["e_acceptable"] >= last.evidence["e_acceptable_limit"]


def test_the_judge_aborts_a_worse_version_early(story: Story) -> None:
    story.source.requests, story.source.errors = 100, {1: 0.01, 2: 0.2}
    rollout = story.tick_to_end(story.start(2, steps=judged()))
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.BREACH)
    assert "times as many" in rollout.message
    evidence = story.last(rollout).evidence
    assert evidence["e_worse"] >= evidence["e_worse_limit"] == 100.0
    assert Measurement.objects.filter(rollout=rollout).count() <= 3


def test_the_judge_without_errors_on_either_side_pauses_when_its_time_is_over(story: Story) -> None:
    rollout = story.start(2, steps=judged())
    story.tick_until(rollout, lambda row: row.state == State.PAUSED, most=400)
    assert rollout.reason == Reason.LOW_EVIDENCE
    assert "not decided yet" in rollout.message


def test_a_floor_lets_the_judge_accept_a_version_without_any_error(story: Story) -> None:
    story.source.requests = 200
    steps = judged(judge={**JUDGE["judge"], "floor": 0.01})
    rollout = story.tick_to_end(story.start(2, steps=steps))
    assert rollout.state == State.PROMOTED
    assert "below 1.0 %" in Measurement.objects.filter(rollout=rollout).latest("pk").detail


def test_evidence_goes_on_through_the_steps(story: Story) -> None:
    story.source.requests, story.source.errors = 30, {1: 0.04, 2: 0.04}
    again = {"analysis": {"gates": [JUDGE]}}
    rollout = story.start(2, steps=judged(steps=[{"setWeight": 50}, again]))
    story.tick_to_end(rollout)
    in_first = Measurement.objects.filter(rollout=rollout, step_index=1).count()
    in_second = Measurement.objects.filter(rollout=rollout, step_index=3).count()
    assert rollout.state == State.PROMOTED
    assert in_second == 1 < in_first


def test_several_metrics_share_the_chance_of_a_false_alarm(story: Story) -> None:
    story.source.requests, story.source.errors = 400, {1: 0.02, 2: 0.02}
    story.source.slow = {1: 0.05, 2: 0.4}
    judge = {"metrics": ["error_ratio", "slow_share"], "objective_ms": 100, "max_duration": "5m"}
    rollout = story.tick_to_end(story.start(2, steps=judged(judge=judge)))
    assert rollout.state == State.ABORTED
    assert "slow answers" in rollout.message
    assert story.last(rollout).evidence["alpha"] == 0.005


def test_gates_beside_the_steps_abort_during_a_pause(story: Story) -> None:
    rollout = start(story, beside({**GATE, "count": None}))
    story.tick_to_step(rollout, 1)
    story.source.errors = {2: 0.5}
    story.tick_to_end(rollout)
    assert (rollout.state, rollout.reason, rollout.step_index) == (State.ABORTED, Reason.BREACH, 1)


def start(story: Story, strategy: dict[str, Any] | None, version: int = 2) -> Rollout:
    wanted = actions.Wanted(story.versions[1].service, story.versions[version], strategy)
    return actions.start(wanted, actor=SYSTEM)


def test_gates_beside_the_steps_are_asked_once_requests_flow_and_not_before(story: Story) -> None:
    rollout = start(story, beside({**GATE, "count": None}))
    story.target.applied = False
    story.tick_until(rollout, lambda row: row.weight_percent == 20)
    story.tick(rollout, 20)
    assert not Measurement.objects.filter(rollout=rollout).exists()
    story.target.applied = True
    story.tick(rollout, 8)
    assert Measurement.objects.filter(rollout=rollout).count() == 1


def test_not_knowing_beside_the_steps_never_promotes(story: Story) -> None:
    rollout = start(story, beside({**GATE, "count": None, "on_no_data": {"wait": "10m", "then": "pause"}}))
    story.tick_to_step(rollout, 1)
    story.source.no_data = True
    story.tick_until(rollout, lambda row: row.message.startswith("Waiting to promote"))
    story.tick_until(rollout, lambda row: row.state == State.PAUSED, most=700)
    assert rollout.reason == Reason.NO_DATA


def test_a_required_judge_has_to_know_before_the_promotion(story: Story) -> None:
    story.source.requests, story.source.errors = 10, {1: 0.02, 2: 0.02}
    rollout = start(story, beside(JUDGE, required=True))
    story.tick_until(rollout, lambda row: row.message.startswith("Waiting to promote"), most=300)
    assert rollout.state == State.PROGRESSING
    story.source.requests, story.source.errors = 5000, {1: 0.02, 2: 0.02}
    story.tick_to_end(rollout)
    assert rollout.state == State.PROMOTED


def test_resuming_after_the_background_did_not_know_gives_it_a_fresh_start(story: Story) -> None:
    gate = {**GATE, "count": None, "on_no_data": {"wait": "5s", "then": "pause"}}
    rollout = start(story, beside(gate))
    story.tick_to_step(rollout, 1)
    story.source.no_data = True
    story.tick_until(rollout, lambda row: row.state == State.PAUSED)
    story.source.no_data = False
    actions.resume(rollout, actor=SYSTEM)
    story.tick_to_end(rollout)
    assert rollout.state == State.PROMOTED


def test_a_dry_run_gate_is_measured_and_never_counts(story: Story) -> None:
    story.source.errors = {2: 0.9}
    rollout = story.tick_to_end(story.start(2, steps=gated(dry_run=True)))
    assert rollout.state == State.PROMOTED
    assert set(Measurement.objects.filter(rollout=rollout).values_list("verdict", flat=True)) == {"fail"}


def test_a_failing_gate_may_pause_instead(story: Story) -> None:
    story.source.errors = {2: 0.9}
    rollout = story.start(2, steps=gated(on_fail="pause"))
    story.tick_until(rollout, lambda row: row.state == State.PAUSED)
    assert rollout.reason == Reason.BREACH


def test_a_gate_may_go_on_without_an_answer_where_it_was_told_to(story: Story) -> None:
    story.source.away = True
    rollout = story.start(2, steps=gated(on_provider_error={"wait": "10s", "then": "continue"}))
    story.tick_to_end(rollout)
    assert rollout.state == State.PROMOTED


def test_errors_in_a_row_are_forgiven_by_number(story: Story) -> None:
    story.source.away = True
    rollout = story.start(2, steps=gated(error_limit=2, on_provider_error="abort"))
    story.tick_to_end(rollout)
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.PROVIDER_ERROR)
    assert Measurement.objects.filter(rollout=rollout).count() == 3


def test_a_query_with_conditions_judges(story: Story) -> None:
    gate = {"name": "custom", "query": "up", "success": "result[0] >= 1", "interval": "5s", "count": 2}
    story.source.answers = {"up": [1.0]}
    steps: list[dict[str, Any]] = [{"setWeight": 10}, {"analysis": {"gates": [gate]}}]
    assert story.tick_to_end(story.start(2, steps=steps)).state == State.PROMOTED
    story.source.answers = {"up": [0.0]}
    rollout = story.tick_to_end(story.start(3, steps=steps))
    assert (rollout.state, rollout.message) == (
        State.ABORTED,
        "Aborted: custom: [0] fails: not (result[0] >= 1)",
    )


def test_an_empty_answer_is_no_data_and_not_a_breach(story: Story) -> None:
    gate = {
        "name": "custom",
        "query": "up",
        "success": "result[0] >= 1",
        "interval": "5s",
        "on_no_data": "pause",
    }
    rollout = story.start(2, steps=[{"setWeight": 10}, {"analysis": {"gates": [gate]}}])
    story.tick_until(rollout, lambda row: row.state == State.PAUSED)
    assert rollout.reason == Reason.NO_DATA


def test_more_weight_waits_for_the_replicas_it_needs(story: Story) -> None:
    story.target.stable_replicas = 4
    steps: list[dict[str, Any]] = [{"setCanaryScale": {"replicas": 1}}, {"setWeight": 20}, {"setWeight": 100}]
    rollout = story.start(2, steps=steps)
    story.tick_until(rollout, lambda row: row.weight_percent == 20)
    story.target.ready = 1
    story.tick(rollout, 30)
    assert rollout.weight_percent == 20
    assert rollout.message == "Waiting for room: 100 % need 4 ready replicas, there are 1"
    assert story.target.replicas == 4
    story.tick_to_end(rollout)
    assert rollout.state == State.PROMOTED


def test_tenants_and_headers_reach_the_new_version_before_anybody_else(story: Story) -> None:
    match = [{"headerName": "X-Beta", "headerValue": {"exact": "yes"}}]
    steps: list[dict[str, Any]] = [
        {"setTenantRoute": {"tenants": ["acme"]}},
        {"setHeaderRoute": {"name": "beta", "match": match}},
        {"analysis": {"gates": [GATE]}},
        {"setTenantRoute": {"tenants": []}},
        {"setWeight": 50},
    ]
    rollout = story.tick_to_step(story.start(2, steps=steps), 2)
    assert story.target.routing.tenants == ("acme",)
    assert [one.header for one in story.target.routing.matches] == ["x-beta"]
    assert rollout.traffic_since is not None
    story.tick_to_step(rollout, 4)
    assert not story.target.routing.tenants
    story.tick_to_end(rollout)
    assert not story.target.routing.sends


def test_a_shadow_that_disagrees_aborts_before_any_client_sees_the_version(story: Story) -> None:
    gate = {**GATE, "name": "agreement", "indicator": "agreement", "min": 0.99}
    del gate["max"]
    experiment = {"experiment": {"percentage": 100, "duration": "30s", "gates": [gate]}}
    story.source.agreement = 0.4
    rollout = story.tick_to_end(story.start(2, steps=[experiment, {"setWeight": 50}]))
    assert (rollout.state, rollout.reason, story.target.canary_weight) == (State.ABORTED, Reason.BREACH, 0)
    assert "agreement with stable 40.0 %" in rollout.message


def test_an_experiment_takes_its_whole_time_and_then_the_shadow_stops(story: Story) -> None:
    gate = {**GATE, "name": "agreement", "indicator": "agreement", "min": 0.99}
    del gate["max"]
    experiment = {"experiment": {"percentage": 20, "duration": "60s", "gates": [gate]}}
    rollout = story.start(2, steps=[experiment, {"setWeight": 50}])
    story.tick_until(rollout, lambda row: story.target.routing.mirror_percent == 20)
    began = clock.now()
    story.tick_to_step(rollout, 1)
    assert clock.now() - began >= timedelta(seconds=58)
    story.tick_until(rollout, lambda row: story.target.routing.mirror_percent == 0)
    assert not rollout.is_terminal


def test_a_step_that_takes_too_long_ends_as_the_plan_says(story: Story) -> None:
    story.source.no_data = True
    steps = gated(on_no_data={"wait": "1h", "then": "pause"})
    rollout = start(story, {"steps": steps, "deadline": {"step": "60s", "then": "pause"}})
    story.tick_until(rollout, lambda row: row.state == State.PAUSED)
    assert (rollout.reason, rollout.message) == (Reason.DEADLINE, "Paused: step 3 took longer than 1m")


def test_a_rollout_that_takes_too_long_is_aborted(story: Story) -> None:
    strategy = {"steps": [{"setWeight": 10}, {"pause": {"duration": "1h"}}], "deadline": {"rollout": "2m"}}
    rollout = story.tick_to_end(start(story, strategy))
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.DEADLINE)


WATCHED: dict[str, Any] = {
    "steps": [{"setWeight": 100}],
    "watch": {"duration": "60s", "gates": [{**GATE, "count": None}]},
}


def watch_for(story: Story, rollout: Rollout, seconds: int) -> Rollout:
    for _ in range(seconds):
        story.clock.advance(1)
        watch.tick(rollout.pk, source=story.source)
    rollout.refresh_from_db()
    return rollout


def promoted_and_watched(story: Story) -> Rollout:
    rollout = story.tick_to_end(start(story, WATCHED))
    assert rollout.state == State.PROMOTED
    assert story.target.warm_seconds == 60.0
    # The fake fleet keeps no placements; the watch reads them.
    factories.make_stable(story.versions[2])
    return rollout


def test_a_good_version_is_kept_when_its_watch_is_over(story: Story) -> None:
    rollout = watch_for(story, promoted_and_watched(story), 70)
    assert (rollout.watch_outcome, rollout.state) == ("kept", State.PROMOTED)


def test_a_version_that_breaks_after_its_promotion_is_replaced_by_the_one_before(story: Story) -> None:
    rollout = watch_for(story, promoted_and_watched(story), 10)
    story.source.errors = {2: 0.5}
    rollout = watch_for(story, rollout, 10)
    assert rollout.watch_outcome == "returned"
    back = Rollout.objects.latest("pk")
    assert (back.to_version.number, back.created_by) == (1, rollout.owner)
    assert rollout.message.startswith(f"Going back to version 1 by rollout {back.pk}: error ratio 50.0 %")
    story.target.stable = 2
    assert story.tick_to_end(back).state == State.PROMOTED


def test_no_data_after_the_promotion_undoes_nothing(story: Story) -> None:
    rollout = promoted_and_watched(story)
    story.source.no_data = True
    assert watch_for(story, rollout, 70).watch_outcome == "kept"


def test_a_newer_stable_version_ends_the_watch(story: Story) -> None:
    rollout = promoted_and_watched(story)
    factories.make_stable(story.versions[3])
    assert watch_for(story, rollout, 2).watch_outcome == "cancelled"


def test_the_way_back_to_a_version_that_was_stable_is_short(story: Story) -> None:
    story.tick_to_end(story.start(2))
    factories.make_stable(story.versions[2])
    rollout = start(story, None, version=1)
    assert (rollout.strategy_name, rollout.steps) == ("return", [{"setWeight": 100}])


@pytest.mark.parametrize("then", ["abort", "pause"])
def test_low_evidence_has_its_own_consequence(story: Story, then: str) -> None:
    story.source.requests = 3
    rollout = story.start(2, steps=gated(on_low_evidence=then))
    story.tick_until(rollout, lambda row: row.state in (State.PAUSED, State.ABORTED))
    assert (rollout.state, rollout.reason) == (
        State.ABORTED if then == "abort" else State.PAUSED,
        Reason.LOW_EVIDENCE,
    )


def test_the_harm_to_a_small_tenant_stops_what_the_whole_would_hide(story: Story) -> None:
    story.source.requests, story.source.errors = 2000, {1: 0.01, 2: 0.011}
    story.source.of_tenants = {"acme": {1: 0.01, 2: 0.2}}
    judge = {"metrics": ["error_ratio"], "max_duration": "5m", "strata": ["acme", "globex"]}
    rollout = story.tick_to_end(story.start(2, steps=judged(judge=judge)))
    assert (rollout.state, rollout.reason) == (State.ABORTED, Reason.BREACH)
    assert rollout.message.startswith("Aborted: tenant acme: ")
    assert story.last(rollout).evidence["alpha"] == pytest.approx(0.01 / 3)


def test_a_decision_says_what_another_policy_would_have_said(story: Story) -> None:
    story.source.errors = {2: 0.5}
    rollout = story.tick_to_end(story.start(2, steps=gated(count=5)))
    evidence = story.last(rollout).evidence
    assert evidence["otherwise"] == "with failure_limit 1 it would have gone on"
    assert (evidence["rule"]["max"], evidence["value"], evidence["n"]) == (0.02, 0.5, 100.0)


def test_an_hour_of_downtime_is_followed_by_one_measurement_and_no_catching_up(story: Story) -> None:
    rollout = story.tick_to_step(story.start(2, steps=gated(count=50)), 2)
    story.tick(rollout, 12)
    before = Measurement.objects.filter(rollout=rollout).count()
    story.clock.advance(3600)
    story.tick(rollout)
    assert Measurement.objects.filter(rollout=rollout).count() == before + 1
