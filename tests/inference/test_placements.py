"""Placement verbs: absolute, repeatable, fenced."""

from collections.abc import Callable

import pytest

from console.audit.models import Entry
from console.kit.errors import Conflict, Forbidden, NotFound
from console.services.models import Service
from console.tenants.permissions import SYSTEM, process
from inference import actions, snapshot
from inference.models import Alias, Placement, Version
from tests import factories
from tests.cast import Cast
from tests.conftest import FrozenClock

pytestmark = pytest.mark.django_db
ROLLOUT = process("rollout:1")


@pytest.fixture
def service(cast: Cast) -> Service:
    stable = factories.stable(1, replicas=2)
    factories.version(2)
    factories.version(3)
    return stable.service


def version(number: int) -> Version:
    return Version.objects.get(service__name="file-type", number=number)


def placed(service: Service) -> dict[int, tuple[str, int]]:
    return {row.version.number: (row.role, row.weight_percent) for row in Placement.objects.of(service)}


def aliases(service: Service) -> dict[str, int]:
    return {alias.name: alias.version.number for alias in Alias.objects.filter(service=service)}


def to_canary(service: Service, number: int = 2, *, fence: int = 1, weight: int = 0) -> None:
    actions.place_canary(service, version(number), replicas=1, actor=ROLLOUT, fence=fence)
    if weight:
        actions.shift(service, version(number), weight_percent=weight, actor=ROLLOUT, fence=fence)


def test_a_canary_is_loaded_without_traffic(service: Service) -> None:
    to_canary(service)
    assert placed(service) == {1: ("stable", 100), 2: ("canary", 0)}
    assert aliases(service) == {"stable": 1, "canary": 2}


def test_a_shift_gives_the_stable_version_the_rest(service: Service) -> None:
    to_canary(service, weight=30)
    assert placed(service) == {1: ("stable", 70), 2: ("canary", 30)}


def test_placing_a_canary_again_keeps_its_weight(service: Service) -> None:
    to_canary(service, weight=30)
    actions.place_canary(service, version(2), replicas=2, actor=ROLLOUT, fence=1)
    assert placed(service)[2] == ("canary", 30)
    assert Placement.objects.get(version=version(2)).replicas == 2


def test_promotion_keeps_the_old_version_warm_and_its_replicas(service: Service) -> None:
    to_canary(service, weight=50)
    actions.promote(service, version(2), warm_seconds=600, actor=ROLLOUT, fence=1)
    assert placed(service) == {1: ("warm", 0), 2: ("stable", 100)}
    assert Placement.objects.get(version=version(2)).replicas == 2
    assert aliases(service) == {"stable": 2}


def test_promotion_without_warm_time_removes_the_old_version(service: Service) -> None:
    to_canary(service)
    actions.promote(service, version(2), warm_seconds=0, actor=ROLLOUT, fence=1)
    assert placed(service) == {2: ("stable", 100)}


def test_withdrawing_gives_everything_back(service: Service) -> None:
    to_canary(service, weight=50)
    actions.withdraw(service, version(2), actor=ROLLOUT, fence=1)
    assert placed(service) == {1: ("stable", 100)}
    assert aliases(service) == {"stable": 1}


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(lambda s: to_canary(s), id="place"),
        pytest.param(lambda s: to_canary(s, weight=40), id="shift"),
        pytest.param(
            lambda s: actions.promote(s, version(2), warm_seconds=60, actor=ROLLOUT, fence=1), id="promote"
        ),
        pytest.param(lambda s: actions.withdraw(s, version(2), actor=ROLLOUT, fence=1), id="withdraw"),
    ],
)
def test_every_verb_may_be_repeated_after_a_crash(service: Service, verb: Callable[[Service], None]) -> None:
    to_canary(service, weight=10)
    verb(service)
    once = placed(service)
    verb(service)
    assert placed(service) == once


def test_a_lower_fence_than_any_that_wrote_here_is_refused(service: Service) -> None:
    to_canary(service, fence=7, weight=20)
    with pytest.raises(Conflict, match="later lease"):
        actions.shift(service, version(2), weight_percent=90, actor=ROLLOUT, fence=6)
    with pytest.raises(Conflict, match="later lease"):
        actions.promote(service, version(2), warm_seconds=0, actor=ROLLOUT, fence=6)
    with pytest.raises(Conflict, match="later lease"):
        actions.withdraw(service, version(2), actor=ROLLOUT, fence=6)
    assert placed(service) == {1: ("stable", 80), 2: ("canary", 20)}


