"""How services and nodes stand, from the rows that nodes report: pure, for pages and the overview alike."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from console.kit import clock
from console.services.models import Service
from inference.models import Placement, PlacementRole, Replica
from inference.protocol import ReplicaState
from inference.states import UNKNOWN, Face, worst

SERVING = Face("ok", "serving")
NOT_SERVING = Face("fail", "not serving")
NO_REPORT = Face("unknown", "no report for 30 s")
NOTHING_PLACED = Face("idle", "nothing placed")


@dataclass(frozen=True, slots=True)
class Condition:
    """since: when the worst replica got into its state, None when it cannot be said. why: one sentence."""

    face: Face
    why: str
    ready: int
    total: int
    since: datetime | None
    placements: tuple[Placement, ...]

    @property
    def stable(self) -> Placement | None:
        return next((one for one in self.placements if one.role == PlacementRole.STABLE), None)

    @property
    def canary(self) -> Placement | None:
        return next((one for one in self.placements if one.role == PlacementRole.CANARY), None)


def conditions(services: Sequence[Service]) -> dict[int, Condition]:
    """By the service's id; two queries, however many services."""
    placements: dict[int, list[Placement]] = defaultdict(list)
    replicas: dict[int, list[Replica]] = defaultdict(list)
    for placement in (
        Placement.objects.filter(service__in=services)
        .select_related("version")
        .defer("version__contract", "version__signature", "version__files")
        .order_by("version__number")
    ):
        placements[placement.service_id].append(placement)
    for replica in (
        Replica.objects.filter(service__in=services)
        .select_related("node", "version")
        .defer("version__contract", "version__signature", "version__files")
    ):
        replicas[replica.service_id].append(replica)
    return {service.pk: condition(placements[service.pk], replicas[service.pk]) for service in services}


def condition(placements: Sequence[Placement], replicas: Iterable[Replica]) -> Condition:
    mine = list(replicas)
    faces: Mapping[int, Face] = {replica.pk: replica.face for replica in mine}
    ready = [one for one in mine if one.state == ReplicaState.READY and faces[one.pk].role in ("ok", "warn")]
    face, why = _judge(placements, mine, faces, ready)
    ill = [one for one in mine if faces[one.pk].role == face.role] or mine
    since = max((one.since for one in ill), default=None) if face.role in ("fail", "warn", "busy") else None
    return Condition(face, why, len(ready), len(mine), since, tuple(placements))


def _judge(
    placements: Sequence[Placement], mine: list[Replica], faces: Mapping[int, Face], ready: list[Replica]
) -> tuple[Face, str]:
    stable = next((one for one in placements if one.role == PlacementRole.STABLE), None)
    if stable is None:
        return NOTHING_PLACED, "No version is placed on a node."
    if mine and all(faces[one.pk] == UNKNOWN for one in mine):
        return NO_REPORT, "No node has reported for 30 s; what it serves now is not known."
    weighted = {one.version_id: one.weight_percent for one in placements if one.weight_percent > 0}
    unserved = [one for one in placements if one.weight_percent > 0 and not _has(ready, one.version_id)]
    crashed = [one for one in mine if one.state == ReplicaState.CRASHED and one.version_id in weighted]
    detail = next((one.detail for one in crashed if one.detail), "")
    if unserved:
        loading = any(
            one.state == ReplicaState.STARTING for one in mine if one.version_id == unserved[0].version_id
        )
        who = f"Version {unserved[0].version.number}"
        if loading and not crashed:
            return Face("busy", "loading"), f"{who} is loading and has no ready replica yet."
        return NOT_SERVING, f"{who} has no ready replica{': ' + detail if detail else '.'}"
    if crashed:
        return Face(
            "warn", "degraded"
        ), f"{len(crashed)} of {len(mine)} replicas crashed{': ' + detail if detail else '.'}"
    face = worst(one for one in faces.values() if one.role in ("warn", "unknown"))
    if face is not None:
        count = sum(one == face for one in faces.values())
        return Face(face.role, face.word), f"{count} of {len(mine)} replicas: {face.word}."
    return SERVING, f"{len(ready)} of {len(mine)} replicas ready."


def _has(ready: list[Replica], version_id: int) -> bool:
    return any(one.version_id == version_id for one in ready)


def node_age_seconds(reported_at: datetime | None) -> float | None:
    return (clock.now() - reported_at).total_seconds() if reported_at else None
