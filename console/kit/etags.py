"""`ETag` and `If-Match` over a row's `revision`: two people who edit the same row do not overwrite each other."""

import re
from typing import Any, Protocol, TypeVar

from django.db.models import F, Model
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit.errors import Invalid, NotFound, Stale

NO_REVISION = 0  # rows begin with 1
_ETAG = re.compile(r'^(?:W/)?"(\d{1,18})"$')


class Revised(Protocol):
    pk: Any
    revision: int


R = TypeVar("R", bound=Model)


def etag_of(revision: int) -> str:
    return f'"{revision}"'


def expected_revision(request: HttpRequest | Request) -> int | None:
    """The revision named by If-Match; None when the header is missing or `*`. Raises Invalid for anything else.

    An empty one is there and names no revision: NO_REVISION, which no row has. A client that lost its ETag must not
    overwrite as if it had never asked to be careful.
    """
    given = request.headers.get("If-Match")
    raw = "*" if given is None else given.strip()
    if raw == "*":
        return None
    if raw in ("", '""', 'W/""'):
        return NO_REVISION
    match = _ETAG.match(raw)
    if match is None:
        raise Invalid(
            "If-Match must hold one ETag as it was given.",
            fields={"If-Match": 'expected a revision in quotes, such as "3"'},
        )
    return int(match.group(1))


def tagged(response: Response, revision: int) -> Response:
    """The response with the row's ETag."""
    response["ETag"] = etag_of(revision)
    return response


def stale(found: int, expected: int) -> Stale:
    saw = f"you saw revision {expected}" if expected != NO_REVISION else "If-Match names no revision"
    why = "It was changed meanwhile" if expected != NO_REVISION else "Nothing was changed"
    return Stale(
        f"{why}: {saw}, it is {found} now. Read it again.",
        fields={"If-Match": f"current revision is {found}"},
    )


def check_revision(row: Revised, expected: int | None) -> None:
    """Refuse a verb that was meant for an older state of the row."""
    if expected is not None and row.revision != expected:
        raise stale(row.revision, expected)


def write(row: R, *, expected: int | None, **changes: Any) -> R:
    """Update `row` and its revision in one statement, on condition of `expected`. Raises Stale on a lost race."""
    rows = type(row)._default_manager.filter(pk=row.pk)
    if expected is not None:
        rows = rows.filter(revision=expected)
    written = rows.update(**changes, revision=F("revision") + 1)
    now = type(row)._default_manager.filter(pk=row.pk).values_list("revision", flat=True).first()
    if now is None:
        raise NotFound("It is gone already.")
    if not written:
        raise stale(now, expected or 0)
    row.refresh_from_db()
    return row
