"""REST of strategies."""

from typing import Any

from django.db.models import QuerySet
from django.utils.text import slugify
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit.errors import Invalid
from console.kit.etags import expected_revision, tagged
from console.kit.pagination import ByName
from console.kit.parameters import DRY_RUN, IF_MATCH, KEY, REASON
from console.kit.rest import body_of, one, wants_dry_run
from console.services.models import Service
from console.tenants.idempotency import idempotent
from console.tenants.permissions import actor_of, visible_tenants
from rollouts import exchange, replay, strategy_actions
from rollouts.exchange.export import to_argo
from rollouts.models import Strategy
from rollouts.plan import parse
from rollouts.serializers import (
    ExportOut,
    ImportBody,
    ImportOut,
    ReplayBody,
    ReplayOut,
    StrategyBody,
    StrategyChange,
    StrategyOut,
)


def _visible(request: Request) -> QuerySet[Strategy]:
    return Strategy.objects.for_actor(actor_of(request)).select_related("tenant")


class StrategyList(ListAPIView[Strategy]):
    """Strategies of the caller's tenants, and those offered to everyone."""

    serializer_class = StrategyOut
    pagination_class = ByName
    queryset = Strategy.objects.none()

    def get_queryset(self) -> QuerySet[Strategy]:
        return _visible(self.request)

    def get(self, request: Request) -> Response:
        return self.list(request)

    @extend_schema(request=StrategyBody, responses={201: StrategyOut}, parameters=[KEY])
    @idempotent()
    def post(self, request: Request) -> Response:
        actor, body = actor_of(request), body_of(request, StrategyBody)
        tenant = visible_tenants(actor).filter(slug=body["tenant"]).first()
        if tenant is None:
            raise Invalid("This strategy cannot be made.", fields={"tenant": "there is no such tenant"})
        strategy = strategy_actions.create(
            body["name"],
            body["steps"],
            options=body["options"],
            tenant=tenant,
            actor=actor,
            reason=body["reason"],
        )
        return tagged(Response(StrategyOut(strategy).data, status=201), strategy.revision)


class StrategyDetail(GenericAPIView[Strategy]):
    """One strategy. Rollouts that have begun keep the steps they began with."""

    serializer_class = StrategyOut
    queryset = Strategy.objects.none()

    def get(self, request: Request, pk: int) -> Response:
        strategy = one(_visible(request), pk=pk)
        return tagged(Response(StrategyOut(strategy).data), strategy.revision)

    @extend_schema(request=StrategyChange, responses=StrategyOut, parameters=[IF_MATCH])
    def put(self, request: Request, pk: int) -> Response:
        strategy, body = one(_visible(request), pk=pk), body_of(request, StrategyChange)
        strategy = strategy_actions.edit(
            strategy,
            body["steps"],
            options=body["options"],
            actor=actor_of(request),
            reason=body["reason"],
            revision=expected_revision(request),
        )
        return tagged(Response(StrategyOut(strategy).data), strategy.revision)

    @extend_schema(responses={204: None}, parameters=[REASON])
    def delete(self, request: Request, pk: int) -> Response:
        reason = request.query_params.get("reason", "")[:500]
        strategy_actions.delete(one(_visible(request), pk=pk), actor=actor_of(request), reason=reason)
        return Response(status=204)


class StrategyImport(GenericAPIView[Strategy]):
    """Read an Argo Rollout or a Flagger Canary: a word on each field, and a strategy when nothing is refused."""

    serializer_class = ImportOut
    queryset = Strategy.objects.none()

    @extend_schema(request=ImportBody, responses={200: ImportOut, 201: ImportOut}, parameters=[KEY, DRY_RUN])
    @idempotent()
    def post(self, request: Request) -> Response:
        actor, body = actor_of(request), body_of(request, ImportBody)
        tenant = visible_tenants(actor).filter(slug=body["tenant"]).first()
        if tenant is None:
            raise Invalid("This strategy cannot be made.", fields={"tenant": "there is no such tenant"})
        imported = exchange.read(body["text"])
        name = body["name"] or slugify(imported.name)[:63]
        report = imported.report.as_json()
        answer: dict[str, Any] = {
            "id": None,
            "kind": imported.kind,
            "name": name,
            "strategy": imported.strategy,
            "report": report,
        }
        if wants_dry_run(request):
            return Response(answer)
        if imported.strategy is None:
            refused = {one["path"]: one["why"] for one in report if one["fate"] == "refused"}
            raise Invalid("Something in the text cannot be kept; nothing was saved.", fields=refused)
        if not name:
            raise Invalid("This strategy cannot be made.", fields={"name": "the text names none; give one"})
        strategy = strategy_actions.create(
            name, imported.strategy, tenant=tenant, actor=actor, reason=body["reason"], source=body["text"]
        )
        return tagged(Response({**answer, "id": strategy.pk}, status=201), strategy.revision)


class StrategyExport(GenericAPIView[Strategy]):
    """The strategy as Argo's YAML, with what Argo cannot say."""

    serializer_class = ExportOut
    queryset = Strategy.objects.none()

    @extend_schema(parameters=[OpenApiParameter("service", str, required=True)])
    def get(self, request: Request, pk: int) -> Response:
        strategy = one(_visible(request), pk=pk)
        service = one(
            Service.objects.for_actor(actor_of(request)), name=request.query_params.get("service", "")
        )
        plan = parse(strategy.steps, options=strategy.options)
        exported = to_argo(plan, name=strategy.name, service=service.name)
        return Response({"text": exported.text, "report": exported.report.as_json()})


class StrategyReplay(GenericAPIView[Strategy]):
    """How often the strategy would have ended each way over past traffic: false alarms, before anybody is woken."""

    serializer_class = ReplayOut
    queryset = Strategy.objects.none()

    @extend_schema(request=ReplayBody, responses=ReplayOut)
    def post(self, request: Request, pk: int) -> Response:
        strategy, body = one(_visible(request), pk=pk), body_of(request, ReplayBody)
        service = one(Service.objects.for_actor(actor_of(request)), name=body["service"])
        plan = parse(strategy.steps, options=strategy.options)
        return Response(replay.over_past(plan, service, hours=body["hours"], starts=body["starts"]).as_json())
