"""The lease: one owner, growing fences, an end by itself."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from console.services import leases
from console.services.models import Lease

pytestmark = pytest.mark.django_db
TARGET = "service:file-type"


def lapse() -> None:
    Lease.objects.filter(pk=TARGET).update(expires_at=Now() - timedelta(seconds=1))


def test_somebody_else_is_refused_and_told_who_holds_it() -> None:
    leases.take(TARGET, "rollout:1")
    with pytest.raises(leases.LeaseHeld) as held, leases.hold(TARGET, "chaos:7"):
        raise AssertionError("held by two")
    assert held.value.by == "rollout:1" and held.value.until is not None
    assert held.value.code == "lease_held"


def test_the_owner_enters_again_with_a_higher_fence() -> None:
    with leases.hold(TARGET, "rollout:1") as first:
        pass
    with leases.hold(TARGET, "rollout:1") as second:
        assert second.fence > first.fence
    assert leases.holder(TARGET) == "rollout:1"  # between two ticks as well


def test_a_lapsed_lease_is_free_and_its_fence_is_outdated() -> None:
    old = leases.take(TARGET, "rollout:1")
    lapse()
    assert leases.holder(TARGET) == ""
    new = leases.take(TARGET, "chaos:7")
    assert new.fence > old.fence
    assert not leases.release(TARGET, "rollout:1")
    assert leases.holder(TARGET) == "chaos:7"


def test_a_released_lease_is_free_and_keeps_its_fence() -> None:
    old = leases.take(TARGET, "rollout:1")
    assert leases.release(TARGET, "rollout:1")
    assert leases.take(TARGET, "chaos:7").fence > old.fence


def test_putting_back_into_the_safe_state_takes_over() -> None:
    leases.take(TARGET, "chaos:7")
    assert leases.take(TARGET, "rollout:1", taking_over=True).owner == "rollout:1"
    with pytest.raises(leases.LeaseHeld):
        leases.take(TARGET, "chaos:7")


def test_it_expires_after_its_seconds_by_the_clock_of_the_database() -> None:
    leases.take(TARGET, "rollout:1", seconds=30)
    left = Lease.objects.filter(
        pk=TARGET, expires_at__gt=Now() + timedelta(seconds=25), expires_at__lt=Now() + timedelta(seconds=35)
    )
    assert left.exists()


def test_targets_do_not_disturb_each_other() -> None:
    leases.take(TARGET, "rollout:1")
    assert leases.take("service:other", "rollout:2").fence == 1


def test_a_lease_has_an_owner() -> None:
    with pytest.raises(ValueError, match="owner"):
        leases.take(TARGET, "")