def test_the_fence_outlives_the_row_it_was_written_to(service: Service) -> None:
    to_canary(service, fence=7)
    actions.withdraw(service, version(2), actor=ROLLOUT, fence=7)
    with pytest.raises(Conflict, match="later lease"):
        to_canary(service, fence=6)


def test_a_second_canary_and_a_stable_canary_are_refused(service: Service) -> None:
    to_canary(service)
    with pytest.raises(Conflict, match="canary of"):
        to_canary(service, 3)
    with pytest.raises(Conflict, match="already the stable"):
        to_canary(service, 1)
    with pytest.raises(Conflict, match="is the stable"):
        actions.withdraw(service, version(1), actor=ROLLOUT, fence=1)
    with pytest.raises(Conflict, match="not the canary"):
        actions.shift(service, version(3), weight_percent=10, actor=ROLLOUT, fence=1)


def test_a_warm_version_can_come_back(service: Service) -> None:
    to_canary(service)
    actions.promote(service, version(2), warm_seconds=600, actor=ROLLOUT, fence=1)
    to_canary(service, 1, fence=2, weight=50)
    assert placed(service) == {1: ("canary", 50), 2: ("stable", 50)}
    assert Placement.objects.get(version=version(1)).keep_until is None


def test_warm_versions_end_when_their_time_is_over(service: Service, frozen_clock: FrozenClock) -> None:
    to_canary(service)
    actions.promote(service, version(2), warm_seconds=60, actor=ROLLOUT, fence=1)
    assert actions.remove_expired_warm() == 0
    frozen_clock.advance(61)
    assert actions.remove_expired_warm() == 1
    assert placed(service) == {2: ("stable", 100)}
    assert actions.remove_expired_warm() == 0


def test_only_operators_of_the_owner_may_place(cast: Cast, service: Service) -> None:
    with pytest.raises(Forbidden):
        actions.place_canary(service, version(2), replicas=1, actor=cast.ben.actor, fence=1)
    actions.place_canary(service, version(2), replicas=1, actor=cast.ada.actor, fence=1)


def test_each_change_is_on_record_with_both_pictures(service: Service) -> None:
    to_canary(service, weight=25)
    entry = Entry.objects.get(verb="placement.shift")
    assert entry.actor == "rollout:1"
    assert entry.target == "service:file-type"
    assert entry.before
    assert entry.after
    assert entry.before["placements"][-1] == {
        "version": 1, "role": "stable", "weight_percent": 100, "replicas": 2,
    }  # fmt: skip
    assert entry.after["placements"][-1]["weight_percent"] == 75


def test_the_number_grows_in_the_transaction_of_the_change(service: Service) -> None:
    before = snapshot.current().number
    to_canary(service)
    assert snapshot.current_number()[1] == before + 1, (
        "a process that dies after the commit leaves no false `applied`"
    )


def test_restarting_needs_a_replica_that_lives(cast: Cast, service: Service) -> None:
    replica = factories.replica(version(1), pid=4711, ordinal=0)
    silent = factories.replica(version(1), ordinal=0, on=factories.node("node-2", silent_seconds=60), pid=1)
    with pytest.raises(Conflict, match="no report"):
        actions.restart_replica(silent, actor=cast.ada.actor)
    with pytest.raises(Forbidden):
        actions.restart_replica(replica, actor=cast.ben.actor)
    actions.restart_replica(replica, actor=cast.ada.actor, reason="slow")
    assert Entry.objects.get(verb="replica.restart").reason == "slow"


def test_the_preview_says_who_answers_meanwhile(cast: Cast, service: Service) -> None:
    one = factories.replica(version(1), pid=1, ordinal=0)
    assert "No other replica" in actions.preview_restart(one, actor=SYSTEM).sentence
    factories.replica(version(1), pid=2, ordinal=1)
    assert "1 other ready replica of" in actions.preview_restart(one, actor=SYSTEM).sentence
    assert not Entry.objects.filter(verb="replica.restart").exists()


def test_a_foreign_service_is_not_found(cast: Cast, service: Service) -> None:
    with pytest.raises((NotFound, Forbidden)):
        actions.place_canary(service, version(2), replicas=1, actor=cast.cleo.actor, fence=1)
