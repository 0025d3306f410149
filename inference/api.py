"""REST of services, models, versions, nodes and replicas."""

from typing import Any

from django.db.models import Prefetch, QuerySet
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit.etags import expected_revision, tagged
from console.kit.pagination import ByName
from console.kit.parameters import DRY_RUN, IF_MATCH, KEY
from console.kit.rest import body_of, one, wants_dry_run
from console.metrics.range import SeriesView
from console.services.models import Service
from console.tenants.idempotency import idempotent
from console.tenants.permissions import actor_of, require
from console.tenants.serializers import PreviewOut
from inference import actions
from inference.models import Alias, Node, Placement, Replica, Version
from inference.serializers import (
    ModelOut,
    NodeOut,
    RegisterBody,
    ReplicaOut,
    RestartBody,
    ServiceChange,
    ServiceOut,
    VersionDetailOut,
    VersionOut,
)
from inference.uploads import BoundedMultiPart, register_upload

_SERVICE = OpenApiParameter("service", str, description="name")


def services(request: Request) -> QuerySet[Service]:
    return (
        Service.objects.for_actor(actor_of(request))
        .select_related("tenant")
        .prefetch_related(
            Prefetch("placements", Placement.objects.select_related("version").order_by("-version__number")),
            Prefetch("aliases", Alias.objects.select_related("version")),
        )
    )


def versions(request: Request) -> QuerySet[Version]:
    rows = Version.objects.for_actor(actor_of(request)).select_related("service", "parent")
    return rows.prefetch_related("aliases")


class ServiceList(ListAPIView[Service]):
    """Services that the caller may see: its own tenants' and those it holds a quota for."""

    serializer_class = ServiceOut
    pagination_class = ByName
    queryset = Service.objects.none()

    def get_queryset(self) -> QuerySet[Service]:
        return services(self.request)


class ServiceDetail(GenericAPIView[Service]):
    """One service with what is placed for it."""

    serializer_class = ServiceOut
    queryset = Service.objects.none()

    def get(self, request: Request, name: str) -> Response:
        service = one(services(request), name=name)
        return tagged(Response(ServiceOut(service).data), service.revision)

    @extend_schema(request=ServiceChange, responses=ServiceOut, parameters=[IF_MATCH])
    def patch(self, request: Request, name: str) -> Response:
        service = one(services(request), name=name)
        changes = body_of(request, ServiceChange)
        service = actions.edit_service(
            service, **changes, actor=actor_of(request), expected_revision=expected_revision(request)
        )
        return tagged(Response(ServiceOut(one(services(request), pk=service.pk)).data), service.revision)


class Register(GenericAPIView[Any]):
    """What `models` and `versions` share: a POST registers a new version, and the service with its first one."""

    parser_classes = [BoundedMultiPart]

    @extend_schema(
        request={"multipart/form-data": RegisterBody}, responses={201: VersionDetailOut}, parameters=[KEY]
    )
    # Not in one transaction: reading a large graph would hold the only writer of SQLite for its whole time.
    @idempotent(atomic=False)
    def post(self, request: Request) -> Response:
        """Register a version from an upload; it is checked whole before anything is kept."""
        version = register_upload(request.data, actor=actor_of(request))
        shown = one(versions(request), pk=version.pk)
        address = f"/api/v1/versions/{shown.service.name}/{shown.number}"
        return Response(VersionDetailOut(shown).data, status=201, headers={"Location": address})


class ModelList(Register, ListAPIView[Service]):
    """Services with all their versions."""

    serializer_class = ModelOut
    pagination_class = ByName
    queryset = Service.objects.none()

    def get_queryset(self) -> QuerySet[Service]:
        return services(self.request).prefetch_related(_versions_of_services())


class ModelDetail(GenericAPIView[Service]):
    """One service with all its versions."""

    serializer_class = ModelOut
    queryset = Service.objects.none()

    def get(self, request: Request, name: str) -> Response:
        service = one(services(request).prefetch_related(_versions_of_services()), name=name)
        return tagged(Response(ModelOut(service).data), service.revision)


def _versions_of_services() -> "Prefetch[str, Any, str]":
    rows = Version.objects.select_related("service", "parent").prefetch_related("aliases").defer("contract")
    return Prefetch("versions", rows.order_by("-number"))


