"""REST of quotas. One quota has the address `quotas/<tenant>/<service>`."""

from django.db.models import Q, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit.errors import Conflict, Invalid
from console.kit.etags import expected_revision, tagged
from console.kit.parameters import DRY_RUN, IF_MATCH, KEY, REASON, TENANT
from console.kit.rest import body_of, one, wants_dry_run
from console.tenants import quota_actions
from console.tenants.grants import services_of
from console.tenants.idempotency import idempotent
from console.tenants.models import Quota, Tenant
from console.tenants.permissions import Actor, Scope, actor_of
from console.tenants.serializers import LimitsBody, PreviewOut, QuotaBody, QuotaOut


class QuotaList(ListAPIView[Quota]):
    """Quotas of the caller's tenants, and all quotas on the services that these own."""

    serializer_class = QuotaOut
    queryset = Quota.objects.none()

    def get_queryset(self) -> QuerySet[Quota]:
        rows = visible_quotas(actor_of(self.request))
        if slug := self.request.query_params.get("tenant"):
            rows = rows.filter(tenant__slug=slug)
        if service := self.request.query_params.get("service"):
            rows = rows.filter(service=service)
        return rows

    @extend_schema(parameters=[TENANT, OpenApiParameter("service", str)])
    def get(self, request: Request) -> Response:
        return self.list(request)

    @extend_schema(request=QuotaBody, responses={201: QuotaOut}, parameters=[KEY])
    @idempotent()
    def post(self, request: Request) -> Response:
        """A new quota; 409 when there is one already, which PUT on its own address changes."""
        actor, body = actor_of(request), body_of(request, QuotaBody)
        slug, service = body.pop("tenant"), body.pop("service")
        tenant = _tenant(actor, slug, service)
        if Quota.objects.filter(tenant=tenant, service=service).exists():
            raise Conflict(
                f"{slug} has a quota on {service} already.",
                fields={"service": f"PUT quotas/{slug}/{service} changes it"},
                code="taken",
            )
        quota = quota_actions.set_quota(tenant, service, **body, actor=actor)
        return tagged(Response(QuotaOut(quota).data, status=201), quota.revision)


class QuotaDetail(GenericAPIView[Quota]):
    """The grant of one tenant to call one service, with its limits."""

    serializer_class = QuotaOut
    queryset = Quota.objects.none()

    def get(self, request: Request, tenant: str, service: str) -> Response:
        quota = self._quota(tenant, service)
        return tagged(Response(QuotaOut(quota).data), quota.revision)

    @extend_schema(request=LimitsBody, responses=QuotaOut, parameters=[IF_MATCH])
    def put(self, request: Request, tenant: str, service: str) -> Response:
        """Exactly these limits: one that is left out is no limit. Made when there is no such quota yet."""
        actor, body = actor_of(request), body_of(request, LimitsBody)
        quota = quota_actions.set_quota(
            _tenant(actor, tenant, service),
            service,
            **body,
            actor=actor,
            expected_revision=expected_revision(request),
        )
        return tagged(Response(QuotaOut(quota).data), quota.revision)

    @extend_schema(parameters=[DRY_RUN, REASON, IF_MATCH], responses={200: PreviewOut, 204: None})
    def delete(self, request: Request, tenant: str, service: str) -> Response:
        quota, actor = self._quota(tenant, service), actor_of(request)
        if wants_dry_run(request):
            return Response(quota_actions.preview_remove_quota(quota, actor=actor).as_json())
        quota_actions.remove_quota(
            quota,
            actor=actor,
            reason=request.query_params.get("reason", ""),
            expected_revision=expected_revision(request),
        )
        return Response(status=204)

    def _quota(self, tenant: str, service: str) -> Quota:
        return one(visible_quotas(actor_of(self.request)), tenant__slug=tenant, service=service)


def visible_quotas(actor: Actor) -> QuerySet[Quota]:
    """What a tenant may call is seen by its own members and by those of the service's owner."""
    rows = Quota.objects.select_related("tenant")
    if not actor.holds(Scope.READ):
        return rows.none()
    if actor.is_superuser:
        return rows
    tenants = list(actor.roles)
    return rows.filter(Q(tenant__in=tenants) | Q(service__in=services_of(tenants)))


def _tenant(actor: Actor, slug: str, service: str) -> Tenant:
    """The tenant to grant to. Only whoever may grant the service learns whether the slug exists."""
    tenant = Tenant.objects.filter(slug=slug).first()
    quota_actions.require_owner(actor, service, tenant)
    if tenant is None:
        raise Invalid("This quota cannot be set.", fields={"tenant": "there is no such tenant"})
    return tenant
