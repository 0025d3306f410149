"""Tenants, memberships, tokens, quotas."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q


class Role(models.TextChoices):
    """Each role may do what the one before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class FailMode(models.TextChoices):
    """What a quota does while its exact state cannot be known."""

    OPEN = "open"
    CLOSED = "closed"


class Tenant(models.Model):
    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    weight = models.PositiveSmallIntegerField(default=1, help_text="share in fair scheduling")
    fail_mode = models.CharField(max_length=6, choices=FailMode, default=FailMode.OPEN)
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.slug


class Membership(models.Model):
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="one_role_per_tenant_and_user")]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.tenant}"


class Token(models.Model):
    """A secret that stands for a tenant: `pht_...` for REST, `ph_...` for inference (scope `infer`).

    Secrets hold 256 random bits, so their plain SHA-256 is kept: no dictionary reaches them.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="tokens")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    name = models.CharField(max_length=120)
    hint = models.CharField(max_length=16, help_text="first characters of the secret, to tell tokens apart")
    sha256 = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}...)"


class Quota(models.Model):
    """Limits of one tenant on one service; null is no limit of that kind. A row is also the tenant's grant to call it.

    `service` is a name because services stand above tenants.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="quotas")
    service = models.CharField(max_length=255)
    requests_per_second = models.FloatField(null=True)
    burst = models.PositiveIntegerField(null=True, help_text="requests; default one second of the rate, at least 1")
    concurrency = models.PositiveIntegerField(null=True)
    revision = models.PositiveIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "service"], name="one_quota_per_tenant_and_service"),
            models.CheckConstraint(
                condition=Q(requests_per_second__isnull=True) | Q(requests_per_second__gt=0), name="quota_rate_positive"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} on {self.service}"


class IdempotencyRecord(models.Model):
    """The first answer to an `Idempotency-Key`; the same key with another request is refused."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    owner = models.CharField(max_length=80, help_text="token or user that sent the key")
    key = models.CharField(max_length=255)
    request_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True, help_text="null while the first request is running")
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="one_record_per_owner_and_key")]

    def __str__(self) -> str:
        return f"{self.owner} {self.key}"
