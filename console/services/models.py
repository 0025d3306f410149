"""Services (the public names that clients call) and leases."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from console.tenants.models import Quota, Tenant
from console.tenants.permissions import Actor, Scope


class ServiceQuerySet(models.QuerySet["Service"]):
    def for_actor(self, actor: Actor) -> Self:
        """Services of the actor's tenants, and those its tenants hold a quota for."""
        if not actor.holds(Scope.READ):
            return self.none()
        if actor.is_superuser:
            return self
        tenants = list(actor.roles)
        granted = Quota.objects.filter(tenant__in=tenants).values("service")
        return self.filter(Q(tenant__in=tenants) | Q(name__in=granted))


class Service(models.Model):
    """A public model name. Owned by one tenant; other tenants call it through their quota row."""

    name = models.CharField(max_length=255, unique=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="services")
    description = models.CharField(max_length=500, blank=True)
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ServiceQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Lease(models.Model):
    """Who may disturb `target` now. The row outlives its holder, so `fence` only ever grows."""

    target = models.CharField(max_length=255, primary_key=True)
    owner = models.CharField(max_length=150, blank=True, help_text="empty: free")
    fence = models.PositiveBigIntegerField(default=0)
    expires_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.target} held by {self.owner or 'nobody'}"
