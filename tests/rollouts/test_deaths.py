"""Stories of controllers that die in the middle of a tick."""

import contextlib
from itertools import count
from typing import Any

import pytest

from console.services import leases
from rollouts import controller
from rollouts.record import record
from rollouts.states import State
from tests.rollouts.conftest import Story
from tests.rollouts.fakes import Crash

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
