"""One HTTP request and its answer, between the connection that reads it and the application that answers it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from inference.plane.refusals import RefusedError

REASONS = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden", 404: b"Not Found",
    405: b"Method Not Allowed", 408: b"Request Timeout", 413: b"Content Too Large", 415: b"Unsupported Media Type",
    417: b"Expectation Failed", 429: b"Too Many Requests", 431: b"Request Header Fields Too Large",
    500: b"Internal Server Error", 501: b"Not Implemented", 503: b"Service Unavailable", 504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}  # fmt: skip

# Headers we read; everything else is only counted. The slot of Exchange a header goes to, and whether a second one
# is refused as an attempt to be read in two ways.
WANTED = {
    b"host": ("host", True),
    b"authorization": ("authorization", True),
    b"inference-header-content-length": ("header_length", True),
    b"content-length": ("content_length", True),
    b"content-encoding": ("content_encoding", True),
    b"transfer-encoding": ("transfer_encoding", True),
    b"expect": ("expect", False),
    b"x-request-id": ("request_id", False),
    b"traceparent": ("traceparent", False),
    b"accept-encoding": ("accept_encoding", False),
    b"x-tenant-id": ("tenant_id", True),
    # Spellings that other servers fold into the one above; whoever may name a tenant is not let through with these.
    b"x_tenant_id": ("tenant_alias", True),
    b"x-tenant_id": ("tenant_alias", True),
    b"x_tenant-id": ("tenant_alias", True),
}
WANTED_LENGTHS = frozenset(map(len, WANTED))


class Sender(Protocol):
    memo: Any

    @property
    def peer(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Of the peer, from the certificate that it showed."""

    def send(self, exchange: "Exchange", status: int, head: bytes, body: bytes) -> None:
        """The whole answer, once. head: header lines with their line ends, without content-length."""


@dataclass(slots=True)
class Limits:
    """Seconds and bytes. buffered_bytes: bodies of all connections together."""

    body_bytes: int = 64 << 20
    buffered_bytes: int = 1 << 30
    connections: int = 4096
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0
    write_seconds: float = 30.0


class Exchange:
    """One request and its answer. The application sees it twice: `admit` after the headers, `serve` after the body.

    Defaults live in the class: one is made for each request, and most of them stay as they are.
    """

    target = b""
    method = b""
    body = b""
    host: bytes | None = None
    authorization: bytes | None = None
    header_length: bytes | None = None
    content_length: bytes | None = None
    content_encoding: bytes | None = None
    transfer_encoding: bytes | None = None
    expect: bytes | None = None
    request_id: bytes | None = None
    traceparent: bytes | None = None
    accept_encoding: bytes | None = None
    tenant_id: bytes | None = None
    tenant_alias: bytes | None = None
    refusal: RefusedError | None = None
    close = False
    done = False
    tenant = ""
    route: Any = None
    state: Any = None
    memo: Any = None
    routing: Mapping[str, str] = MappingProxyType({})

    def __init__(self, connection: Sender) -> None:
        self.connection = connection


class Application(Protocol):
    def admit(self, exchange: Exchange) -> None:
        """Route and authenticate. Raises RefusedError."""

    def serve(self, exchange: Exchange) -> None:
        """Answer now, or later by `exchange.send`. Raises RefusedError."""

    def refuse(self, exchange: Exchange, error: RefusedError) -> None:
        """Answer with an error body."""

    def gone(self, exchange: Exchange) -> None:
        """The client left before its answer."""
