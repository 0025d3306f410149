"""Who owns a service, and so may grant it to other tenants.

Services stand above tenants in the import order, so console.services tells us in its AppConfig.ready how to ask.
"""

from collections.abc import Callable

from console.kit.errors import Invalid
from console.tenants.models import Tenant

OwnerLookup = Callable[[str], Tenant | None]

_lookups: list[OwnerLookup] = []


def register_owner_lookup(lookup: OwnerLookup) -> None:
    """lookup: service name -> the tenant that owns it, None for an unknown name."""
    _lookups[:] = [lookup]


def owner_of(service: str) -> Tenant:
    """Raises Invalid when no service has this name."""
    for lookup in _lookups:
        if (owner := lookup(service)) is not None:
            return owner
    raise Invalid(
        f"There is no service {service!r}.",
        fields={"service": "no service has this name; register one first"},
    )
