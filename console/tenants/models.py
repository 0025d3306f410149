"""Tenants, memberships, tokens, quotas."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from console.kit import clock


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
    """Owner of services, members, tokens and quotas; every object in the house belongs to one."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    weight = models.PositiveSmallIntegerField(default=1, help_text="share in fair scheduling")
    fail_mode = models.CharField(max_length=6, choices=FailMode, default=FailMode.OPEN)
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class Membership(models.Model):
    """What one person may do in one tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="one_role_per_tenant_and_user")
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.tenant}"


class TokenQuerySet(models.QuerySet["Token"]):
    def active(self) -> "TokenQuerySet":
        """Neither revoked nor expired now."""
        return self.filter(revoked_at__isnull=True).exclude(expires_at__lte=clock.now())

    def inference_keys(self) -> "TokenQuerySet":
        return self.filter(hint__startswith="ph_")


class Token(models.Model):
    """A secret that stands for a tenant: `pht_...` for REST, `ph_...` for inference (scope `infer`).

    Secrets hold 256 random bits, so their plain SHA-256 is kept: no dictionary reaches them.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="tokens")
    # PROTECT: deleting a person must not cut the clients of a model; such a person is deactivated instead.
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="tokens_made"
    )
    name = models.CharField(max_length=120)
    hint = models.CharField(max_length=16, help_text="first characters of the secret, to tell tokens apart")
    sha256 = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    most_weight_percent = models.PositiveSmallIntegerField(
        null=True, help_text="what it may let a rollout give to a new version without a person; null is all"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    objects = TokenQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["tenant", "-id"], name="token_by_tenant")]

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}...)"

    @property
    def is_inference_key(self) -> bool:
        """Opens the plane and nothing else; a REST token opens the console and nothing else."""
        return self.hint.startswith("ph_")

    @property
    def is_revoked(self) -> bool:
        return self.revoked_at is not None

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= clock.now()

    @property
    def state(self) -> str:
        """One word for a page: active, expired or revoked."""
        if self.is_revoked:
            return "revoked"
        return "expired" if self.is_expired else "active"


class Quota(models.Model):
    """Limits of one tenant on one service; null is no limit of that kind. A row is also the tenant's grant to call it.

    `service` is a name because services stand above tenants.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="quotas")
    service = models.CharField(max_length=255)
    requests_per_second = models.FloatField(null=True)
    burst = models.PositiveIntegerField(
        null=True, help_text="requests; default one second of the rate, at least 1"
    )
    concurrency = models.PositiveIntegerField(null=True)
    revision = models.PositiveIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "service"], name="one_quota_per_tenant_and_service"),
            models.CheckConstraint(
                condition=Q(requests_per_second__isnull=True) | Q(requests_per_second__gt=0),
                name="quota_rate_positive",
            ),
            models.CheckConstraint(
                condition=Q(burst__isnull=True) | Q(burst__gte=1), name="quota_burst_at_least_1"
            ),
            models.CheckConstraint(
                condition=Q(concurrency__isnull=True) | Q(concurrency__gte=1),
                name="quota_concurrency_at_least_1",
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
    # Who is answering: a request that takes over from a dead one writes its own; the dead one's late answer is lost.
    claim = models.UUIDField(default=uuid.uuid4)
    claimed_at = models.DateTimeField()
    status = models.PositiveSmallIntegerField(null=True, help_text="null while the first request is running")
    # Sealed, because the answer to `token create` holds a secret.
    answer = models.TextField(blank=True, help_text="body and headers, encrypted")
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="one_record_per_owner_and_key")]

    def __str__(self) -> str:
        return f"{self.owner} {self.key}"


class LoginAttempt(models.Model):
    """A login tried and not (yet) succeeded. `who`: hash, since people type passwords into the name field."""

    who = models.CharField(max_length=64, help_text="SHA-256 of the folded user name")
    address = models.CharField(max_length=45)
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["who", "at"], name="login_by_who"),
            models.Index(fields=["address", "at"], name="login_by_address"),
        ]

    def __str__(self) -> str:
        return f"{self.address} at {self.at}"
