"""REST of tokens."""

from datetime import timedelta

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit import clock
from console.kit.errors import Invalid
from console.kit.parameters import DRY_RUN, KEY, TENANT
from console.kit.rest import body_of, one, wants_dry_run
from console.tenants import token_actions
from console.tenants.idempotency import idempotent
from console.tenants.models import Token
from console.tenants.permissions import actor_of, scoped, visible_tenants
from console.tenants.serializers import (
    PreviewOut,
    RevokeBody,
    RotateBody,
    TokenBody,
    TokenOut,
    TokenWithSecret,
)

_STATES = ("active", "expired", "revoked")


class TokenList(ListAPIView[Token]):
    """Tokens of the caller's tenants, without their secrets."""

    serializer_class = TokenOut
    queryset = Token.objects.none()

    def get_queryset(self) -> QuerySet[Token]:
        rows = _visible(self.request)
        if slug := self.request.query_params.get("tenant"):
            rows = rows.filter(tenant__slug=slug)
        if state := self.request.query_params.get("state"):
            rows = _in_state(rows, state)
        return rows

    @extend_schema(parameters=[TENANT, OpenApiParameter("state", str, enum=_STATES)])
    def get(self, request: Request) -> Response:
        return self.list(request)

    @extend_schema(request=TokenBody, responses={201: TokenWithSecret}, parameters=[KEY])
    @idempotent()
    def post(self, request: Request) -> Response:
        """The answer holds `secret`, this once."""
        actor, body = actor_of(request), body_of(request, TokenBody)
        tenant = visible_tenants(actor).filter(slug=body["tenant"]).first()
        if tenant is None:
            raise Invalid("This token cannot be made.", fields={"tenant": "there is no such tenant"})
        token, secret = token_actions.create_token(
            tenant,
            name=body["name"],
            scopes=body["scopes"],
            expires_at=body["expires_at"],
            most_weight_percent=body["most_weight_percent"],
            actor=actor,
            reason=body["reason"],
        )
        return Response({**TokenOut(token).data, "secret": secret}, status=201)


class TokenView(GenericAPIView[Token]):
    serializer_class = TokenOut
    queryset = Token.objects.none()

    def token(self, pk: int) -> Token:
        return one(_visible(self.request), pk=pk)


class TokenDetail(TokenView):
    """One token."""

    def get(self, request: Request, pk: int) -> Response:
        return Response(TokenOut(self.token(pk)).data)


class TokenRevoke(TokenView):
    """End a token for good."""

    @extend_schema(request=RevokeBody, responses={200: TokenOut}, parameters=[KEY, DRY_RUN])
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        token, actor = self.token(pk), actor_of(request)
        if wants_dry_run(request):
            return Response(token_actions.preview_revoke_token(token, actor=actor).as_json())
        body = body_of(request, RevokeBody)
        return Response(TokenOut(token_actions.revoke_token(token, actor=actor, reason=body["reason"])).data)


class TokenRotate(TokenView):
    """A successor with a new secret; the old secret works until the grace is over."""

    @extend_schema(
        request=RotateBody, responses={201: TokenWithSecret, 200: PreviewOut}, parameters=[KEY, DRY_RUN]
    )
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        token, actor = self.token(pk), actor_of(request)
        body = body_of(request, RotateBody)
        grace = timedelta(seconds=body["grace_seconds"])
        if wants_dry_run(request):
            return Response(token_actions.preview_rotate_token(token, actor=actor, grace=grace).as_json())
        successor, secret = token_actions.rotate_token(token, actor=actor, grace=grace, reason=body["reason"])
        return Response({**TokenOut(successor).data, "secret": secret}, status=201)


def _visible(request: Request) -> QuerySet[Token]:
    return scoped(actor_of(request), Token.objects.select_related("tenant", "created_by"))


def _in_state(rows: QuerySet[Token], state: str) -> QuerySet[Token]:
    if state not in _STATES:
        raise Invalid("A parameter is not valid.", fields={"state": f"one of {', '.join(_STATES)}"})
    if state == "revoked":
        return rows.filter(revoked_at__isnull=False)
    now = clock.now()
    alive = rows.filter(revoked_at__isnull=True)
    return alive.filter(expires_at__lte=now) if state == "expired" else alive.exclude(expires_at__lte=now)
