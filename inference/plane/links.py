"""The plane's side of one worker: connect, greet, keep batches in flight, tell the pool what came of them."""

import asyncio
import contextlib
import json
import os
import socket
from struct import Struct
from struct import error as StructError  # noqa: N812 - as the class it is
from time import monotonic
from typing import Protocol, cast

import msgspec

from inference.plane import frames, slots
from inference.plane.batcher import Job
from inference.plane.outbox import OUTBOX
from inference.plane.packing import Buffer
from inference.plane.plans import Wire
from inference.plane.probe import LinkStatus, WorkerStatus
from inference.plane.regions import Shared
from inference.plane.routes import WorkerRoute
from inference.protocol import ReplicaState, decode

MAX_LAYOUTS = 1024
# A second batch on its way hides the socket's round trip; worth it only where a batch is about as short as that.
PIPELINE_SECONDS = 0.002
FIRST_RETRY_SECONDS = 0.02
LAST_RETRY_SECONDS = 0.5
TRIM_BYTES = 8 << 20


class Batch:
    """Jobs inside a worker. rows: joined, or -1 when the model does not batch."""

    __slots__ = ("jobs", "rows", "slot")

    def __init__(self, jobs: list[Job], rows: int, slot: int) -> None:
        self.jobs = jobs
        self.rows = rows
        self.slot = slot


class Outputs(msgspec.Struct):
    """A worker's answer to a batch: for each output its datatype code, dims and data. Nanoseconds by phase."""

    pieces: list[tuple[int, tuple[int, ...], Buffer]]
    input_ns: int
    run_ns: int
    output_ns: int


class Owner(Protocol):
    """What a link tells; the pool of its version."""

    def link_ready(self, worker: WorkerStatus) -> None: ...

    def batch_ran(self, batch: Batch, outputs: Outputs) -> None: ...

    def batch_failed(self, batch: Batch, status: int, sentence: str) -> None: ...

    def link_lost(self, batches: list[Batch], *, was_ready: bool) -> None:
        """batches: what was in flight, oldest first; the worker was at work on the first one only."""

    def link_changed(self) -> None:
        """A link's state is another one."""

    def pump(self) -> None: ...


