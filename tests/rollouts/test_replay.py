"""Replays over a past that a test makes up."""

from typing import Any

import pytest

from console.metrics.source import NoData, Query, Reading
from rollouts.plan import parse
from rollouts.replay import over_past
from tests.rollouts.conftest import GATE, Story
from tests.rollouts.fakes import FakeSource

QUICK = {**GATE, "count": 10, "interval": "10s"}


def steps(*gates: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"setWeight": 10}, {"analysis": {"gates": list(gates)}}, {"setWeight": 100}]


def test_a_gate_that_is_too_strict_for_few_requests_is_found_out(story: Story) -> None:
    """100 requests at 1 % errors, a tenth of them for the canary: one error among ten is 10 %."""
    story.source.requests, story.source.errors = 300, {1: 0.01}
    service = story.versions[1].service
    strict = parse(steps({**QUICK, "max": 0.02}))
    loose = parse(steps({"judge": {"metrics": ["error_ratio"], "max_duration": "2h"}, "interval": "10s"}))
    found = over_past(strict, service, hours=24, starts=20, source=story.source).as_json()
    judged = over_past(loose, service, hours=24, starts=100, source=story.source).as_json()
    assert found["aborted"] >= 15
    assert judged["aborted"] <= 2
    assert judged["promoted"] >= 95
    assert found["sentence"].startswith("Of 20 starts")


def test_the_same_question_has_the_same_answer(story: Story) -> None:
    story.source.requests, story.source.errors = 300, {1: 0.01}
    plan, service = parse(steps(QUICK)), story.versions[1].service
    one, other = (over_past(plan, service, hours=5, starts=5, source=story.source) for _ in range(2))
    assert one == other


def test_a_past_that_nobody_recorded_is_told_apart(story: Story) -> None:
    class Empty(FakeSource):
        def read(self, query: Query, *, at: float | None = None) -> Reading:
            return NoData("no node has reported", 0.0, self.name, "")

    told = over_past(
        parse(steps(QUICK)), story.versions[1].service, hours=1, starts=4, source=Empty()
    ).as_json()
    assert (told["no_history"], told["promoted"]) == (4, 0)


def test_a_rollout_that_would_reach_into_the_future_has_no_history(story: Story) -> None:
    plan = parse([{"setWeight": 10}, {"pause": {"duration": "2h"}}, {"analysis": {"gates": [QUICK]}}])
    told = over_past(plan, story.versions[1].service, hours=1, starts=3, source=story.source).as_json()
    assert told["no_history"] == 3


@pytest.mark.parametrize("weight", [1, 50])
def test_fewer_requests_for_the_canary_mean_less_evidence(story: Story, weight: int) -> None:
    story.source.requests, story.source.errors = 400, {1: 0.0}
    plan = parse([{"setWeight": weight}, {"analysis": {"gates": [{**QUICK, "on_low_evidence": "pause"}]}}])
    told = over_past(plan, story.versions[1].service, hours=2, starts=3, source=story.source).as_json()
    assert told["needs_person" if weight == 1 else "promoted"] == 3
