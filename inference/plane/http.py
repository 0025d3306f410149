"""HTTP/1.1 by hand: httptools on an asyncio protocol, no framework and no task for a request.

Requests of one connection are answered in the order they came, one at a time; a client that sends ahead waits. Whatever
a peer sends, memory and time for it are bounded: header bytes, body bytes, chunks, connections, seconds in each phase.
"""

import asyncio
import logging
import time
from collections import deque
from typing import Any, cast

import httptools

from inference.plane.exchange import REASONS, WANTED, WANTED_LENGTHS, Application, Exchange, Limits
from inference.plane.outbox import OUTBOX
from inference.plane.refusals import RefusedError
from inference.plane.tls import names_of

log = logging.getLogger(__name__)

MAX_HEADER_BYTES = 16 << 10
HEADER_COST = 32  # what a line counts beside its bytes, so that their number is bounded too
MAX_TARGET_BYTES = 4 << 10
MAX_CHUNKS = 65_536
SMALL_BODY = (
    64 << 10
)  # a refused request's body up to this is read and dropped, so that the connection lives on
MAX_AHEAD = 8
LINGER_SECONDS = 2.0


class Server:
    """What the connections share."""

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application = application
        self.limits = limits
        self.connections: set[Connection] = set()
        self.buffered = 0
        self.draining = False
        self.now = time.monotonic()
        self.routing: dict[bytes, str] = {}
        self.lengths = WANTED_LENGTHS

    def route_by(self, headers: frozenset[str]) -> None:
        """Keep the values of these headers too, from the next request on."""
        self.routing = {name.encode("latin-1", "replace"): name for name in headers}
        self.lengths = WANTED_LENGTHS | {len(name) for name in self.routing}

    def __call__(self) -> "Connection":
        return Connection(self)

    def tick(self, now: float) -> None:
        """Once a second or so: whoever is too slow in its phase goes."""
        self.now = now
        for connection in [one for one in self.connections if one.deadline <= now]:
            connection.time_out()

    def drain(self) -> None:
        self.draining = True
        for connection in list(self.connections):
            connection.close_when_idle()


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.deadline = server.now + server.limits.header_seconds
        self.peer = ""
        self.names: tuple[str, ...] = ()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._reading: Exchange | None = None
        self._current: Exchange | None = None
        self._ahead: deque[Exchange] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._chunks = 0
        self._head_bytes = 0
        self._in_head = False
        self._progress = 0
        self._stuck_bytes = 0
        self._deaf = False
        self._ended = False  # by the client's end of file
        self._paused = False
        self._advancing = False
        self.memo: Any = None  # of the application: what it found out about this connection's last request

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self.names = names_of(transport.get_extra_info("peercert"))
        server = self.server
        if len(server.connections) >= server.limits.connections:
            self._deaf = True
            exchange = Exchange(self)
            exchange.close = True
            server.connections.add(self)
            self._current = exchange
            server.application.refuse(exchange, RefusedError(503, "too many connections"))
            return
        server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        self._drop_body()
        self._forget_ahead()
        current, self._current = self._current, None
        self._deaf = True
        if current is not None:
            self.server.buffered -= len(current.body)
        if current is not None and not current.done:
            current.done = True
            self.server.application.gone(current)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._deaf = (
                True  # the offer is ignored: the request is answered as it is, then the connection closes
            )
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._break(cause if isinstance(cause, RefusedError) else RefusedError(400, "bad request"))
        except httptools.HttpParserError as error:
            self._break(RefusedError(400, f"not HTTP/1.1: {error}"))
        else:
            if self._reading is not None:
                self._check_progress(len(data))

    def eof_received(self) -> bool:
        """The client has said all it will: what it asked is answered, then the connection closes.

        A client that has left altogether looks the same until it is written to.
        """
        self._ended = True
        if self._reading is not None:
            self._break(RefusedError(400, "the request ends early"))
        self._deaf = True
        last = self._ahead[-1] if self._ahead else self._current
        if last is None:
            return False
        last.close = True
        return True

    def _check_progress(self, fed: int) -> None:
        """An endless header never reaches on_header and yet is kept by the parser: bound what led to nothing."""
        progress = self._head_bytes + self._size + self._chunks
        self._stuck_bytes = self._stuck_bytes + fed if progress == self._progress else 0
        self._progress = progress
        if self._stuck_bytes > MAX_HEADER_BYTES:
            self._break(RefusedError(431, f"headers are above {MAX_HEADER_BYTES} bytes"))

    def pause_writing(self) -> None:
        self._paused = True
        self.deadline = self.server.now + self.server.limits.write_seconds

    def resume_writing(self) -> None:
        self._paused = False
        self.deadline = self.server.now + self.server.limits.idle_seconds
        self._advance()

    # Parser

    def on_message_begin(self) -> None:
        self._reading = Exchange(self)
        self._in_head = True
        self._head_bytes = self._size = self._chunks = self._stuck_bytes = 0
        self._progress = -1  # like requests reach like counts: the one before must not look like a standstill
        if self._current is None:
            self.deadline = self.server.now + self.server.limits.header_seconds

    def on_url(self, target: bytes) -> None:
        reading = self._reading
        assert reading is not None
        reading.target = reading.target + target if reading.target else target
        if len(reading.target) > MAX_TARGET_BYTES:
            raise RefusedError(431, f"the target is above {MAX_TARGET_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes = size = self._head_bytes + len(name) + len(value) + HEADER_COST
        if size > MAX_HEADER_BYTES:
            raise RefusedError(431, f"headers are above {MAX_HEADER_BYTES} bytes")
        if len(name) not in self.server.lengths:
            return
        wanted = WANTED.get(name.lower())
        if wanted is None:
            self._note_routing(name.lower(), value)
        elif self._in_head:  # a trailer changes nothing
            slot, single = wanted
            if single and getattr(self._reading, slot) is not None:
                raise RefusedError(400, f"header {name.decode('latin-1')} is given twice")
            setattr(self._reading, slot, value)

    def _note_routing(self, name: bytes, value: bytes) -> None:
        """A header that a service routes by; the first of several counts."""
        known = self.server.routing.get(name)
        if known is not None and self._in_head and self._reading is not None:
            self._reading.routing = {known: value.decode("latin-1").strip(), **self._reading.routing}

    def on_headers_complete(self) -> None:
        reading = self._reading
        assert reading is not None
        self._in_head = False
        reading.method = self._parser.get_method()
        reading.close = not self._parser.should_keep_alive()
        self._check_form(reading)
        length = int(reading.content_length) if reading.content_length is not None else 0
        if self._parser.should_upgrade():
            reading.close = True
            if length or reading.transfer_encoding is not None:
                raise RefusedError(400, "a request with a body cannot offer to upgrade the protocol")
        limit = self.server.limits.body_bytes
        if length > limit:
            raise RefusedError(413, f"the body has {length} bytes, the limit is {limit}")
        try:
            self.server.application.admit(reading)
        except RefusedError as error:
            reading.refusal = error
            if length > SMALL_BODY or reading.transfer_encoding is not None or reading.expect is not None:
                raise  # its body is not worth reading
        if length or reading.transfer_encoding is not None:
            if self._current is None:
                self.deadline = self.server.now + self.server.limits.body_seconds
            if reading.expect is not None and reading.refusal is None:
                if reading.expect.lower() != b"100-continue":
                    raise RefusedError(417, "the only expectation known is 100-continue")
                if self._current is None:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_form(self, reading: Exchange) -> None:
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise RefusedError(505, f"HTTP/{version} is not spoken here, only HTTP/1.1 and HTTP/1.0")
        if reading.host is None and version == "1.1":
            raise RefusedError(400, "header host is missing")
        coding = reading.transfer_encoding
        if coding is not None and coding.lower() != b"chunked":
            raise RefusedError(501, "the only transfer-encoding known is chunked")

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            raise RefusedError(413, f"the body has more than {MAX_CHUNKS} chunks")

    def on_body(self, part: bytes) -> None:
        size = len(part)
        self._size += size
        server = self.server
        if self._size > server.limits.body_bytes:
            raise RefusedError(413, f"the body is above the limit of {server.limits.body_bytes} bytes")
        if self._reading is not None and self._reading.refusal is not None:
            return
        server.buffered += size
        self._parts.append(part)
        if server.buffered > server.limits.buffered_bytes:
            raise RefusedError(503, "too many bytes of requests are in memory; try again")
        if len(self._parts) > 1024:
            self._parts = [b"".join(self._parts)]

    def on_message_complete(self) -> None:
        reading = self._reading
        assert reading is not None
        self._reading = None
        parts = self._parts
        if parts:
            reading.body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._parts = []
        if self._current is None and not self._ahead:
            self._begin(reading)
        else:
            self._enqueue(reading)

    # Order

    def _enqueue(self, exchange: Exchange) -> None:
        self._ahead.append(exchange)
        if len(self._ahead) >= MAX_AHEAD:
            self._transport.pause_reading()
        self._advance()

    def _advance(self) -> None:
        """Serve what waits, one by one; a loop, because an answer may be there at once a thousand times in a row."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._ahead and self._current is None and not self._paused:
                self._begin(self._ahead.popleft())
                if len(self._ahead) == MAX_AHEAD - 1 and not self._deaf:
                    self._transport.resume_reading()
        finally:
            self._advancing = False

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        self.deadline = float("inf")  # from here on the request's own deadline counts
        try:
            if exchange.refusal is not None:
                raise exchange.refusal
            self.server.application.serve(exchange)
        except RefusedError as error:
            self.server.application.refuse(exchange, error)
        except Exception:
            log.exception("request failed inside the plane")
            self.server.application.refuse(exchange, RefusedError(500, "internal error"))

    def _break(self, error: RefusedError) -> None:
        """What follows on this connection cannot be understood or is not wanted: answer in turn, then close."""
        self._deaf = True
        exchange = self._reading or Exchange(self)
        self._reading = None
        self._drop_body()
        exchange.refusal, exchange.close = error, True
        self._ahead.append(exchange)
        self._advance()

    def _forget_ahead(self) -> None:
        for exchange in self._ahead:
            self.server.buffered -= len(exchange.body)
        self._ahead.clear()

    def _drop_body(self) -> None:
        for part in self._parts:
            self.server.buffered -= len(part)
        self._parts = []

    # Answers

    def send(self, exchange: Exchange, status: int, head: bytes, body: bytes) -> None:
        if exchange.done:
            return
        exchange.done = True
        server = self.server
        server.buffered -= len(exchange.body)
        exchange.body = b""
        close = exchange.close or server.draining
        line = b"connection: close\r\n" if close else b""
        answer = b"HTTP/1.1 %d %s\r\ncontent-length: %d\r\n%s%s\r\n" % (
            status,
            REASONS[status],
            len(body),
            line,
            head,
        )
        held = OUTBOX.held
        if held is not None and not close and len(body) <= 65536 and exchange.method != b"HEAD":
            held.append((self._transport, answer + body))
        else:
            if held:
                OUTBOX.flush()
            if exchange.method == b"HEAD" or len(body) > 65536:
                self._transport.write(answer)
                if exchange.method != b"HEAD":
                    self._transport.write(body)
            else:
                self._transport.write(answer + body)
        self._current = None
        if close:
            self._deaf = True
            self._forget_ahead()
            if exchange.refusal is None or self._ended:
                self._transport.close()
            else:
                # Closing on unread data resets the connection and may destroy the answer on its way: read on a little.
                self._transport.write_eof()
                self.deadline = server.now + LINGER_SECONDS
            return
        if not self._paused:
            self.deadline = server.now + server.limits.idle_seconds
        if self._ahead:
            self._advance()

    def close_when_idle(self) -> None:
        if self._current is None and self._reading is None:
            self._deaf = True
            self._transport.close()

    def time_out(self) -> None:
        if self._paused:
            self._transport.abort()
        elif self._reading is not None:
            self.deadline = self.server.now + self.server.limits.write_seconds
            self._break(RefusedError(408, "the request took too long to arrive"))
        else:
            self._deaf = True
            self._transport.close()