class Link(asyncio.Protocol):
    """state: connecting, or the worker's own. Reconnects until closed."""

    def __init__(self, route: WorkerRoute, owner: Owner, instance: str) -> None:
        self.route = route
        self.state = "connecting"
        self.detail = ""
        self.worker: WorkerStatus | None = None
        self.batches: dict[int, Batch] = {}
        self.depth = 1
        self._owner = owner
        self._instance = instance
        self._number = 0
        self._run_seconds = 1.0
        self._transport: asyncio.Transport | None = None
        self._slab: slots.Slab | None = None
        self._free: list[int] = []
        self._layouts: dict[Wire, tuple[int, Struct]] = {}
        self._buffer = bytearray()
        self._lost = asyncio.Event()
        self._retiring = False
        self._was_ready = False
        self._touched = 0
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    @property
    def accepts(self) -> bool:
        return self.state == "ready" and len(self.batches) < self.depth

    def status(self) -> LinkStatus:
        route = self.route
        inflight = sum(len(batch.jobs) for batch in self.batches.values())
        return LinkStatus(
            route.service, route.version, route.ordinal, route.socket, self.state, self.detail, inflight
        )

    async def _keep(self) -> None:
        """Connected or trying to be, until retired."""
        wait = FIRST_RETRY_SECONDS
        while not self._retiring:
            try:
                await self._connect()
            except OSError:
                await asyncio.sleep(wait)
                wait = min(wait * 1.5, LAST_RETRY_SECONDS)
                continue
            await self._lost.wait()
            wait = FIRST_RETRY_SECONDS
            if not self._retiring:
                await asyncio.sleep(wait)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
            # Connecting to a Unix socket never waits but for a full backlog, and then it says so.
            sock.connect(self.route.socket)
            slab, fd = slots.create()
            try:
                hello = json.dumps({"as": "plane", "instance": self._instance}).encode()
                socket.send_fds(sock, [frames.pack(frames.Kind.HELLO, hello)], [fd])
            except OSError:
                slab.close()
                raise
            finally:
                os.close(fd)
            self._slab = slab
            self._lost.clear()
            await loop.create_unix_connection(lambda: self, sock=sock)
        except OSError:
            sock.close()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=64 << 20)
        self._buffer.clear()
        self._layouts.clear()
        self._free = list(range(slots.SLOTS))
        self.state, self.detail, self.depth = "starting", "", 1
        self._owner.link_changed()

    def connection_lost(self, exc: Exception | None) -> None:
        batches = list(self.batches.values())
        self.batches.clear()
        self._transport = None
        if self._slab is not None:
            self._slab.close()
            self._slab = None
        if self.state != "crashed":
            self.state = "connecting"
        self._owner.link_changed()
        self._lost.set()
        was_ready, self._was_ready = self._was_ready, False
        self._owner.link_lost(batches, was_ready=was_ready)

    def retire(self) -> None:
        """No more batches; hang up once those in hand are back."""
        self._retiring = True
        if self.state == "ready":
            self.state = "draining"
        self._hang_up_if_done()

    def close(self) -> None:
        self._retiring = True
        if self._transport is not None:
            self._transport.abort()
        self._keeper.cancel()

    async def closed(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeper

    def _hang_up_if_done(self) -> None:
        if self.batches:
            return
        if self.state == "draining" or self._retiring:
            if self._transport is not None:
                self._transport.close()
            elif self._retiring:
                self._keeper.cancel()

    def send(self, jobs: list[Job]) -> None:
        """Put a batch of one wire on its way; only while `accepts`."""
        transport = self._transport
        assert transport is not None and self._slab is not None
        wire = jobs[0].wire
        layout, head = self._layouts.get(wire) or self._define(wire, transport)
        slot = self._free.pop()
        rows = -1
        if wire.batched:
            rows = jobs[0].rows if len(jobs) == 1 else sum([job.rows for job in jobs])
        self._number = number = (self._number + 1) & 0xFFFFFFFF
        places: list[int] = []
        parts: list[Buffer] = [b""]
        length, free = head.size, 0
        for index in range(len(wire.inputs)):
            pieces = [job.buffers[index] for job in jobs]
            size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            if size >= slots.LARGE and free + size <= slots.AREA:
                area, at = self._slab.request(slot), free
                for piece in pieces:
                    end = at + len(piece)
                    if isinstance(piece, Shared):
                        piece.read_into(area[at:end])
                    else:
                        area[at:end] = piece
                    at = end
                places += (size, free)
                free = slots.aligned(at)
                continue
            places += (size, frames.INLINE)
            if size >= slots.LARGE:  # the slot is full
                pieces = [bytes(piece) for piece in pieces]
            parts += pieces
            gap = -size & 15
            if gap:
                parts.append(bytes(gap))
            length += size + gap
        self._touched += free
        left = max([job.deadline for job in jobs]) - monotonic()
        stop_us = min(max(int(left * 1e6), 1), frames.LONGEST_RUN_US)
        parts[0] = head.pack(length - 4, frames.Kind.RUN, slot, layout, number, rows, stop_us, *places)
        self.batches[number] = Batch(jobs, rows, slot)
        transport.writelines(parts)

    def _define(self, wire: Wire, transport: asyncio.Transport) -> tuple[int, Struct]:
        """Tell the worker of a wire it has not seen on this connection."""
        if len(self._layouts) >= MAX_LAYOUTS:
            self._layouts.clear()  # ids start again; frames arrive in order, so a new meaning replaces an old one
        number = len(self._layouts)
        layout = frames.Layout(
            id=number,
            batched=wire.batched,
            inputs=tuple((name, datatype.name, dims) for name, datatype, dims in wire.inputs),
            outputs=wire.outputs,
        )
        transport.write(frames.pack(frames.Kind.LAYOUT, msgspec.json.encode(layout)))
        found = self._layouts[wire] = number, frames.run_struct(len(wire.inputs))
        return found

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < frames.HEAD.size or len(buffer) - 4 < frames.HEAD.unpack_from(buffer)[0]:
                return
            data = bytes(buffer)
            buffer.clear()
        at, end = 0, len(data)
        OUTBOX.hold()
        try:
            while end - at >= frames.HEAD.size:
                size, kind = frames.HEAD.unpack_from(data, at)
                if not 1 <= size <= frames.LIMIT:
                    raise ValueError("frame length out of bounds")
                if end - at - 4 < size:
                    break
                self._frame(kind, data, at + frames.HEAD.size, at + 4 + size)
                at += 4 + size
        except (ValueError, KeyError, IndexError, StructError) as error:
            self.detail = f"the worker does not speak our language: {error}"
            if self._transport is not None:
                self._transport.abort()
            return
        finally:
            OUTBOX.release()
        if at < end:
            buffer += data[at:] if at else data

    def _frame(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind == frames.Kind.RESULT:
            self._result(data, at, end)
        elif kind == frames.Kind.FAILED:
            number, status = frames.FAILED.unpack_from(data, at)
            sentence = data[at + frames.FAILED.size : end].decode(errors="replace")
            self._owner.batch_failed(self._done(number), status, sentence)
            self._owner.pump()
            self._hang_up_if_done()
        elif kind == frames.Kind.STATUS:
            self._status(decode(data[at:end], WorkerStatus))
        else:
            raise ValueError("unexpected frame")

    def _done(self, number: int) -> Batch:
        batch = self.batches.pop(number)
        self._free.append(batch.slot)
        return batch

    def _result(self, data: bytes, at: int, end: int) -> None:
        number, input_ns, run_ns, output_ns, count = frames.RESULT.unpack_from(data, at)
        at += frames.RESULT.size
        heads = []
        for _ in range(count):
            code, rank, size, offset = frames.OUTPUT.unpack_from(data, at)
            at += frames.OUTPUT.size
            heads.append((code, frames.read_dims(data, at, rank), size, offset))
            at += 8 * rank
        batch = self.batches[number]
        pieces: list[tuple[int, tuple[int, ...], Buffer]] = []
        for code, dims, size, offset in heads:
            if offset == frames.INLINE:
                pieces.append((code, dims, data[at : at + size]))
                at += size
            else:
                assert self._slab is not None
                area = self._slab.answer(batch.slot)
                if offset + size > len(area):
                    raise ValueError("an output lies outside its slot")
                pieces.append((code, dims, area[offset : offset + size]))
                self._touched += size
        if at != end:
            raise ValueError("a result of the wrong length")
        run_seconds = run_ns / 1e9
        # Quick to believe a short run, slow to believe a long one: on a busy machine many are long by accident.
        if run_seconds < self._run_seconds:
            self._run_seconds = run_seconds
        else:
            self._run_seconds += 0.02 * (run_seconds - self._run_seconds)
        self.depth = slots.SLOTS if self._run_seconds < PIPELINE_SECONDS else 1
        # The slot counts as used until the owner has read the pieces out of it.
        self._owner.batch_ran(batch, Outputs(pieces, input_ns, run_ns, output_ns))
        self._done(number)
        self._owner.pump()
        self._hang_up_if_done()

    def _status(self, worker: WorkerStatus) -> None:
        self.worker = worker
        if self._retiring:
            return
        was, self.state, self.detail = self.state, worker.state.value, worker.detail
        self._owner.link_changed()
        if worker.state is ReplicaState.READY and was != "ready":
            self._run_seconds = max(worker.load_phases.get("warmup", 1.0), 0.01)
            self._was_ready = True
            self._owner.link_ready(worker)
        elif worker.state is ReplicaState.DRAINING:
            self._hang_up_if_done()

    def trim(self) -> None:
        """Give pages of large batches back while nothing is in flight."""
        if self._slab is not None and not self.batches and self._touched > TRIM_BYTES:
            self._slab.trim()
            self._touched = 0
