"""Which tenant a person looks at. It narrows what lists show; what a person may do stays their own rights."""

from dataclasses import replace

from django.http import HttpRequest

from console.tenants.models import Role, Tenant
from console.tenants.permissions import Actor, actor_of, visible_tenants

SESSION_KEY = "tenant"
_KNOWN = "_pilothouse_tenant"


def chosen_tenant(request: HttpRequest) -> Tenant | None:
    """The tenant picked in the top bar; None is all of them, also when the pick is no longer visible."""
    kept = vars(request)
    if _KNOWN not in kept:
        slug = request.session.get(SESSION_KEY)
        kept[_KNOWN] = visible_tenants(actor_of(request)).filter(slug=slug).first() if slug else None
    found: Tenant | None = kept[_KNOWN]
    return found


def choose_tenant(request: HttpRequest, slug: str) -> None:
    """An empty or foreign slug goes back to all tenants."""
    if slug and visible_tenants(actor_of(request)).filter(slug=slug).exists():
        request.session[SESSION_KEY] = slug
    else:
        request.session.pop(SESSION_KEY, None)
    vars(request).pop(_KNOWN, None)


def reader_of(request: HttpRequest) -> Actor:
    """The actor as far as lists are concerned: only the chosen tenant's eyes."""
    actor = actor_of(request)
    tenant = chosen_tenant(request)
    if tenant is None:
        return actor
    role = actor.role_in(tenant) or Role.VIEWER
    return replace(actor, roles={tenant.pk: role}, is_superuser=False)
