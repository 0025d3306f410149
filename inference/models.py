"""Registry (blobs, versions, aliases) and fleet (placements, nodes, replicas)."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import Max, Q

from console.kit import clock
from console.services.models import Service
from console.tenants.permissions import Actor
from inference import states


class VersionQuerySet(models.QuerySet["Version"]):
    def for_actor(self, actor: Actor) -> Self:
        """Versions of the services that the actor may see."""
        return self.filter(service__in=Service.objects.for_actor(actor))

    def of(self, service: Service) -> Self:
        return self.filter(service=service)

    def next_number(self, service: Service) -> int:
        """Only meaningful while the service's row is locked."""
        highest: int | None = self.filter(service=service).aggregate(highest=Max("number"))["highest"]
        return (highest or 0) + 1


class AliasQuerySet(models.QuerySet["Alias"]):
    def point(self, service: Service, name: str, version: Version | None) -> None:
        """Move the alias; None removes it."""
        if version is None:
            self.filter(service=service, name=name).delete()
        else:
            self.update_or_create(service=service, name=name, defaults={"version": version})


class PlacementQuerySet(models.QuerySet["Placement"]):
    def of(self, service: Service) -> Self:
        return self.filter(service=service).select_related("version").order_by("-version__number")

    def stable(self) -> Self:
        return self.filter(role="stable")

    def canary(self) -> Self:
        return self.filter(role="canary")

    def expired(self, now: datetime) -> Self:
        """Kept for a quick return, and the time for that is over."""
        return self.filter(role="warm", keep_until__lte=now)


class NodeQuerySet(models.QuerySet["Node"]):
    def live(self, now: datetime) -> Self:
        """Nodes whose word a decision may rest on."""
        return self.filter(reported_at__gte=now - states.LIVE_WITHIN)

    def silent(self, now: datetime) -> Self:
        return self.filter(Q(reported_at__lt=now - states.SILENT_AFTER) | Q(reported_at=None))


class ReplicaQuerySet(models.QuerySet["Replica"]):
    def for_actor(self, actor: Actor) -> Self:
        return self.filter(service__in=Service.objects.for_actor(actor))

    def of(self, version: Version) -> Self:
        return self.filter(version=version)

    def on_live_nodes(self, now: datetime) -> Self:
        return self.filter(node__reported_at__gte=now - states.LIVE_WITHIN)


class Version(models.Model):
    """One immutable version of a service's model: files by hash, contract and the graph's signature."""

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField(help_text="1, 2, 3 ...; what clients pin and answers name")
    digest = models.CharField(max_length=64, help_text="SHA-256 over the sorted manifest")
    files = models.JSONField(help_text="[{path, sha256, size}]; model.onnx is the graph")
    contract = models.JSONField(help_text="the ModelContract as validated")
    signature = models.JSONField(
        help_text="{inputs, outputs, opset, parameters, size, quantization} read from the graph"
    )
    note = models.CharField(max_length=500, blank=True)
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = VersionQuerySet.as_manager()

    class Meta:
        ordering = ["service_id", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["service", "number"], name="one_number_per_service"),
        ]

    def __str__(self) -> str:
        return f"{self.service}:{self.number}"


class Alias(models.Model):
    """A movable name of a version, such as `stable`."""

    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="aliases")
    name = models.SlugField(max_length=63)
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="aliases")

    objects = AliasQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["service", "name"], name="one_alias_per_service_and_name")
        ]

    def __str__(self) -> str:
        return f"{self.service}:{self.name}"


class PlacementRole(models.TextChoices):
    STABLE = "stable"
    CANARY = "canary"
    WARM = "warm"  # takes no traffic, kept loaded for a quick return


class Placement(models.Model):
    """Desired state: the version runs on each node with `replicas` workers, for `weight_percent` of the requests."""

    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="placements")
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="placements")
    role = models.CharField(max_length=6, choices=PlacementRole)
    replicas = models.PositiveSmallIntegerField(default=1)
    weight_percent = models.PositiveSmallIntegerField(default=0)
    routing = models.JSONField(
        default=dict,
        help_text="canary only: who reaches it besides its weight, as inference.protocol.RoutingSpec",
    )
    fence = models.PositiveBigIntegerField(default=0, help_text="highest lease fence that has written here")
    keep_until = models.DateTimeField(null=True, help_text="warm only: removed after this")

    objects = PlacementQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["service", "version"], name="one_placement_per_version"),
            models.UniqueConstraint(
                fields=["service", "role"],
                condition=~Q(role="warm"),
                name="one_stable_and_one_canary_per_service",
            ),
            models.CheckConstraint(condition=Q(weight_percent__lte=100), name="weight_at_most_100"),
        ]

    def __str__(self) -> str:
        return f"{self.version} {self.role} {self.weight_percent}%"


class SnapshotState(models.Model):
    """The one row that numbers snapshots. A new database gets a new epoch, so nodes do not refuse its small numbers."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.UUIDField(default=uuid.uuid4)
    number = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="single_snapshot_state")]

    def __str__(self) -> str:
        return f"{self.epoch} {self.number}"


class Node(models.Model):
    """A machine or pod with one agent, as last reported."""

    name = models.CharField(max_length=63, unique=True)
    plane_url = models.CharField(max_length=255, blank=True)
    reported_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    snapshot_epoch = models.CharField(max_length=36, blank=True)
    snapshot_number = models.PositiveBigIntegerField(default=0, help_text="applied by plane and workers")
    plane_state = models.CharField(max_length=16, default="stopped")
    profile = models.JSONField(default=dict, help_text="cores, memory_bytes, cpu_flags, runtime, providers")

    objects = NodeQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def face(self) -> states.Face:
        return states.face_of(
            self.plane_state,
            restarts=0,
            since=self.started_at or clock.now(),
            reported_at=self.reported_at,
            now=clock.now(),
        )


class Replica(models.Model):
    """One worker process as its node last reported it. States: inference.states."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="replicas")
    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="replicas")
    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="replicas")
    ordinal = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=8)
    detail = models.CharField(max_length=500, blank=True)
    pid = models.PositiveIntegerField(null=True)
    since = models.DateTimeField()
    restarts = models.PositiveIntegerField(default=0)
    rss_bytes = models.PositiveBigIntegerField(default=0)
    load_phases = models.JSONField(
        default=dict, help_text="seconds by phase: read, session, provider, warmup, first"
    )

    objects = ReplicaQuerySet.as_manager()

    class Meta:
        ordering = ["service_id", "version_id", "node_id", "ordinal"]
        constraints = [
            models.UniqueConstraint(fields=["node", "version", "ordinal"], name="one_replica_per_slot"),
        ]

    def __str__(self) -> str:
        return f"{self.version}#{self.ordinal} on {self.node}"

    @property
    def face(self) -> states.Face:
        return states.face_of(
            self.state,
            restarts=self.restarts,
            since=self.since,
            reported_at=self.node.reported_at,
            now=clock.now(),
        )
