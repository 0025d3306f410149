"""Shapes of the REST API of services, versions, nodes and replicas."""

from typing import Any

from rest_framework import serializers

from console.kit.serializers import StrictSerializer
from console.services.models import Service
from inference.models import Node, Placement, Replica, Version

# Multipart: what is not a model is small.
MODEL_BYTES = 2 << 30
FILE_BYTES = 64 << 20
CONTRACT_BYTES = 256 << 10


class FaceOut(serializers.Serializer[Any]):
    """How a page shows a state."""

    role = serializers.CharField()
    word = serializers.CharField()


class PlacementOut(serializers.ModelSerializer[Placement]):
    version = serializers.IntegerField(source="version.number")

    class Meta:
        model = Placement
        fields = ["version", "role", "weight_percent", "replicas", "keep_until"]


class ServiceOut(serializers.ModelSerializer[Service]):
    tenant = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    aliases = serializers.SerializerMethodField()
    placements = PlacementOut(many=True)

    class Meta:
        model = Service
        fields = ["name", "tenant", "description", "revision", "created_at", "aliases", "placements"]

    def get_aliases(self, service: Service) -> dict[str, int]:
        return {alias.name: alias.version.number for alias in service.aliases.all()}


class ServiceChange(StrictSerializer):
    description = serializers.CharField(max_length=500, allow_blank=True)


class VersionOut(serializers.ModelSerializer[Version]):
    """One line of a list: without files, contract and signature."""

    service = serializers.CharField(source="service.name")
    parent_number = serializers.IntegerField(source="parent.number", default=None, allow_null=True)
    aliases = serializers.SerializerMethodField()
    quantization = serializers.SerializerMethodField()
    size_bytes = serializers.SerializerMethodField()

    class Meta:
        model = Version
        fields = [
            "service",
            "number",
            "digest",
            "note",
            "parent_number",
            "aliases",
            "quantization",
            "size_bytes",
            "created_by",
            "created_at",
        ]

    def get_aliases(self, version: Version) -> list[str]:
        return sorted(alias.name for alias in version.aliases.all())

    def get_quantization(self, version: Version) -> str:
        return str(version.signature.get("quantization", "none"))

    def get_size_bytes(self, version: Version) -> int:
        return sum(int(file["size"]) for file in version.files)


class VersionDetailOut(VersionOut):
    files = serializers.JSONField()
    contract = serializers.JSONField()
    signature = serializers.JSONField()

    class Meta(VersionOut.Meta):
        fields = [*VersionOut.Meta.fields, "files", "contract", "signature"]


class ModelOut(ServiceOut):
    """A service with all its versions."""

    versions = VersionOut(many=True)

    class Meta(ServiceOut.Meta):
        fields = [*ServiceOut.Meta.fields, "versions"]


class RegisterBody(StrictSerializer):
    """multipart/form-data. model: the .onnx graph. files: what goes beside it, under the names they come with."""

    service = serializers.CharField(max_length=255)
    tenant = serializers.CharField(
        max_length=63, required=False, help_text="slug; needed when you have several"
    )
    model = serializers.FileField()
    contract = serializers.FileField(required=False)
    files = serializers.ListField(child=serializers.FileField(), required=False, max_length=64)
    note = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    parent_number = serializers.IntegerField(
        required=False, help_text="number of the version it was made from"
    )


class NodeOut(serializers.ModelSerializer[Node]):
    face = FaceOut()
    replicas = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = [
            "name",
            "plane_url",
            "plane_state",
            "face",
            "reported_at",
            "started_at",
            "snapshot_epoch",
            "snapshot_number",
            "profile",
            "replicas",
        ]

    def get_replicas(self, node: Node) -> int:
        return len(node.replicas.all())


class ReplicaOut(serializers.ModelSerializer[Replica]):
    node = serializers.CharField(source="node.name")
    service = serializers.CharField(source="service.name")
    version = serializers.IntegerField(source="version.number")
    face = FaceOut()

    class Meta:
        model = Replica
        fields = [
            "id",
            "node",
            "service",
            "version",
            "ordinal",
            "state",
            "face",
            "detail",
            "pid",
            "since",
            "restarts",
            "rss_bytes",
            "load_phases",
        ]


class RestartBody(StrictSerializer):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
