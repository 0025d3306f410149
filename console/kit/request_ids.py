"""One id for each request: taken from `x-request-id` or made, sent back, and written on every log line."""

import logging
import re
import uuid
from contextvars import ContextVar

HEADER = "x-request-id"

_current: ContextVar[str] = ContextVar("pilothouse_request_id", default="")
_SHAPE = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def current() -> str:
    """The id of the request being answered; empty outside of one."""
    return _current.get()


def begin(offered: str | None) -> str:
    """Use the caller's id when it is harmless in a header and a log line, else make one."""
    request_id = offered if offered and _SHAPE.fullmatch(offered) else uuid.uuid4().hex
    _current.set(request_id)
    return request_id


class RequestIdFilter(logging.Filter):
    """Gives every log record `request_id`, `-` outside of a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current() or "-"
        return True
