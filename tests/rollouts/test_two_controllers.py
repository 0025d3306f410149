"""Two controllers that tick the same rollouts at once, in threads over real connections."""

import threading
import time

import pytest
from django.db import connections

from console.services import leases
from console.tenants.permissions import SYSTEM
from rollouts import actions, due
from rollouts.controller import World, tick
from rollouts.models import Decision, Rollout
from tests import factories
from tests.rollouts.fakes import FakeSource, FakeTarget

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = [
    {"setWeight": 10},
    {"analysis": {"gates": [{"indicator": "error_ratio", "max": 0.02, "interval": "1s", "count": 1}]}},
    {"setWeight": 100},
]


def race(rollout: Rollout, world: World, *, controllers: int = 4) -> list[BaseException]:
    """Ticks without a pause from several threads until it is settled."""
    failures: list[BaseException] = []

    def run() -> None:
        until = time.monotonic() + 20
        try:
            while (
                time.monotonic() < until and Rollout.objects.filter(pk=rollout.pk, settled_at=None).exists()
            ):
                tick(rollout.pk, world=world)
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(controllers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rollout.refresh_from_db()
    return failures


@pytest.mark.parametrize("version", [2, 3])
def test_many_controllers_at_once_end_as_one_would(version: int) -> None:
    stable = factories.stable(1)
    versions = {number: factories.version(number) for number in (2, 3)}
    target, source = FakeTarget(ready=1), FakeSource(errors={3: 0.5})
    wanted = actions.Wanted(stable.service, versions[version], STEPS)
    rollout = actions.start(wanted, actor=SYSTEM)
    assert race(rollout, World(target, source)) == []
    assert (rollout.state, target.stable) == (("promoted", 2) if version == 2 else ("aborted", 1))
    assert target.canary is None and leases.holder(rollout.target) == ""
    revisions = list(Decision.objects.filter(rollout=rollout).values_list("revision", flat=True))
    assert revisions == list(range(1, rollout.revision + 1))


def test_one_rollout_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ticked = []

    def fail_first(rollout_id: int) -> None:
        ticked.append(rollout_id)
        if len(ticked) == 1:
            raise RuntimeError("broken row")

    first = factories.rollout()
    second = factories.rollout(factories.version(1, of="other"))
    monkeypatch.setattr(due, "tick", fail_first)
    due.tick_all()
    assert ticked == [first.pk, second.pk]
