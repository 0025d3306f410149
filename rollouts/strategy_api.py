"""REST of strategies."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit.errors import Invalid
from console.kit.etags import expected_revision, tagged
from console.kit.pagination import ByName
from console.kit.parameters import IF_MATCH, KEY, REASON
from console.kit.rest import body_of, one
from console.tenants.idempotency import idempotent
from console.tenants.permissions import actor_of, visible_tenants
from rollouts import strategy_actions
from rollouts.models import Strategy
from rollouts.serializers import StrategyBody, StrategyChange, StrategyOut


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
            body["name"], body["steps"], tenant=tenant, actor=actor, reason=body["reason"]
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
