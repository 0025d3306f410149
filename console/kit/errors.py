"""Refusals that a caller can act on.

Each has a stable `code`, a sentence for a person and named `fields`; console.kit.problems turns it into the API body,
the pages into the line of a dialog.
"""

from collections.abc import Mapping


class OperationError(Exception):
    code = "refused"
    status = 409

    def __init__(self, detail: str, *, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = dict(fields or {})


class Invalid(OperationError):
    """Bad input. `fields` names what is wrong with each."""

    code = "invalid"
    status = 400


class Forbidden(OperationError):
    """The object may be seen, the verb is not allowed."""

    code = "forbidden"
    status = 403


class NotFound(OperationError):
    """Also for objects of another tenant: their existence is not told."""

    code = "not_found"
    status = 404


class Conflict(OperationError):
    """A lost race, a stale revision, or a state that does not allow the verb."""

    code = "conflict"


class Unavailable(OperationError):
    """Something this operation needs is away; `permanent` is False: trying again can help."""

    code = "unavailable"
    status = 503
