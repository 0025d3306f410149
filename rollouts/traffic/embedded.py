"""The embedded fleet: placements in the database, which nodes follow by snapshot."""

from msgspec import convert

from console.services.models import Service
from console.tenants.permissions import Actor
from inference import actions, fleet
from inference.models import Placement, PlacementRole, Version
from inference.protocol import HeaderMatch, RoutingSpec
from rollouts.plan import NO_ROUTING, Routing, Sticky
from rollouts.steps import Match
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
            canary_replicas=placed.replicas if placed else 1,
            routing=_read(placed) if placed else NO_ROUTING,
        )

    def place(self, service: Service, version: Version, *, replicas: int, actor: Actor, fence: int) -> None:
        actions.place_canary(service, version, replicas=replicas, actor=actor, fence=fence)

    def shift(
        self, service: Service, version: Version, *, weight_percent: int, actor: Actor, fence: int
    ) -> None:
        actions.shift(service, version, weight_percent=weight_percent, actor=actor, fence=fence)

    def route(
        self, service: Service, version: Version, *, routing: Routing, actor: Actor, fence: int
    ) -> None:
        actions.route(service, version, routing=_spec(version, routing), actor=actor, fence=fence)

    def install(
        self, service: Service, version: Version, *, warm_seconds: float, actor: Actor, fence: int
    ) -> None:
        kept = max(WARM_SECONDS, warm_seconds)
        actions.promote(service, version, warm_seconds=kept, actor=actor, fence=fence)

    def withdraw(self, service: Service, version: Version, *, actor: Actor, fence: int) -> None:
        actions.withdraw(service, version, actor=actor, fence=fence)


def _spec(version: Version, routing: Routing) -> RoutingSpec:
    sticky = routing.sticky
    return RoutingSpec(
        version.number,
        tuple(HeaderMatch(one.header, one.exact, one.prefix) for one in routing.matches),
        routing.tenants,
        routing.mirror_percent,
        "" if sticky is None else f"header:{sticky.header}" if sticky.header else "tenant",
        dict(routing.compare),
    )


def _read(placement: Placement) -> Routing:
    if not placement.routing:
        return NO_ROUTING
    spec = convert(placement.routing, RoutingSpec)
    sticky = Sticky(spec.sticky.removeprefix("header:").removeprefix("tenant")) if spec.sticky else None
    matches = tuple(Match(one.header, one.exact, one.prefix) for one in spec.matches)
    return Routing(matches, spec.tenants, spec.mirror_percent, sticky, tuple(spec.compare.items()))
