"""Refusals that a caller can act on.

Each has a stable `code`, a sentence for a person and named `fields`; console.kit.problems turns it into the API body,
the pages into the line of a dialog.
"""

from collections.abc import Mapping


class OperationError(Exception):
    code = "refused"
    status = 409

    def __init__(
        self, detail: str, *, fields: Mapping[str, str] | None = None, code: str | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = dict(fields or {})
        if code is not None:
            self.code = code


class Invalid(OperationError):
    """Bad input. `fields` names what is wrong with each."""

    code = "invalid"
    status = 400


class Unauthenticated(OperationError):
    """Nobody known is asking."""

    code = "not_authenticated"
    status = 401


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


class Stale(Conflict):
    """The row changed since the caller read it."""

    code = "stale"


class TooLarge(OperationError):
    """More bytes than this address takes."""

    code = "too_large"
    status = 413


class TooMany(OperationError):
    """Asked too often; `retry_after_seconds` tells when it can work again."""

    code = "too_many_requests"
    status = 429

    def __init__(
        self, detail: str, *, retry_after_seconds: float, fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail, fields=fields)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(OperationError):
    """Something this operation needs is away; `permanent` is False: trying again can help."""

    code = "unavailable"
    status = 503
