"""Bodies of the tenants, members, tokens and quotas endpoints, in and out."""

from typing import Any

from rest_framework import serializers

from console.kit.serializers import StrictSerializer
from console.tenants.models import FailMode, Membership, Quota, Role, Tenant, Token

_INTEGER_MAXIMUM = 2_147_483_647


class ReasonBody(StrictSerializer):
    """A verb with nothing to say but why."""

    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class RevokeBody(ReasonBody):
    """Why a token ends."""


class TenantBody(ReasonBody):
    slug = serializers.CharField(max_length=63)
    name = serializers.CharField(max_length=120, required=False, default="")
    weight = serializers.IntegerField(required=False, default=1)
    fail_mode = serializers.ChoiceField(FailMode.choices, required=False, default=FailMode.OPEN)


class TenantChange(ReasonBody):
    name = serializers.CharField(max_length=120, required=False)
    weight = serializers.IntegerField(required=False)
    fail_mode = serializers.ChoiceField(FailMode.choices, required=False)


class TenantOut(serializers.ModelSerializer[Tenant]):
    class Meta:
        model = Tenant
        fields = ["slug", "name", "weight", "fail_mode", "revision", "created_at"]


class MemberBody(ReasonBody):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(Role.choices)


class MemberChange(ReasonBody):
    role = serializers.ChoiceField(Role.choices)


class MemberOut(serializers.ModelSerializer[Membership]):
    username = serializers.CharField(source="user.username")

    class Meta:
        model = Membership
        fields = ["username", "role"]


class TokenBody(ReasonBody):
    tenant = serializers.CharField(max_length=63)
    name = serializers.CharField(max_length=120)
    scopes = serializers.ListField(child=serializers.CharField(max_length=40), max_length=20)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    most_weight_percent = serializers.IntegerField(
        min_value=0, max_value=100, required=False, allow_null=True, default=None
    )


class RotateBody(ReasonBody):
    grace_seconds = serializers.IntegerField(min_value=0, max_value=7 * 86400, required=False, default=3600)


class TokenOut(serializers.ModelSerializer[Token]):
    tenant = serializers.CharField(source="tenant.slug")
    kind = serializers.SerializerMethodField()
    state = serializers.ChoiceField(["active", "expired", "revoked"])
    created_by = serializers.SerializerMethodField()

    class Meta:
        model = Token
        fields = [
            "id",
            "tenant",
            "name",
            "kind",
            "hint",
            "scopes",
            "most_weight_percent",
            "state",
            "created_by",
            "created_at",
            "last_used_at",
            "expires_at",
            "revoked_at",
        ]

    def get_kind(self, token: Token) -> str:
        return "inference" if token.is_inference_key else "rest"

    def get_created_by(self, token: Token) -> str:
        return f"user:{token.created_by.username}" if token.created_by else "system"


class TokenWithSecret(TokenOut):
    """The one answer that holds the secret."""

    secret = serializers.CharField()

    class Meta(TokenOut.Meta):
        fields = [*TokenOut.Meta.fields, "secret"]


class LimitsBody(ReasonBody):
    requests_per_second = serializers.FloatField(required=False, allow_null=True, default=None)
    burst = serializers.IntegerField(
        required=False, allow_null=True, default=None, max_value=_INTEGER_MAXIMUM
    )
    concurrency = serializers.IntegerField(
        required=False, allow_null=True, default=None, max_value=_INTEGER_MAXIMUM
    )


class QuotaBody(LimitsBody):
    tenant = serializers.CharField(max_length=63)
    service = serializers.CharField(max_length=255)


class QuotaOut(serializers.ModelSerializer[Quota]):
    tenant = serializers.CharField(source="tenant.slug")

    class Meta:
        model = Quota
        fields = ["tenant", "service", "requests_per_second", "burst", "concurrency", "revision"]


class PreviewOut(serializers.Serializer[Any]):
    """The answer to `?dry_run=true`."""

    dry_run = serializers.BooleanField()
    effect = serializers.CharField()
    affected = serializers.ListField(child=serializers.CharField())
    revision = serializers.IntegerField(allow_null=True)


class MeOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    is_superuser = serializers.BooleanField()
    scopes = serializers.ListField(child=serializers.CharField(), allow_null=True)
    roles = serializers.DictField(child=serializers.CharField(), help_text="tenant slug: role")
