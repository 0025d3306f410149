"""The embedded fleet: placements in the database, which nodes follow by snapshot."""

from console.services.models import Service
from console.tenants.permissions import Actor
from inference import actions, fleet
from inference.models import Placement, PlacementRole, Version
from rollouts.traffic.base import Standing

WARM_SECONDS = 600.0


class EmbeddedTarget:
    def look(self, service: Service, canary: Version) -> Standing:
        placements = {placement.role: placement for placement in Placement.objects.of(service)}
        stable = placements.get(PlacementRole.STABLE)
        placed = placements.get(PlacementRole.CANARY)
        fitness = fleet.readiness(service, canary)
        return Standing(
            stable_version=stable.version.number if stable else None,
            stable_replicas=stable.replicas if stable else 1,
            canary_version=placed.version.number if placed else None,
            canary_weight=placed.weight_percent if placed else None,
            wanted=fitness.wanted,
            ready=fitness.ready,
            failed_detail=fitness.failed_detail,
            applied=fitness.applied,
        )

    def place(self, service: Service, version: Version, *, replicas: int, actor: Actor, fence: int) -> None:
        actions.place_canary(service, version, replicas=replicas, actor=actor, fence=fence)

    def shift(
        self, service: Service, version: Version, *, weight_percent: int, actor: Actor, fence: int
    ) -> None:
        actions.shift(service, version, weight_percent=weight_percent, actor=actor, fence=fence)

    def install(self, service: Service, version: Version, *, actor: Actor, fence: int) -> None:
        actions.promote(service, version, warm_seconds=WARM_SECONDS, actor=actor, fence=fence)

    def withdraw(self, service: Service, version: Version, *, actor: Actor, fence: int) -> None:
        actions.withdraw(service, version, actor=actor, fence=fence)
