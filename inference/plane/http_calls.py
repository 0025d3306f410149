"""An inference request over HTTP, and what a connection remembers of its last one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from inference.plane import answers, extensions, refusals
from inference.plane.admission import Grant
from inference.plane.batcher import Piece
from inference.plane.calls import Call
from inference.plane.exchange import Exchange
from inference.plane.gateway import Service
from inference.plane.refusals import RefusedError
from inference.plane.regions import Place, Regions

JSON = b"content-type: application/json\r\n"
TENSORS = b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"


class Host(Protocol):
    """What a call needs of the application."""

    regions: Regions

    def unpacked(self, exchange: Exchange) -> bytes: ...

    def ids(self, exchange: Exchange) -> bytes: ...

    def count_refusal(self, tenant: str, service: str, limit: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Route:
    """A resolved target. keyed: it needs a key."""

    handler: Callable[[Exchange, "Route"], None]
    method: bytes
    keyed: bool
    service: str = ""
    version: int | None = None
    arg: str = ""


@dataclass(slots=True)
class Memo:
    """What a keep-alive connection's last inference request was, so that the next like it is not looked up again.

    It lives as long as the connection or the routes, whichever ends first, and no longer than the key.
    """

    target: bytes
    authorization: bytes | None
    generation: int
    expires_at: float
    route: Route
    tenant: str
    grant: Grant
    service: Service


class HttpCall(Call):
    """An inference request over HTTP that reached a version."""

    __slots__ = ("app", "exchange", "name", "places")

    protocol = "http"
    app: Host
    exchange: Exchange
    name: str
    places: list[Place | None] | None

    def admitted(self) -> None:
        try:
            self._submit()
        except RefusedError as error:
            self.refused(error)

    def _submit(self) -> None:
        """Raises RefusedError."""
        exchange, pool, regions = self.exchange, self.pool, self.app.regions
        body = exchange.body if exchange.content_encoding is None else self.app.unpacked(exchange)
        told = exchange.header_length
        own = regions.of(self.tenant) if regions.enabled else None
        plan, rows, buffers, self.name, told_timeout = pool.codec.parse(
            body, None if told is None else _length(told), own
        )
        if plan.wishes:
            self.places = extensions.places(own, plan.wire.outputs, plan.wishes)
        timeout = pool.timeout_seconds
        if told_timeout is not None and told_timeout < timeout:
            timeout = told_timeout
        self.carry(plan, rows, buffers, self.arrived + timeout)
        pool.submit(self)

    def answered(self, outputs: list[Piece]) -> None:
        exchange = self.exchange
        try:
            if self.app.regions.enabled:
                extensions.check_whole(self.buffers)
            if self.places is not None:
                outputs = extensions.granted(self.pool, self.plan, self.places, outputs)
            body, json_length = answers.write(self.pool.opening, self.plan, self.name, outputs)
        except RefusedError as error:
            self.refused(error)
            return
        kind = JSON if json_length is None else _tensors(json_length)
        if exchange.accept_encoding is not None:
            coding, body = answers.compressed(exchange.accept_encoding, body)
            kind += coding
        self.end(200, kind, body)

    def refused(self, error: RefusedError) -> None:
        if error.status == 503 and error.limit is not None:
            self.app.count_refusal(self.tenant, self.pool.service, error.limit.name)
        self.end(error.status, JSON + refusals.headers(error), refusals.body(error))

    def end(self, status: int, head: bytes, body: bytes) -> None:
        exchange = self.exchange
        exchange.state = None
        self.settle(status)
        exchange.connection.send(
            exchange, status, b"%s%s%s" % (head, self.pool.version_line, self.app.ids(exchange)), body
        )


@lru_cache(1024)
def _tensors(json_length: int) -> bytes:
    return TENSORS % json_length


@lru_cache(1024)
def _length(told: bytes) -> int:
    if not told.isdigit() or len(told) > 12:
        raise RefusedError(400, "inference-header-content-length must be a number of bytes")
    return int(told)
