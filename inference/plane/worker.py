"""The worker process: one replica of one version, behind one Unix socket.

Two threads. The main thread loads and then runs batches, one after the other, straight from the plane's socket. The
door thread accepts connections, answers probes at any time, hands the newest plane over and watches for SIGTERM.
"""

import argparse
import json
import os
import queue
import resource
import selectors
import signal
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from inference.contract import Contract, ContractError, from_json, parse_contract
from inference.graph import signature_to_json
from inference.plane import frames, slots
from inference.plane.engine import Engine, Output, Timing
from inference.plane.probe import WorkerStatus
from inference.plane.refusals import RefusedError
from inference.plane.runtimes import LoadError, Options, without_folders
from inference.plane.samples import read_samples
from inference.plane.unix import listen
from inference.protocol import ReplicaState, encode

DRAIN_SECONDS = 30.0
GREETING_SECONDS = 1.0
MAX_LAYOUTS = 1024


class Connection:
    """A plane's socket. Frames may be sent from both threads, so each goes out whole under the lock."""

    def __init__(self, sock: socket.socket, slab: slots.Slab | None) -> None:
        self.sock = sock
        self.slab = slab
        self.layouts: dict[int, frames.Layout] = {}
        self._lock = threading.Lock()

    def send(self, data: bytes) -> None:
        with self._lock:
            self.sock.sendall(data)

    def tell(self, worker: "Worker") -> None:
        """Send the worker's status; hang up when that fails.

        Asked for under the lock: were it asked for before, an older word of one thread could follow a newer one of the
        other, and the plane would believe for ever that a ready worker is loading.
        """
        try:
            with self._lock:
                self.sock.sendall(frames.pack(frames.Kind.STATUS, encode(worker.status())))
        except OSError:
            self.hang_up()

    def hang_up(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it already went


class Worker:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.instance = uuid.uuid4().hex
        self.engine: Engine | None = None
        self.state = ReplicaState.STARTING
        self.since = time.time()
        self.detail = ""
        self.batch_safe = True
        self.busy_since: float | None = None
        self.batches = 0
        self.plane: Connection | None = None
        self.planes: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()

    def become(self, state: ReplicaState, detail: str = "") -> None:
        self.state, self.detail, self.since = state, detail, time.time()
        plane = self.plane
        if plane is not None:
            plane.tell(self)

    def status(self) -> WorkerStatus:
        engine, busy = self.engine, self.busy_since
        return WorkerStatus(
            service=self.arguments.service,
            version=self.arguments.version,
            ordinal=self.arguments.ordinal,
            pid=os.getpid(),
            instance=self.instance,
            state=self.state,
            since=self.since,
            detail=self.detail,
            connected=self.plane is not None,
            busy_seconds=0.0 if busy is None else time.monotonic() - busy,
            batches=self.batches,
            rss_bytes=_rss_bytes(),
            batch_safe=self.batch_safe,
            providers=engine.runtime.providers if engine else (),
            load_phases=dict(engine.phases) if engine else {},
            signature=signature_to_json(engine.runtime.signature) if engine else {},
        )

    def load(self) -> None:
        """Raises LoadError, ContractError or OSError."""
        given = self.arguments
        folder = given.version_dir
        contract = _contract(given.contract, folder)
        fixed = contract is not None and all(-1 not in tensor.shape[1:] for tensor in contract.spec.inputs)
        memory = given.gpu_memory_mb << 20 or (contract.spec.resources.gpu_memory_bytes if contract else 0)
        options = Options(given.threads, given.provider, given.gpu_id, memory, fixed)
        engine = Engine(folder, given.model, contract, given.service, options)
        self.batch_safe, note = engine.warm_up(read_samples(engine.contract, folder))
        self.engine = engine
        self.become(ReplicaState.READY, note)

    def serve(self) -> None:
        """Planes one after the other, until one leaves while draining."""
        while True:
            connection = self.planes.get()
            if connection is None:
                return
            try:
                self._serve_one(connection)
            except (EOFError, OSError, ValueError):
                connection.hang_up()
            finally:
                if self.plane is connection:
                    self.plane = None
                connection.sock.close()
                if connection.slab is not None:
                    connection.slab.close()
            if self.state is ReplicaState.DRAINING and self.planes.empty():
                return

    def _serve_one(self, connection: Connection) -> None:
        sock = connection.sock
        while True:
            kind, body = frames.receive(sock)
            if kind is frames.Kind.RUN:
                self.busy_since = time.monotonic()
                connection.send(self._run(connection, body))
                self.batches += 1
                self.busy_since = None
            elif kind is frames.Kind.LAYOUT:
                layout = msgspec.json.decode(body, type=frames.Layout)
                if layout.id >= MAX_LAYOUTS:
                    raise ValueError("too many layouts")
                connection.layouts[layout.id] = layout
            else:
                raise ValueError("unexpected frame")

    def _run(self, connection: Connection, body: bytearray) -> bytes:
        assert self.engine is not None
        slot, layout_id, batch, rows = frames.RUN.unpack_from(body)
        layout = connection.layouts[layout_id]
        view = memoryview(body)
        at, inline = frames.RUN.size, frames.inline_start(len(layout.inputs))
        buffers = []
        for _ in layout.inputs:
            size, offset = frames.PLACE.unpack_from(body, at)
            at += frames.PLACE.size
            if offset == frames.INLINE:
                buffers.append(view[inline : inline + size])
                inline = frames.padded(inline + size)
            else:
                assert connection.slab is not None
                buffers.append(connection.slab.request(slot)[offset : offset + size])
        try:
            outputs, timing = self.engine.run(layout, rows, buffers)
        except RefusedError as error:
            sentence = str(error).encode()
            return frames.pack(frames.Kind.FAILED, frames.FAILED.pack(batch, error.status) + sentence)
        room = connection.slab.answer(slot) if connection.slab is not None else None
        return result(batch, outputs, timing, room)


def result(batch: int, outputs: list[Output], timing: Timing, room: memoryview | None) -> bytes:
    """A RESULT frame; large outputs are put into `room` as long as it lasts."""
    head = [frames.RESULT.pack(batch, timing.input, timing.run, timing.output, len(outputs))]
    inline: list[bytes | memoryview] = []
    free = 0
    for output in outputs:
        size, offset = len(output.data), frames.INLINE
        if room is not None and size >= slots.LARGE and free + size <= len(room):
            room[free : free + size] = output.data
            offset, free = free, slots.aligned(free + size)
        else:
            inline.append(output.data)
        head.append(frames.OUTPUT.pack(output.datatype.code, len(output.dims), size, offset))
        head.append(frames.DIM.pack(*output.dims) if len(output.dims) == 1 else frames.dims(output.dims))
    return frames.pack(frames.Kind.RESULT, b"".join([*head, *inline]))


class Door:
    """Listens. Peers are processes of the same user (the socket is 0600), yet none may block it for long."""

    def __init__(self, worker: Worker, path: Path) -> None:
        self.worker = worker
        self.listener = listen(path)
        self.signals, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        self._wakeup = wakeup
        self._drain_by: float | None = None
        threading.Thread(target=self._watch, name="door", daemon=True).start()

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            selector.register(self.signals, selectors.EVENT_READ)
            while self._drain_by is None or time.monotonic() < self._drain_by:
                for key, _ in selector.select(timeout=1.0 if self._drain_by else None):
                    if key.fileobj is self.signals:
                        self.signals.recv(64)
                        self._drain()
                    else:
                        self._greet(self.listener.accept()[0])
        os._exit(0)

    def _drain(self) -> None:
        if self._drain_by is not None:
            return
        if self.worker.state is not ReplicaState.READY:
            os._exit(0)  # still loading: nothing is in hand
        self._drain_by = time.monotonic() + DRAIN_SECONDS
        self.worker.become(ReplicaState.DRAINING)
        if self.worker.plane is None:
            self.worker.planes.put(None)

    def _greet(self, sock: socket.socket) -> None:
        try:
            sock.settimeout(GREETING_SECONDS)
            hello, slab = _greeting(sock)
            if hello.get("as") != "plane":
                sock.sendall(frames.pack(frames.Kind.STATUS, encode(self.worker.status())))
                sock.close()
                return
        except (OSError, EOFError, ValueError, AttributeError):
            sock.close()
            return
        sock.settimeout(None)
        connection = Connection(sock, slab)
        last, self.worker.plane = self.worker.plane, connection
        connection.tell(self.worker)
        if last is not None:
            last.hang_up()  # the newest plane wins: the one before is dead or about to be
        self.worker.planes.put(connection)


def _greeting(sock: socket.socket) -> tuple[dict[str, Any], slots.Slab | None]:
    """The HELLO frame and the slab that came with it. The greeting is short: one message, never in pieces."""
    data, fds, _, _ = socket.recv_fds(sock, 4096, 4)
    slab = None
    try:
        if len(fds) == 1:
            slab = slots.Slab(fds.pop())
    finally:
        for fd in fds:
            os.close(fd)
    size, kind = frames.HEAD.unpack_from(data)
    if kind != frames.Kind.HELLO or len(data) != size - 1 + frames.HEAD.size:
        raise ValueError("not a greeting")
    hello = json.loads(data[frames.HEAD.size :])
    return hello, slab


def _contract(given: Path | None, folder: Path) -> Contract | None:
    for path in [given] if given else [folder / "contract.json", folder / "contract.yaml"]:
        if given or path.is_file():
            raw = path.read_bytes()
            return from_json(json.loads(raw)) if path.suffix == ".json" else parse_contract(raw)
    return None


def _rss_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m inference.plane.worker", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--version-dir", type=Path, required=True)
    parser.add_argument("--service", required=True)
    parser.add_argument("--version", type=int, required=True)
    parser.add_argument("--ordinal", type=int, default=0)
    parser.add_argument("--model", default="model.onnx")
    parser.add_argument("--contract", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--gpu-id", type=int, default=0)
    parser.add_argument("--gpu-memory-mb", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = Worker(arguments)
    signal.signal(
        signal.SIGTERM, lambda *_: None
    )  # the door thread hears of it through the wake-up descriptor
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C in a terminal reaches everyone; the supervisor decides
    try:
        Door(worker, arguments.socket)
    except OSError as error:
        sys.stderr.write(f"worker cannot listen on {arguments.socket}: {error.strerror}\n")
        return 2
    try:
        worker.load()
    except (LoadError, ContractError, OSError, ValueError) as error:
        why = without_folders(str(error), arguments.version_dir)
        worker.become(ReplicaState.CRASHED, why)
        sys.stderr.write(f"{arguments.service}:{arguments.version} cannot be loaded: {why}\n")
        time.sleep(0.5)  # so that plane and supervisor read the reason from us, not only an exit code
        return 3
    worker.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
