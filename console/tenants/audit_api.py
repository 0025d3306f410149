"""REST of the audit log, limited to what the caller may see."""

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.audit.api import FILTERS, EntryOut, filtered
from console.audit.models import Entry
from console.kit.rest import time_param
from console.tenants.permissions import Actor, actor_of, require, visible_tenants

_PARAMETERS = [
    *(OpenApiParameter(name, str) for name in FILTERS),
    OpenApiParameter("from", OpenApiTypes.DATETIME, description="at or after"),
    OpenApiParameter("to", OpenApiTypes.DATETIME, description="before"),
]


class AuditList(ListAPIView[Entry]):
    """Who did what to what, newest first."""

    serializer_class = EntryOut
    queryset = Entry.objects.none()

    def get_queryset(self) -> QuerySet[Entry]:
        rows = filtered(visible_entries(actor_of(self.request)), self.request.query_params)
        if start := time_param(self.request, "from"):
            rows = rows.filter(at__gte=start)
        if end := time_param(self.request, "to"):
            rows = rows.filter(at__lt=end)
        return rows

    @extend_schema(parameters=_PARAMETERS)
    def get(self, request: Request) -> Response:
        require(actor_of(request), "audit.view", None)
        return self.list(request)


def visible_entries(actor: Actor) -> QuerySet[Entry]:
    """Entries of the actor's tenants, and a person's own; those of the whole house are for superusers."""
    if actor.is_superuser:
        return Entry.objects.all()
    slugs = visible_tenants(actor).values_list("slug", flat=True)
    mine = Entry.objects.filter(tenant__in=list(slugs))
    if actor.token_id is None:  # token names are not unique over tenants
        mine = mine | Entry.objects.filter(tenant="", actor=actor.name)
    return mine
