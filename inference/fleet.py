"""What the fleet really does, as nodes last reported it: readiness for rollouts, and the intake of reports."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from console.kit import clock
from console.kit.events import publish
from console.services.models import Service
from inference import snapshot
from inference.models import Node, Placement, Replica, Version
from inference.protocol import NodeReport, ReplicaReport, ReplicaState

SILENT = "unknown"  # a node's plane_state once its reports have stopped
_RSS_STEP = 4 << 20  # smaller movements of memory are not worth a write


@dataclass(frozen=True, slots=True)
class Readiness:
    """Of one version over all live nodes.

    wanted, ready: replicas. failed_detail: why one does not load, empty when none fails.
    applied: at least one node is live and every live one serves the newest snapshot.
    """

    wanted: int
    ready: int
    failed_detail: str
    applied: bool

    @property
    def is_ready(self) -> bool:
        return self.applied and 0 < self.wanted <= self.ready


def readiness(service: Service, version: Version) -> Readiness:
    now = clock.now()
    nodes = list(Node.objects.live(now))
    placement = Placement.objects.filter(service=service, version=version).first()
    replicas = list(Replica.objects.of(version).on_live_nodes(now))
    failed = next((replica.detail for replica in replicas if _fails(replica)), "")
    return Readiness(
        wanted=placement.replicas * len(nodes) if placement else 0,
        ready=sum(replica.state == ReplicaState.READY for replica in replicas),
        failed_detail=failed,
        applied=bool(nodes) and all(_serves(node, *snapshot.current_number()) for node in nodes),
    )


def _fails(replica: Replica) -> bool:
    """Crashed, or starting once more after it had: between two tries it is still the version that does not load."""
    state = replica.state
    return state == ReplicaState.CRASHED or (
        state == ReplicaState.STARTING and "again, after" in replica.detail
    )


def _serves(node: Node, epoch: str, number: int) -> bool:
    return node.snapshot_epoch == epoch and node.snapshot_number >= number


def record(report: NodeReport) -> bool:
    """Write what a node says. False when a later word of it is already known: reports may overtake each other."""
    with transaction.atomic():
        node, created = Node.objects.get_or_create(name=report.node)
        at = _moment(report.at)
        before = (node.plane_state, node.snapshot_number)
        fresh = Node.objects.filter(Q(reported_at=None) | Q(reported_at__lt=at), pk=node.pk).update(
            plane_url=report.plane_url,
            reported_at=at,
            started_at=_moment(report.started_at),
            snapshot_epoch=report.snapshot_epoch,
            snapshot_number=report.snapshot_number,
            plane_state=report.plane_state,
            profile=report.profile,
        )
        if not fresh:
            return False
        touched = _record_replicas(node, report.replicas)
        publish(f"node:{node.name}")
        if created or before != (report.plane_state, report.snapshot_number) or touched:
            publish("nodes")
        for name in sorted(touched):
            publish(f"service:{name}")
        if touched:
            publish("services")
    return True


def _record_replicas(node: Node, reports: tuple[ReplicaReport, ...]) -> set[str]:
    """Make the node's rows equal to its report. Names of the services whose replicas changed visibly."""
    versions = {
        (version.service.name, version.number): version
        for version in Version.objects.filter(service__name__in={report.service for report in reports})
        .select_related("service")
        .defer("contract", "signature", "files")
    }
    known = {
        (replica.version_id, replica.ordinal): replica
        for replica in Replica.objects.filter(node=node).select_related("service")
    }
    touched: set[str] = set()
    for report in reports:
        version = versions.get((report.service, report.version))
        if version is None:  # deleted meanwhile; the next snapshot ends the worker
            continue
        replica = known.pop((version.pk, report.ordinal), None)
        values = _values(report)
        if replica is None:
            Replica.objects.create(
                node=node, service=version.service, version=version, ordinal=report.ordinal, **values
            )
            touched.add(report.service)
        elif changed := _changed(replica, values):
            Replica.objects.filter(pk=replica.pk).update(**{name: values[name] for name in changed})
            if changed != {"rss_bytes"}:
                touched.add(report.service)
    for gone in known.values():
        touched.add(gone.service.name)
        gone.delete()
    return touched


def _values(report: ReplicaReport) -> dict[str, Any]:
    return {
        "state": report.state.value,
        "detail": report.detail[:500],
        "pid": report.pid,
        "since": _moment(report.since),
        "restarts": report.restarts,
        "rss_bytes": report.rss_bytes,
        "load_phases": report.load_phases,
    }


def _changed(replica: Replica, values: dict[str, Any]) -> set[str]:
    changed = {name for name, value in values.items() if getattr(replica, name) != value}
    if abs(replica.rss_bytes - values["rss_bytes"]) < _RSS_STEP:
        changed.discard("rss_bytes")
    return changed


def mark_silent() -> list[str]:
    """Nodes whose reports have just stopped. The pages are told once: at the change, not at every look."""
    silent = Node.objects.silent(clock.now()).exclude(plane_state=SILENT)
    names = []
    for node in silent:
        with transaction.atomic():
            # Conditional: a report that arrives now wins.
            if not Node.objects.filter(pk=node.pk, reported_at=node.reported_at).update(plane_state=SILENT):
                continue
            names.append(node.name)
            publish(f"node:{node.name}")
            services = Service.objects.filter(replicas__node=node).distinct().values_list("name", flat=True)
            for name in services:
                publish(f"service:{name}")
    if names:
        publish("nodes")
        publish("services")
    return names


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
