"""What a rollout asks of the place where the versions run."""

from dataclasses import dataclass
from typing import Protocol

from console.services.models import Service
from console.tenants.permissions import Actor
from inference.models import Version
from rollouts.plan import NO_ROUTING, Routing


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a service's traffic goes now, and how fit the canary is.

    stable_replicas: how many the canary needs to carry the same load. canary_weight: None without a canary.
    canary_replicas: what it was asked to have. routing: as told, not as wished.
    applied: every live node does what was last asked.
    """

    stable_version: int | None
    stable_replicas: int
    canary_version: int | None
    canary_weight: int | None
    wanted: int
    ready: int
    failed_detail: str
    applied: bool
    canary_replicas: int = 1
    routing: Routing = NO_ROUTING


class TrafficTarget(Protocol):
    """Every verb is absolute and may be repeated; a fence lower than one already seen is refused with Conflict."""

    def look(self, service: Service, canary: Version) -> Standing: ...

    def place(
        self, service: Service, version: Version, *, replicas: int, actor: Actor, fence: int
    ) -> None: ...

    def shift(
        self, service: Service, version: Version, *, weight_percent: int, actor: Actor, fence: int
    ) -> None: ...

    def route(
        self, service: Service, version: Version, *, routing: Routing, actor: Actor, fence: int
    ) -> None:
        """Who reaches the canary besides its weight. What the target cannot do it refuses with Conflict."""

    def install(
        self, service: Service, version: Version, *, warm_seconds: float, actor: Actor, fence: int
    ) -> None:
        """Make the version stable with all the traffic; the one before stays warm for a quick return."""

    def withdraw(self, service: Service, version: Version, *, actor: Actor, fence: int) -> None:
        """Take the canary away; stable gets all the traffic."""
