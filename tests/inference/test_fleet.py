"""Reports become rows; silence becomes visible; readiness rests on live nodes only."""

import time
from dataclasses import replace
from typing import Any

import pytest

from console.kit import clock
from inference import fleet, snapshot, states
from inference.models import Node, Replica
from inference.protocol import NodeReport, ReplicaReport, ReplicaState
from tests import factories
from tests.conftest import FrozenClock

pytestmark = pytest.mark.django_db


def replica_report(number: int = 1, ordinal: int = 0, **fields: Any) -> ReplicaReport:
    report = ReplicaReport(
        "file-type", number, ordinal, ReplicaState.READY, "", 4711, time.time(), 0, 90 << 20, {"read": 0.1}
    )
    return replace(report, **fields)


def report(*replicas: ReplicaReport, **fields: Any) -> NodeReport:
    made = NodeReport(
        "node-1",
        clock.now().timestamp(),
        1.0,
        "http://127.0.0.1:8080",
        ReplicaState.READY,
        "e",
        3,
        {"cores": 2},
        replicas,
    )
    return replace(made, **fields)


def test_a_report_becomes_rows() -> None:
    factories.stable(1)
    assert fleet.record(report(replica_report(0), replica_report(), replica_report(ordinal=1)))
    node = Node.objects.get()
    assert (node.name, node.plane_state, node.snapshot_number, node.profile) == (
        "node-1",
        "ready",
        3,
        {"cores": 2},
    )
    assert [row.ordinal for row in Replica.objects.all()] == [0, 1], "an unknown version is passed over"
    assert Replica.objects.get(ordinal=0).load_phases == {"read": 0.1}


def test_a_replica_that_is_no_longer_reported_is_gone() -> None:
    factories.stable(1)
    fleet.record(report(replica_report(), replica_report(ordinal=1), at=time.time()))
    fleet.record(report(replica_report(), at=time.time() + 1))
    assert [row.ordinal for row in Replica.objects.all()] == [0]


def test_a_report_that_was_overtaken_changes_nothing() -> None:
    factories.stable(1)
    now = time.time()
    fleet.record(report(replica_report(), at=now))
    late = replica_report(state=ReplicaState.STARTING)
    assert not fleet.record(report(late, at=now - 1))
    assert not fleet.record(report(late, at=now)), "the same report twice is one"
    assert Replica.objects.get().state == "ready"


def test_readiness_counts_replicas_of_live_nodes() -> None:
    version = factories.stable(1, replicas=2)
    current = snapshot.current()
    one = factories.node("one", snapshot_epoch=current.epoch, snapshot_number=current.number)
    silent = factories.node("two", silent_seconds=60)
    for ordinal in (0, 1):
        factories.replica(version, on=one, ordinal=ordinal)
        factories.replica(version, on=silent, ordinal=ordinal)
    found = fleet.readiness(version.service, version)
    assert (found.wanted, found.ready, found.applied, found.failed_detail) == (2, 2, True, "")
    assert found.is_ready


def test_a_node_behind_or_of_another_epoch_has_not_applied() -> None:
    version = factories.stable(1)
    current = snapshot.current()
    factories.node("one", snapshot_epoch=current.epoch, snapshot_number=current.number - 1)
    assert not fleet.readiness(version.service, version).applied
    factories.node("one", snapshot_epoch="old", snapshot_number=current.number + 5)
    assert not fleet.readiness(version.service, version).applied


def test_nobody_alive_is_not_ready() -> None:
    version = factories.stable(1)
    found = fleet.readiness(version.service, version)
    assert not found.applied
    assert not found.is_ready


@pytest.mark.parametrize(
    ("state", "detail", "fails"),
    [
        ("crashed", "exited with code 3", True),
        ("starting", "again, after: exited with code 3", True),
        ("starting", "", False),
    ],
)
def test_a_version_that_does_not_load_says_why(state: str, detail: str, fails: bool) -> None:
    version = factories.stable(1)
    factories.replica(version, state=state, detail=detail)
    assert fleet.readiness(version.service, version).failed_detail == (detail if fails else "")


def test_silence_is_marked_once_and_ends_with_the_next_report(frozen_clock: FrozenClock) -> None:
    factories.node("node-1")
    assert fleet.mark_silent() == []
    frozen_clock.advance(31)
    assert fleet.mark_silent() == ["node-1"]
    assert fleet.mark_silent() == []
    assert Node.objects.get().face.word == "no report for 30 s"
    fleet.record(report(at=clock.now().timestamp()))
    assert Node.objects.get().plane_state == "ready"


@pytest.mark.parametrize(
    ("state", "restarts", "silent", "role", "word"),
    [
        ("ready", 0, False, "ok", "ready"),
        ("starting", 0, False, "busy", "loading"),
        ("draining", 0, False, "busy", "draining"),
        ("crashed", 1, False, "fail", "crashed"),
        ("stopped", 0, False, "idle", "stopped"),
        ("ready", 3, False, "warn", "restarting often"),
        ("ready", 0, True, "unknown", "no report for 30 s"),
        ("crashed", 0, True, "unknown", "no report for 30 s"),
        ("odd", 0, False, "unknown", "no report for 30 s"),
    ],
)
def test_faces(state: str, restarts: int, silent: bool, role: str, word: str) -> None:
    version = factories.stable(1)
    node = factories.node(silent_seconds=40 if silent else 0)
    replica = factories.replica(version, state=state, restarts=restarts, on=node)
    assert (replica.face.role, replica.face.word) == (role, word)


def test_a_group_shows_its_worst_member() -> None:
    faces = [states.FACES[ReplicaState.READY], states.UNKNOWN, states.FACES[ReplicaState.STARTING]]
    assert states.worst(faces) is states.UNKNOWN
    assert states.worst([*faces, states.FACES[ReplicaState.CRASHED]]) is states.FACES[ReplicaState.CRASHED]
    assert states.worst([]) is None
