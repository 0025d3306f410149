"""Who owns a service, and so may grant it to other tenants.

Services stand above tenants in the import order, so console.services tells us in its AppConfig.ready how to ask.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from console.kit.errors import Invalid
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
    """Raises Invalid when no service has this name."""
    for lookup in _lookups:
        if (owner := lookup.owner_of(service)) is not None:
            return owner
    raise Invalid(
        f"There is no service {service!r}.",
        fields={"service": "no service has this name; register one first"},
    )


def services_of(tenants: Iterable[int]) -> list[str]:
    """Names of the services that these tenants own."""
    return [name for lookup in _lookups for name in lookup.owned_by(tenants)]
