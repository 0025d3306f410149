"""REST of tenants and their members; the paths of tokens, quotas and audit are mounted here too."""

from typing import Any

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.kit.etags import expected_revision, tagged
from console.kit.pagination import BySlug
from console.kit.parameters import DRY_RUN, IF_MATCH, KEY, REASON
from console.kit.rest import body_of, one, wants_dry_run
from console.tenants import actions
from console.tenants.audit_api import AuditList
from console.tenants.idempotency import idempotent
from console.tenants.models import Membership, Tenant
from console.tenants.permissions import actor_of, require, visible_tenants
from console.tenants.quota_api import QuotaDetail, QuotaList
from console.tenants.serializers import (
    MemberBody,
    MemberChange,
    MemberOut,
    MeOut,
    PreviewOut,
    TenantBody,
    TenantChange,
    TenantOut,
)
from console.tenants.token_api import TokenDetail, TokenList, TokenRevoke, TokenRotate


class Me(APIView):
    """Who the caller is, and what for."""

    @extend_schema(operation_id="me", responses=MeOut)
    def get(self, request: Request) -> Response:
        actor = actor_of(request)
        slugs = dict(Tenant.objects.filter(pk__in=list(actor.roles)).values_list("pk", "slug"))
        return Response(
            {
                "name": actor.name,
                "is_superuser": actor.is_superuser,
                "scopes": None if actor.scopes is None else sorted(actor.scopes),
                "roles": {slugs[pk]: role for pk, role in actor.roles.items() if pk in slugs},
            }
        )


class TenantList(ListAPIView[Tenant]):
    """Tenants that the caller may see; making one is for superusers."""

    serializer_class = TenantOut
    pagination_class = BySlug
    queryset = Tenant.objects.none()

    def get_queryset(self) -> QuerySet[Tenant]:
        return visible_tenants(actor_of(self.request))

    @extend_schema(request=TenantBody, responses={201: TenantOut}, parameters=[KEY])
    @idempotent()
    def post(self, request: Request) -> Response:
        tenant = actions.create_tenant(**body_of(request, TenantBody), actor=actor_of(request))
        return tagged(Response(TenantOut(tenant).data, status=201), tenant.revision)


class TenantDetail(APIView):
    """One tenant."""

    @extend_schema(responses=TenantOut)
    def get(self, request: Request, slug: str) -> Response:
        tenant = one(visible_tenants(actor_of(request)), slug=slug)
        return tagged(Response(TenantOut(tenant).data), tenant.revision)

    @extend_schema(request=TenantChange, responses=TenantOut, parameters=[IF_MATCH])
    def patch(self, request: Request, slug: str) -> Response:
        actor = actor_of(request)
        tenant = one(visible_tenants(actor), slug=slug)
        changes = body_of(request, TenantChange, partial=True)
        tenant = actions.edit_tenant(
            tenant,
            {name: value for name, value in changes.items() if name != "reason"},
            actor=actor,
            reason=changes.get("reason", ""),
            expected_revision=expected_revision(request),
        )
        return tagged(Response(TenantOut(tenant).data), tenant.revision)


class MemberList(ListAPIView[Membership]):
    """Members of a tenant and their roles."""

    serializer_class = MemberOut
    queryset = Membership.objects.none()

    def get_queryset(self) -> QuerySet[Membership]:
        return _members(self.request, self.kwargs["slug"])

    @extend_schema(request=MemberBody, responses={201: MemberOut}, parameters=[KEY])
    @idempotent()
    def post(self, request: Request, slug: str) -> Response:
        actor = actor_of(request)
        tenant = one(visible_tenants(actor), slug=slug)
        body = body_of(request, MemberBody)
        member = actions.add_member(
            tenant, body["username"], body["role"], actor=actor, reason=body["reason"]
        )
        return Response(MemberOut(member).data, status=201)


class MemberDetail(GenericAPIView[Membership]):
    """One person's role in a tenant."""

    serializer_class = MemberOut
    queryset = Membership.objects.none()

    def _member(self, slug: str, username: str) -> Membership:
        return one(_members(self.request, slug), user__username=username)

    @extend_schema(request=MemberChange, responses=MemberOut)
    def patch(self, request: Request, slug: str, username: str) -> Response:
        member = self._member(slug, username)
        body = body_of(request, MemberChange)
        member = actions.change_member(member, body["role"], actor=actor_of(request), reason=body["reason"])
        return Response(MemberOut(member).data)

    @extend_schema(parameters=[DRY_RUN, REASON], responses={200: PreviewOut, 204: None})
    def delete(self, request: Request, slug: str, username: str) -> Response:
        member, actor = self._member(slug, username), actor_of(request)
        if wants_dry_run(request):
            return Response(actions.preview_remove_member(member, actor=actor).as_json())
        actions.remove_member(member, actor=actor, reason=request.query_params.get("reason", ""))
        return Response(status=204)


def _members(request: Request, slug: str) -> QuerySet[Membership]:
    actor = actor_of(request)
    tenant = one(visible_tenants(actor), slug=slug)
    require(actor, "member.view", tenant)
    return Membership.objects.filter(tenant=tenant).select_related("user", "tenant")


urlpatterns: list[Any] = [
    path("me", Me.as_view(), name="me"),
    path("tenants", TenantList.as_view(), name="tenants"),
    path("tenants/<slug:slug>", TenantDetail.as_view(), name="tenant"),
    path("tenants/<slug:slug>/members", MemberList.as_view(), name="members"),
    path("tenants/<slug:slug>/members/<str:username>", MemberDetail.as_view(), name="member"),
    path("tokens", TokenList.as_view(), name="tokens"),
    path("tokens/<int:pk>", TokenDetail.as_view(), name="token"),
    path("tokens/<int:pk>/revoke", TokenRevoke.as_view(), name="token-revoke"),
    path("tokens/<int:pk>/rotate", TokenRotate.as_view(), name="token-rotate"),
    path("quotas", QuotaList.as_view(), name="quotas"),
    path("quotas/<slug:tenant>/<str:service>", QuotaDetail.as_view(), name="quota"),
    path("audit", AuditList.as_view(), name="audit"),
]
