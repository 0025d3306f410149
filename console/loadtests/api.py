"""REST of load tests: `loadtests`."""

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import FileResponse
from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit.errors import Invalid, NotFound, TooLarge
from console.kit.etags import expected_revision, tagged
from console.kit.parameters import DRY_RUN, IF_MATCH, KEY
from console.kit.rest import body_of, one, wants_dry_run
from console.loadtests import actions, files, previews, reports
from console.loadtests.models import LoadTest, LoadTestQuerySet
from console.loadtests.present import detail, summary
from console.loadtests.serializers import (
    CancelBody,
    LoadTestBody,
    LoadTestDetailOut,
    LoadTestOut,
    PointsOut,
    UploadBody,
)
from console.loadtests.states import State
from console.services.models import Service
from console.tenants.idempotency import idempotent
from console.tenants.permissions import Actor, actor_of

# What belongs to the plan; the rest of the body says where and for whom.
_PLAN = ("mode", "rate", "arrivals", "connections", "duration_seconds", "warmup_seconds", "protocol")


def visible(request: Request) -> LoadTestQuerySet:
    return LoadTest.objects.for_actor(actor_of(request)).with_names()


def service_of(actor: Actor, name: str) -> Service:
    return one(Service.objects.for_actor(actor).select_related("tenant"), name=name)


class LoadTestList(ListAPIView[LoadTest]):
    """Load tests of the caller's tenants, newest first."""

    serializer_class = LoadTestOut
    queryset = LoadTest.objects.none()

    def get_queryset(self) -> QuerySet[LoadTest]:
        rows = visible(self.request).without_report()
        if service := self.request.query_params.get("service"):
            rows = rows.filter(service=service)
        if state := self.request.query_params.get("state"):
            if state not in State.values:
                allowed = ", ".join(State.values)
                raise Invalid("A parameter is not valid.", fields={"state": f"one of {allowed}"})
            rows = rows.filter(state=state)
        return rows

    @extend_schema(
        parameters=[OpenApiParameter("service", str), OpenApiParameter("state", str, enum=State.values)]
    )
    def get(self, request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response([summary(row) for row in page or ()])

    @extend_schema(request=LoadTestBody, responses={201: LoadTestOut}, parameters=[KEY, DRY_RUN])
    @idempotent()
    def post(self, request: Request) -> Response:
        """Start a run; with `dry_run` what it would do."""
        actor, body = actor_of(request), body_of(request, LoadTestBody)
        service = service_of(actor, body["service"])
        asked = actions.wanted(
            service,
            actions.tenant_for(service, actor, body["tenant"]),
            actor=actor,
            plan={name: body[name] for name in _PLAN if name in body},
            thresholds=body["thresholds"],
            version=body["version"],
            title=body["title"],
        )
        if wants_dry_run(request):
            return Response(previews.of_start(asked).as_json())
        row = actions.start(asked, actor=actor, reason=body["reason"])
        response = Response(summary(row), status=201, headers={"Location": summary(row)["url"]})
        return tagged(response, row.revision)


class BoundedCsv(MultiPartParser):
    """Refuses by the declared length before anything is read; files.receive bounds what really came."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        declared = int((parser_context or {})["request"].META.get("CONTENT_LENGTH") or 0)
        if declared > min(files.MOST_BYTES + (1 << 20), settings.MAX_UPLOAD_BYTES):
            raise TooLarge(
                "The upload is too large.", fields={"file": f"at most {files.MOST_BYTES >> 20} MiB"}
            )
        return super().parse(stream, media_type, parser_context)


class LoadTestUpload(GenericAPIView[LoadTest]):
    """Somebody's CSV, of ours or of another tool."""

    serializer_class = LoadTestOut
    queryset = LoadTest.objects.none()
    parser_classes = [BoundedCsv]

    @extend_schema(
        request={"multipart/form-data": UploadBody}, responses={201: LoadTestDetailOut}, parameters=[KEY]
    )
    @idempotent(atomic=False)
    def post(self, request: Request) -> Response:
        """Read a CSV as one of ours; `columns` names the columns of a foreign one."""
        actor, body = actor_of(request), body_of(request, UploadBody)
        service = service_of(actor, body["service"])
        row = actions.upload(
            service,
            actions.tenant_for(service, actor, body["tenant"]),
            body["file"].chunks(),
            actor=actor,
            columns=body["columns"],
            thresholds=body["thresholds"],
            title=body["title"],
            reason=body["reason"],
        )
        return Response(detail(row), status=201, headers={"Location": f"/api/v1/loadtests/{row.pk}"})


class LoadTestView(GenericAPIView[LoadTest]):
    serializer_class: type[LoadTestOut] = LoadTestDetailOut
    queryset = LoadTest.objects.none()

    def loadtest(self, pk: int) -> LoadTest:
        return one(visible(self.request), pk=pk)


class LoadTestDetail(LoadTestView):
    """One load test with its report and what its thresholds say."""

    def get(self, request: Request, pk: int) -> Response:
        row = self.loadtest(pk)
        return tagged(Response(detail(row)), row.revision)


class LoadTestCancel(LoadTestView):
    """Stop a load test; a running one is over when its agent has ended the process."""

    serializer_class = LoadTestOut

    @extend_schema(request=CancelBody, responses={200: LoadTestOut}, parameters=[KEY, IF_MATCH])
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        row, actor = self.loadtest(pk), actor_of(request)
        reason = body_of(request, CancelBody)["reason"]
        changed = actions.cancel(row, actor=actor, reason=reason, revision=expected_revision(request))
        return tagged(Response(summary(changed)), changed.revision)


class LoadTestSeries(LoadTestView):
    """Points of a finished test for a chart: over its seconds, or of the distribution over milliseconds."""

    @extend_schema(
        responses=PointsOut,
        parameters=[OpenApiParameter("indicator", str, required=True, enum=[*reports.SERIES])],
    )
    def get(self, request: Request, pk: int) -> Response:
        row = self.loadtest(pk)
        indicator = request.query_params.get("indicator", "")
        if indicator not in reports.SERIES:
            allowed = ", ".join(reports.SERIES)
            raise Invalid("A parameter is not valid.", fields={"indicator": f"one of {allowed}"})
        return Response({"indicator": indicator, "points": reports.points(row.report, indicator)})


class LoadTestCsv(LoadTestView):
    """The CSV itself, while it is kept."""

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        row = self.loadtest(pk)
        file = files.csv_of(row.pk)
        if not row.csv_bytes or not file.is_file():
            raise NotFound("Its CSV is not kept here (any more); the report is.")
        return FileResponse(
            file.open("rb"), as_attachment=True, filename=f"loadtest-{row.pk}.csv", content_type="text/csv"
        )


urlpatterns = [
    path("loadtests", LoadTestList.as_view(), name="loadtests"),
    path("loadtests/upload", LoadTestUpload.as_view(), name="loadtest-upload"),
    path("loadtests/<int:pk>", LoadTestDetail.as_view(), name="loadtest"),
    path("loadtests/<int:pk>/cancel", LoadTestCancel.as_view(), name="loadtest-cancel"),
    path("loadtests/<int:pk>/series", LoadTestSeries.as_view(), name="loadtest-series"),
    path("loadtests/<int:pk>/csv", LoadTestCsv.as_view(), name="loadtest-csv"),
]
