"""ModelInfer and ModelStreamInfer: a call's way through the house, awaited by the coroutine that gRPC made for it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import lru_cache
from typing import Any

from inference.plane import extensions
from inference.plane.admission import Grant
from inference.plane.batcher import Piece
from inference.plane.calls import CLIENT_LEFT, Call
from inference.plane.gateway import NO_HEADERS, Gateway
from inference.plane.grpc import asks, wire
from inference.plane.pool import Pool
from inference.plane.refusals import RefusedError
from inference.plane.regions import Place, Regions

# A stream's requests in hand at once; the reader waits when the answers do not get away.
STREAM_AHEAD = 64


@lru_cache(4096)
def _opening(service: str, version: int) -> bytes:
    return wire.opening(service, str(version))


class GrpcCall(Call):
    """Ends by giving its future either the encoded answer or the RefusedError; never an exception, which would be lost
    with a warning when the client has gone."""

    __slots__ = ("final", "future", "left_seconds", "places", "regions", "request")

    protocol = "grpc"

    def __init__(
        self,
        gateway: Gateway,
        tenant: str,
        grant: Grant,
        pool: Pool,
        arrived: float,
        *,
        request: asks.Request,
        left_seconds: float | None,
        regions: Regions,
        final: bool,
    ) -> None:
        Call.__init__(self, gateway, tenant, grant, pool, arrived)
        self.request = request
        self.left_seconds = left_seconds
        self.regions = regions
        self.final = final
        self.places: list[Place | None] | None = None
        self.future: asyncio.Future[bytes | RefusedError] = asyncio.get_running_loop().create_future()

    def admitted(self) -> None:
        pool, request = self.pool, self.request
        try:
            own = self.regions.of(self.tenant) if self.regions.enabled else None
            plan, rows, buffers = asks.fit(pool.codec, request, own)
            if plan.wishes:
                self.places = extensions.places(own, plan.wire.outputs, plan.wishes)
            timeout = pool.timeout_seconds
            for told in (request.ask.timeout, self.left_seconds):
                if told is not None and told < timeout:
                    timeout = told
            self.carry(plan, rows, buffers, self.arrived + timeout)
            pool.submit(self)
        except RefusedError as error:
            self.refused(error)

    def answered(self, outputs: list[Piece]) -> None:
        try:
            answer = self._answer(outputs)
        except RefusedError as error:
            self.refused(error)
            return
        self.settle(200)
        self._tell(answer)

    def _answer(self, outputs: list[Piece]) -> bytes:
        pool, plan, request = self.pool, self.plan, self.request
        names = plan.wire.outputs
        if request.ask.shared:
            extensions.check_whole(self.buffers)
        if self.places is not None:
            outputs = extensions.granted(pool, plan, self.places, outputs)
        return wire.answer(
            _opening(pool.service, pool.version), request.identity, names, outputs, final=self.final
        )

    def refused(self, error: RefusedError) -> None:
        if error.limit is not None:
            self.gateway.meters.refused[self.tenant, self.pool.service, error.limit.name] += 1
        self.settle(error.status)
        self._tell(error)

    def _tell(self, result: bytes | RefusedError) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def abandon(self) -> None:
        """The client is gone or no longer waits."""
        if not self.future.done():
            self.settle(CLIENT_LEFT)
            self.pool.cancel(self)
            self.future.cancel()


class Inference:
    """The two inference methods, for requests whose tenant is known."""

    def __init__(self, gateway: Gateway, memory: Regions) -> None:
        self.gateway = gateway
        self.regions = memory
        self.reader = asks.Reader()
        self._streams: set[asyncio.Task[None]] = set()

    def start(
        self,
        tenant: str,
        data: bytes,
        left_seconds: float | None,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        stream: bool = False,
    ) -> GrpcCall:
        """A call on its way. headers: those that services route by. Raises RefusedError where it could not set out."""
        service = ""
        try:
            request = self.reader.read(data)
            service = request.ask.service
            return self._start(tenant, request, left_seconds, headers, stream=stream)
        except RefusedError as error:
            self.count(tenant, service, error)
            raise

    def count(self, tenant: str, service: str, error: RefusedError) -> None:
        """A request that reached no version."""
        meters = self.gateway.meters
        service = service if service in self.gateway.services else ""
        meters.outside[tenant, service, GrpcCall.protocol, error.status] += 1
        if error.limit is not None:
            meters.refused[tenant, service, error.limit.name] += 1

    def _start(
        self,
        tenant: str,
        request: asks.Request,
        left_seconds: float | None,
        headers: Mapping[str, str],
        *,
        stream: bool,
    ) -> GrpcCall:
        arrived = time.monotonic()
        gateway, ask = self.gateway, request.ask
        name = ask.service
        grant = gateway.admission.grant(tenant, name)
        service = gateway.services.get(name)
        if grant is None or service is None:
            raise RefusedError(404, f"Request for unknown model: '{name[:255]}' is not found")
        pool = service.choose(tenant, headers) if ask.number is None else service.pinned(ask.number)
        call = GrpcCall(
            gateway,
            tenant,
            grant,
            pool,
            arrived,
            request=request,
            left_seconds=left_seconds,
            regions=self.regions,
            final=stream and ask.final,
        )
        if call.start():
            call.admitted()
        return call

    async def one(
        self,
        tenant: str,
        data: bytes,
        left_seconds: float | None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> bytes:
        """Raises RefusedError."""
        call = self.start(tenant, data, left_seconds, headers)
        try:
            result = await call.future
        except asyncio.CancelledError:
            call.abandon()
            raise
        if isinstance(result, RefusedError):
            raise result
        return result

    def routed(self, metadata: Iterable[Any]) -> Mapping[str, str]:
        """The metadata that services route by; the first of several counts."""
        names = self.gateway.routing_headers
        if not names:
            return NO_HEADERS
        found: dict[str, str] = {}
        for name, value in metadata:
            if name in names and isinstance(value, str):
                found.setdefault(name, value)
        return found

    async def many(
        self,
        tenant: str,
        requests: AsyncIterator[bytes],
        context: Any,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """A stream: answers in the order of the requests, errors in their place, many requests in hand at once."""
        queue: asyncio.Queue[GrpcCall | RefusedError | None] = asyncio.Queue(STREAM_AHEAD)
        reader = asyncio.get_running_loop().create_task(self._read(tenant, requests, queue, headers))
        self._streams.add(reader)
        current: GrpcCall | None = None
        try:
            while not (reader.done() and queue.empty()):
                item = await queue.get()
                if item is None:
                    return
                current = item if isinstance(item, GrpcCall) else None
                result = await item.future if isinstance(item, GrpcCall) else item
                current = None
                await context.write(wire.stream_answer(result))
        finally:
            reader.cancel()
            self._streams.discard(reader)
            await asyncio.gather(reader, return_exceptions=True)
            while not queue.empty():
                left = queue.get_nowait()
                if isinstance(left, GrpcCall):
                    left.abandon()
            if current is not None:
                current.abandon()

    async def _read(
        self,
        tenant: str,
        requests: AsyncIterator[bytes],
        queue: asyncio.Queue[GrpcCall | RefusedError | None],
        headers: Mapping[str, str],
    ) -> None:
        try:
            async for data in requests:
                try:
                    item: GrpcCall | RefusedError = self.start(tenant, data, None, headers, stream=True)
                except RefusedError as error:
                    item = error
                try:
                    await queue.put(item)
                except asyncio.CancelledError:
                    if isinstance(item, GrpcCall):
                        item.abandon()
                    raise
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(None)

    def end_streams(self) -> None:
        """What streams have in hand is answered, more is not read."""
        for reader in self._streams:
            reader.cancel()
