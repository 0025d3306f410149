"""The pure part of a node, by tables."""

from typing import Any

import pytest

from inference.node import desired
from inference.node.desired import Drain, Forget, Kill, Occupant, Slot, Start, Stop
from inference.protocol import ServiceSpec, Snapshot, TenantSpec, VersionSpec

ONE, TWO = Slot("a", 1, 0, "d1"), Slot("a", 2, 0, "d2")
NOW = 1000.0
LONG_AGO = NOW - 100


@pytest.mark.parametrize(
    ("needed", "occupants", "actions"),
    [
        pytest.param([ONE], {}, [Start(ONE)], id="an empty slot is filled"),
        pytest.param([ONE], {ONE: Occupant(alive=True)}, [], id="a living worker is left alone"),
        pytest.param(
            [ONE], {ONE: Occupant(alive=False, retry_at=NOW + 1)}, [], id="a dead one waits its back-off"
        ),
        pytest.param(
            [ONE], {ONE: Occupant(alive=False, retry_at=NOW)}, [Start(ONE)], id="and is started then"
        ),
        pytest.param([], {ONE: Occupant(alive=True)}, [Drain(ONE)], id="an unwanted one is drained first"),
        pytest.param(
            [],
            {ONE: Occupant(alive=True, idle=False, draining_since=NOW - 1)},
            [],
            id="it stays while requests wait",
        ),
        pytest.param(
            [],
            {ONE: Occupant(alive=True, idle=True, draining_since=NOW - 1)},
            [Stop(ONE)],
            id="and ends when idle",
        ),
        pytest.param(
            [],
            {ONE: Occupant(alive=True, idle=False, draining_since=LONG_AGO)},
            [Stop(ONE)],
            id="a drain has an end",
        ),
        pytest.param(
            [],
            {ONE: Occupant(alive=True, draining_since=LONG_AGO, asked_to_stop_at=NOW - 1)},
            [],
            id="one that was asked gets time",
        ),
        pytest.param(
            [],
            {ONE: Occupant(alive=True, draining_since=LONG_AGO, asked_to_stop_at=LONG_AGO)},
            [Kill(ONE)],
            id="but not for ever",
        ),
        pytest.param(
            [ONE],
            {ONE: Occupant(alive=True, asked_to_stop_at=LONG_AGO)},
            [Kill(ONE)],
            id="a restart that hangs is forced",
        ),
        pytest.param([], {ONE: Occupant(alive=False)}, [Forget(ONE)], id="an unwanted dead one is forgotten"),
        pytest.param(
            [TWO], {ONE: Occupant(alive=True)}, [Drain(ONE), Start(TWO)], id="each slot is judged for itself"
        ),
    ],
)
def test_decide(needed: list[Slot], occupants: dict[Slot, Occupant], actions: list[desired.Action]) -> None:
    assert desired.decide(needed, occupants, NOW) == actions


def version(number: int, weight: int, *, replicas: int = 1) -> VersionSpec:
    return VersionSpec(number, f"d{number}", (), {}, replicas, weight)


def snapshot(*versions: VersionSpec, number: int = 1, epoch: str = "e", **others: Any) -> Snapshot:
    return Snapshot(epoch, number, (ServiceSpec("a", "t", versions),), **others)


READY_1, READY_2 = ("a", 1, "d1"), ("a", 2, "d2")


@pytest.mark.parametrize(
    ("before", "wanted", "ready", "held"),
    [
        pytest.param(None, [version(1, 100)], set(), False, id="nothing to hold on to: routed at once"),
        pytest.param(
            [version(1, 100)], [version(2, 100)], {READY_1}, True, id="not before the new one is ready"
        ),
        pytest.param([version(1, 100)], [version(2, 100)], {READY_1, READY_2}, False, id="then it moves"),
        pytest.param(
            [version(1, 100)],
            [version(1, 100), version(2, 0)],
            {READY_1},
            False,
            id="no traffic, nothing to wait for",
        ),
        pytest.param(
            [version(1, 100)],
            [version(1, 90), version(2, 10)],
            {READY_1},
            True,
            id="a share waits like the whole",
        ),
        pytest.param(
            [version(1, 90), version(2, 10)],
            [version(1, 50), version(2, 50)],
            {READY_1},
            False,
            id="a crash of one that has traffic already holds nothing back",
        ),
        pytest.param(
            [version(1, 100)],
            [version(2, 100)],
            set(),
            False,
            id="waiting helps nobody when the old one is gone too",
        ),
    ],
)
def test_routes_wait_for_readiness(
    before: list[VersionSpec] | None, wanted: list[VersionSpec], ready: set[tuple[str, int, str]], held: bool
) -> None:
    applied = snapshot(*before) if before is not None else None
    plan = desired.plan_routes(applied, snapshot(*wanted, number=2), ready)
    assert plan.held == (("a",) if held else ())
    assert plan.routes.services[0].versions == tuple(before if held and before else wanted)
    assert plan.routes.number == 2


def test_a_held_service_does_not_hold_back_tenants() -> None:
    tenants = (TenantSpec("acme", 1, "open"),)
    plan = desired.plan_routes(
        snapshot(version(1, 100)), snapshot(version(2, 100), number=2, tenants=tenants), {READY_1}
    )
    assert plan.held
    assert plan.routes.tenants == tenants


@pytest.mark.parametrize(
    ("epoch", "number", "newer"),
    [("e", 6, True), ("e", 5, False), ("e", 4, False), ("another", 1, True)],
)
def test_only_a_newer_snapshot_supersedes(epoch: str, number: int, newer: bool) -> None:
    assert desired.supersedes(snapshot(number=number, epoch=epoch), snapshot(number=5)) is newer


def test_back_off_doubles_to_a_limit() -> None:
    waits = [desired.backoff_seconds(failures) for failures in range(1, 9)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_slots_of_counts_replicas() -> None:
    assert len(desired.slots_of(snapshot(version(1, 100, replicas=3), version(2, 0)))) == 4
    assert desired.slots_of(None) == frozenset()
