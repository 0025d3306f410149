"""Small readers of a REST request that every API file needs."""

from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.utils.dateparse import parse_datetime
from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer

from console.kit.errors import Invalid, NotFound

M = TypeVar("M", bound=Model)

_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no", ""}


def body_of(
    request: Request, serializer: type[BaseSerializer[Any]], *, partial: bool = False
) -> dict[str, Any]:
    """The validated body. Raises ValidationError by field."""
    reader = serializer(data=request.data, partial=partial)
    reader.is_valid(raise_exception=True)
    return dict(reader.validated_data)


def flag_param(request: Request, name: str) -> bool:
    raw = request.query_params.get(name, "").lower()
    if raw in _TRUE:
        return True
    if raw in _FALSE:
        return False
    raise Invalid("A parameter is not valid.", fields={name: "true or false"})


def wants_dry_run(request: Request) -> bool:
    """`?dry_run=true`: say what would happen and do nothing. Any other word than true or false is refused."""
    return flag_param(request, "dry_run")


def time_param(request: Request, name: str) -> datetime | None:
    """An ISO 8601 time, UTC when it names no zone; None when absent."""
    raw = request.query_params.get(name)
    if not raw:
        return None
    try:
        found = parse_datetime(raw.replace(" ", "+"))  # a + that was not escaped arrives as a space
    except ValueError:
        found = None
    if found is None:
        raise Invalid("A parameter is not valid.", fields={name: "a time such as 2026-01-31T12:00:00Z"})
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def one(rows: QuerySet[M], **by: Any) -> M:
    """The single row, or NotFound - the same for a row that is missing and one that is not the caller's to see."""
    found = rows.filter(**by).first()
    if found is None:
        # What the caller sent is told back: a pipeline's log then says which of its names is wrong.
        asked = ", ".join(str(value)[:100] for value in by.values())
        raise NotFound(
            f"There is no {rows.model._meta.verbose_name} {asked} here, or it is not yours to see."
        )
    return found