class VersionList(Register, ListAPIView[Version]):
    """Versions of all services that the caller may see, newest first."""

    serializer_class = VersionOut
    queryset = Version.objects.none()

    def get_queryset(self) -> QuerySet[Version]:
        rows = versions(self.request).defer("contract")
        name = self.request.query_params.get("service")
        return rows.filter(service__name=name) if name else rows

    @extend_schema(parameters=[_SERVICE])
    def get(self, request: Request) -> Response:
        return self.list(request)


class VersionDetail(GenericAPIView[Version]):
    """One version with its files, contract and signature."""

    serializer_class = VersionDetailOut
    queryset = Version.objects.none()

    def get(self, request: Request, service: str, number: int) -> Response:
        return Response(VersionDetailOut(one(versions(request), service__name=service, number=number)).data)


class NodeList(ListAPIView[Node]):
    """Nodes as last reported; any member of any tenant may look."""

    serializer_class = NodeOut
    pagination_class = ByName
    queryset = Node.objects.none()

    def get_queryset(self) -> QuerySet[Node]:
        require(actor_of(self.request), "node.view", None)
        return Node.objects.prefetch_related("replicas")


class NodeDetail(GenericAPIView[Node]):
    serializer_class = NodeOut
    queryset = Node.objects.none()

    def get(self, request: Request, name: str) -> Response:
        require(actor_of(request), "node.view", None)
        return Response(NodeOut(one(Node.objects.prefetch_related("replicas"), name=name)).data)


def replicas(request: Request) -> QuerySet[Replica]:
    return Replica.objects.for_actor(actor_of(request)).select_related(
        "node", "service__tenant", "version__service"
    )


class ReplicaList(ListAPIView[Replica]):
    """Worker processes of the services that the caller may see, as last reported."""

    serializer_class = ReplicaOut
    queryset = Replica.objects.none()

    def get_queryset(self) -> QuerySet[Replica]:
        rows = replicas(self.request)
        for parameter, field in (("service", "service__name"), ("node", "node__name"), ("state", "state")):
            if value := self.request.query_params.get(parameter):
                rows = rows.filter(**{field: value})
        return rows

    @extend_schema(parameters=[_SERVICE, OpenApiParameter("node", str), OpenApiParameter("state", str)])
    def get(self, request: Request) -> Response:
        return self.list(request)


class ReplicaDetail(GenericAPIView[Replica]):
    serializer_class = ReplicaOut
    queryset = Replica.objects.none()

    def get(self, request: Request, pk: int) -> Response:
        return Response(ReplicaOut(one(replicas(request), pk=pk)).data)


class ReplicaRestart(GenericAPIView[Replica]):
    """End one worker after its batch in hand and start it anew."""

    serializer_class = ReplicaOut
    queryset = Replica.objects.none()

    @extend_schema(
        request=RestartBody, responses={200: PreviewOut, 202: ReplicaOut}, parameters=[DRY_RUN, KEY]
    )
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        """202: the order is on its way to the node; with `dry_run` what it would touch."""
        replica, actor = one(replicas(request), pk=pk), actor_of(request)
        if wants_dry_run(request):
            return Response(actions.preview_restart(replica, actor=actor).as_json())
        actions.restart_replica(replica, actor=actor, reason=body_of(request, RestartBody)["reason"])
        return Response(ReplicaOut(replica).data, status=202)


def _may_see(request: Request, name: str) -> None:
    one(Service.objects.for_actor(actor_of(request)), name=name)


class Series(SeriesView):
    """Points of one indicator of a service for a chart."""

    @extend_schema(
        operation_id="services_series",
        parameters=[
            OpenApiParameter("indicator", str, required=True),
            *(OpenApiParameter(name, str) for name in ("version", "tenant", "from", "to", "step")),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request, name: str) -> Response:
        return super().get(request, name)


urlpatterns: list[Any] = [
    path("services", ServiceList.as_view(), name="services"),
    path("services/<str:name>", ServiceDetail.as_view(), name="service"),
    path("services/<str:name>/series", Series.as_view(check=_may_see), name="service-series"),
    path("models", ModelList.as_view(), name="models"),
    path("models/<str:name>", ModelDetail.as_view(), name="model"),
    path("versions", VersionList.as_view(), name="versions"),
    path("versions/<str:service>/<int:number>", VersionDetail.as_view(), name="version"),
    path("nodes", NodeList.as_view(), name="nodes"),
    path("nodes/<str:name>", NodeDetail.as_view(), name="node"),
    path("replicas", ReplicaList.as_view(), name="replicas"),
    path("replicas/<int:pk>", ReplicaDetail.as_view(), name="replica"),
    path("replicas/<int:pk>/restart", ReplicaRestart.as_view(), name="replica-restart"),
]
