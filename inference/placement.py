"""The placements of one service while they change: locked, fenced, written absolutely, recorded once."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import transaction

from console.audit.log import record
from console.kit import clock
from console.kit.errors import Conflict
from console.services.models import Service
from console.tenants.permissions import Actor, require
from inference import snapshot
from inference.models import Placement, PlacementRole, Version


def lock(service: Service) -> Service:
    """One change of a service at a time; on SQLite the transaction itself is that lock."""
    return Service.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=service.pk)


class Changing:
    """What the verbs of inference.actions work on inside `changing`."""

    def __init__(self, service: Service, actor: Actor, fence: int) -> None:
        self.service, self.actor, self.fence = service, actor, fence
        self.placements = list(Placement.objects.of(service))
        self.before = self._picture()

    def check_fence(self) -> None:
        highest = max((placement.fence for placement in self.placements), default=0)
        if self.fence < highest:
            raise Conflict(
                f"{self.service} was changed under a later lease ({highest}, this is {self.fence}).",
                fields={"fence": "outdated"},
            )

    def of(self, version: Version) -> Placement | None:
        return next((row for row in self.placements if row.version_id == version.pk), None)

    def by_role(self, role: PlacementRole) -> Placement | None:
        return next((row for row in self.placements if row.role == role), None)

    def put(self, version: Version, role: PlacementRole, replicas: int, weight_percent: int) -> None:
        Placement.objects.update_or_create(
            service=self.service,
            version=version,
            defaults={
                "role": role,
                "replicas": replicas,
                "weight_percent": weight_percent,
                "fence": self.fence,
                "keep_until": None,
                # Routes beside the weight end with the role of a canary.
                **({} if role == PlacementRole.CANARY else {"routing": {}}),
            },
        )

    def weigh(self, weights: dict[Placement, int]) -> None:
        for placement, weight_percent in weights.items():
            Placement.objects.filter(pk=placement.pk).update(weight_percent=weight_percent)

    def route(self, placement: Placement, told: dict[str, Any]) -> None:
        Placement.objects.filter(pk=placement.pk).update(routing=told)

    def retire(self, placement: Placement, warm_seconds: float) -> None:
        """No traffic any more; loaded for a while yet, or gone at once."""
        if warm_seconds <= 0:
            placement.delete()
            return
        Placement.objects.filter(pk=placement.pk).update(
            role=PlacementRole.WARM,
            weight_percent=0,
            keep_until=clock.now() + timedelta(seconds=warm_seconds),
        )

    def done(self, verb: str, detail: dict[str, Any]) -> None:
        """Every row of the service carries the fence, so that it outlives the row that was written."""
        Placement.objects.filter(service=self.service).update(fence=self.fence)
        after = {**detail, "placements": self._picture()}
        record_change(self.actor, verb, self.service, before={"placements": self.before}, after=after)
        snapshot.publish_on_commit()

    def _picture(self) -> list[dict[str, Any]]:
        return [
            {
                "version": row.version.number,
                "role": row.role,
                "weight_percent": row.weight_percent,
                "replicas": row.replicas,
            }
            for row in Placement.objects.of(self.service)
        ]


@contextlib.contextmanager
def changing(service: Service, actor: Actor, fence: int) -> Iterator[Changing]:
    """Raises Forbidden, and Conflict for a fence lower than one that has written here."""
    require(actor, "placement.edit", service.tenant, visible=True)
    with transaction.atomic():
        change = Changing(lock(service), actor, fence)
        change.check_fence()
        yield change


def record_change(
    actor: Actor, verb: str, service: Service, *, reason: str = "", before: Any = None, after: Any = None
) -> None:
    record(
        actor,
        verb,
        f"service:{service.name}",
        tenant=service.tenant.slug,
        reason=reason,
        before=before,
        after=after,
        topics=[f"service:{service.name}", "services"],
    )
