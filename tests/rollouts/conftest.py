from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from console.tenants.permissions import SYSTEM
from inference.models import Version
from rollouts import actions
from rollouts.controller import World, tick
from rollouts.models import Decision, Rollout
from tests import factories
from tests.conftest import FrozenClock
from tests.rollouts.fakes import Crash, FakeSource, FakeTarget

GATE: dict[str, Any] = {
    "name": "errors",
    "indicator": "error_ratio",
    "max": 0.02,
    "window": "15s",
    "interval": "5s",
    "count": 2,
    "min_requests": 20,
}
STEPS: list[dict[str, Any]] = [
    {"setWeight": 10},
    {"pause": {"duration": "5s"}},
    {"analysis": {"gates": [GATE]}},
    {"setWeight": 50},
    {"setWeight": 100},
]


def gated(**changes: Any) -> list[dict[str, Any]]:
    """STEPS with another gate."""
    return [*STEPS[:2], {"analysis": {"gates": [{**GATE, **changes}]}}, *STEPS[3:]]


@dataclass
class Story:
    """A service with versions 1 to 3, a fake fleet, a fake source, and a clock that moves one second a tick."""

    clock: FrozenClock
    target: FakeTarget = field(default_factory=FakeTarget)
    source: FakeSource = field(default_factory=FakeSource)
    versions: dict[int, Version] = field(default_factory=dict)

    def start(self, version: int = 2, *, steps: list[dict[str, Any]] | None = None, **fields: Any) -> Rollout:
        wanted = actions.Wanted(
            self.versions[1].service, self.versions[version], steps if steps is not None else STEPS, **fields
        )
        return actions.start(wanted, actor=SYSTEM)

    def tick(self, rollout: Rollout, times: int = 1) -> Rollout:
        for _ in range(times):
            self.clock.advance(1)
            tick(rollout.pk, world=World(self.target, self.source))
        rollout.refresh_from_db()
        return rollout

    def tick_until(self, rollout: Rollout, true: Callable[[Rollout], bool], *, most: int = 200) -> Rollout:
        """A replica gets ready two ticks after it was asked for, unless it fails."""
        for _ in range(most):
            self.tick(rollout)
            if true(rollout):
                return rollout
            if self.target.canary is not None and not self.target.failed:
                self.target.ready = self.target.wanted
        raise AssertionError(f"still {rollout.state} at step {rollout.step_index}: {rollout.message}")

    def tick_to_end(self, rollout: Rollout) -> Rollout:
        return self.tick_until(rollout, lambda row: row.is_settled)

    def tick_to_step(self, rollout: Rollout, index: int) -> Rollout:
        return self.tick_until(rollout, lambda row: row.step_index == index)

    def crash(self, rollout: Rollout) -> None:
        """A tick that the process does not survive."""
        with pytest.raises(Crash):
            self.tick_until(rollout, lambda row: row.is_settled)

    def kinds(self, rollout: Rollout) -> list[str]:
        return list(Decision.objects.filter(rollout=rollout).values_list("kind", flat=True))

    def last(self, rollout: Rollout) -> Decision:
        return Decision.objects.filter(rollout=rollout).latest("pk")


@pytest.fixture
def story(db: None, frozen_clock: FrozenClock) -> Story:
    stable = factories.stable(1)
    versions = {1: stable, 2: factories.version(2), 3: factories.version(3)}
    return Story(frozen_clock, versions=versions)
