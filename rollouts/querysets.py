"""Questions about rollouts and strategies in the words of the domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import Q

from console.services.models import Service
from console.tenants.models import Tenant
from console.tenants.permissions import Actor, Scope
from rollouts.states import TERMINAL, State

if TYPE_CHECKING:
    from rollouts.models import Rollout, Strategy


class RolloutQuerySet(models.QuerySet["Rollout"]):
    def for_actor(self, actor: Actor) -> Self:
        """Rollouts of the services that the actor may see."""
        return self.filter(service__in=Service.objects.for_actor(actor))

    def for_tenant(self, tenant: Tenant) -> Self:
        return self.filter(service__tenant=tenant)

    def active(self) -> Self:
        """Disturbing their service now."""
        return self.filter(state__in=[State.PROGRESSING, State.PAUSED])

    def unfinished(self) -> Self:
        """Active, or waiting for their turn."""
        return self.exclude(state__in=TERMINAL)

    def due(self) -> Self:
        """What a controller has to look at: unfinished ones, and finished ones the fleet does not obey yet."""
        return self.filter(settled_at=None)

    def watched(self) -> Self:
        """Promoted ones whose version is still looked at."""
        return self.filter(watch_until__isnull=False, watch_ended_at=None)

    def before(self, rollout: Rollout) -> Self:
        """Earlier ones of the same service that still have a say there."""
        return self.due().filter(service_id=rollout.service_id, pk__lt=rollout.pk)

    def with_names(self) -> Self:
        """All that a list shows, in one query."""
        return self.select_related("service__tenant", "from_version", "to_version")


class StrategyQuerySet(models.QuerySet["Strategy"]):
    def for_actor(self, actor: Actor) -> Self:
        """Those offered to everyone, and those of the actor's tenants."""
        if not actor.holds(Scope.READ):
            return self.none()
        if actor.is_superuser:
            return self
        return self.filter(Q(tenant=None) | Q(tenant__in=list(actor.roles)))

    def named(self, name: str, tenant: Tenant) -> Strategy | None:
        """The tenant's own strategy of that name, else the one offered to everyone."""
        found = self.filter(Q(tenant=tenant) | Q(tenant=None), name=name)
        return found.order_by(models.F("tenant_id").desc(nulls_last=True)).first()
