"""Who owns a service, and so may grant it to other tenants.

Services stand above tenants in the import order, so console.services tells us in its AppConfig.ready how to ask.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from console.kit.errors import NotFound
from console.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class OwnerLookup:
    """owner_of: service name -> its tenant, None for an unknown name. owned_by: tenant ids -> service names."""

    owner_of: Callable[[str], Tenant | None]
    owned_by: Callable[[Iterable[int]], list[str]]


_lookups: list[OwnerLookup] = []


def register_owner_lookup(lookup: OwnerLookup) -> None:
    _lookups[:] = [lookup]


def owner_of(service: str) -> Tenant:
    """Raises NotFound when no service has this name."""
    for lookup in _lookups:
        if (owner := lookup.owner_of(service)) is not None:
            return owner
    raise no_such_service(service)


def no_such_service(service: str) -> NotFound:
    """The same words for one that does not exist and one that the caller may not see."""
    return NotFound(
        f"There is no service {service!r} here, or it is not yours to see.",
        fields={"service": "no service that you may see has this name"},
    )


def services_of(tenants: Iterable[int]) -> list[str]:
    """Names of the services that these tenants own."""
    return [name for lookup in _lookups for name in lookup.owned_by(tenants)]
