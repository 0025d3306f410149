"""The worker process: one replica of one version, behind one Unix socket.

The main thread loads and then runs batches, one after the other, straight from the planes' sockets in fair turns. The
door's thread accepts connections, answers probes at any time and watches for SIGTERM; the watchdog's thread ends runs
that pass their deadline.

Exit codes: 0 told to stop, 2 wrong command line or socket, 3 the model cannot be loaded, 10 more memory than allowed (a
fresh process is all it takes), 11 a run that would not stop.
"""

import argparse
import contextlib
import os
import resource
import signal
import struct
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

import msgspec

from inference.contract import Contract, ContractError, output_labels
from inference.graph import signature_to_json
from inference.plane import frames, memory, sandbox, slots, warmup
from inference.plane.cache import Cache, CacheError
from inference.plane.connections import Connection, Turns
from inference.plane.door import DRAIN_SECONDS, Door
from inference.plane.engine import Engine, Output, Timing
from inference.plane.probe import WorkerStatus
from inference.plane.refusals import RefusedError
from inference.plane.runtimes import LoadError, Options, without_folders
from inference.plane.samples import read_contract, read_samples
from inference.plane.standby import import_runtimes, wait_for_work
from inference.plane.warmth import Warmth
from inference.plane.watchdog import Watchdog
from inference.protocol import ReplicaState, encode

MAX_LAYOUTS = 1024
# For warm-up runs of a prepared model: `prepare` has measured it, and a swap waits.
MAPPED_SECONDS = 0.05
WARM_UP_SECONDS = 120.0
LOAD_SECONDS = 600.0
REST_SECONDS = 5.0
REST_BYTES = 32 << 20
CPU = ("cpu", "cpuexecutionprovider")
LATE = "the deadline passed inside the model"


class Worker:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.instance = uuid.uuid4().hex
        self.engine: Engine | None = None
        self.state = ReplicaState.STARTING
        self.since = time.time()
        self.detail = ""
        self.labels: dict[str, tuple[str, ...]] = {}
        self.warmth = Warmth()
        self.cache = "none"
        self.busy_since: float | None = None
        self.batches = 0
        self.turns = Turns()
        self.watchdog: Watchdog | None = None
        self.sandbox = "off"
        self.memory_limit_bytes = 0
        self.exit_code = 0
        self._settled_bytes = 0
        self._rested = True

    def become(self, state: ReplicaState, detail: str = "") -> None:
        self.state, self.detail, self.since = state, detail, time.time()
        for plane in self.turns.planes:
            plane.tell(self.status_bytes)

    def status_bytes(self) -> bytes:
        return encode(self.status())

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
            connected=bool(self.turns.planes),
            busy_seconds=0.0 if busy is None else time.monotonic() - busy,
            batches=self.batches,
            rss_bytes=_rss_bytes(),
            batch_safe=self.warmth.batch_safe,
            providers=engine.runtime.providers if engine else (),
            load_phases=dict(engine.phases) if engine else {},
            signature=signature_to_json(engine.runtime.signature) if engine else {},
            batch_seconds={str(rows): seconds for rows, seconds in sorted(self.warmth.seconds.items())},
            row_bytes=self.warmth.row_bytes,
            cache=self.cache,
            labels=self.labels,
            sandbox=self.sandbox,
            private_bytes=memory.private_bytes(),
            memory_limit_bytes=self.memory_limit_bytes,
        )

    def enter_sandbox(self) -> None:
        """Before a byte of the model is read, and before the threads that will read it start."""
        given = self.arguments
        device = given.provider.lower() not in CPU
        if not device:
            size = 0
            with contextlib.suppress(OSError):  # loading will say it better
                size = sum(path.lstat().st_size for path in given.version_dir.iterdir())
            memory.bound_data(memory.data_bytes() + memory.limit_for_load(size))
        if given.sandbox == "off":
            return
        reading = [given.version_dir, *filter(None, [given.contract, given.cache])]
        self.sandbox = sandbox.enter(reading, device=device)
        if "WITHOUT" in self.sandbox:
            sys.stderr.write(f"{given.service}:{given.version} runs with less protection: {self.sandbox}\n")

    def load(self) -> None:
        """Raises LoadError, ContractError or OSError."""
        given = self.arguments
        folder = given.version_dir
        contract = read_contract(given.contract, folder)
        fixed = contract is not None and all(-1 not in tensor.shape[1:] for tensor in contract.spec.inputs)
        gpu = given.gpu_memory_mb << 20 or (contract.spec.resources.gpu_memory_bytes if contract else 0)
        options = Options(given.threads, given.provider, given.gpu_id, gpu, fixed)
        engine, known, note = self._engine(contract, options)
        samples = read_samples(engine.contract, folder)
        self.labels = output_labels(engine.contract, folder)
        limit = MAPPED_SECONDS if known else warmup.CPU_SECONDS if engine.on_cpu else warmup.DEVICE_SECONDS
        self.watchdog = Watchdog(engine.runtime.stop)
        self.watchdog.begin(WARM_UP_SECONDS)
        self.warmth = warmup.warm_up(engine, samples, limit_seconds=limit, known=known)
        if self._stopped(engine):
            raise LoadError(f"the first runs took longer than {WARM_UP_SECONDS:g} s")
        self.cache = "mapped" if known else "none"
        self.engine = engine
        above = self._guard_memory(engine)
        self.become(ReplicaState.READY, "; ".join(filter(None, [note, self.warmth.note, above])))

    def _guard_memory(self, engine: Engine) -> str:
        """Watch private memory from now on. A word for the status when the model alone takes more than its contract
        says: it is served, since starting it again would not help.
        """
        spec = engine.contract.spec
        pool = spec.parameters.memory_pool_mb << 20
        allowed = spec.resources.memory_bytes + pool
        used = self._settled_bytes = memory.private_bytes()
        self.memory_limit_bytes = max(allowed, used + pool)
        memory.MemoryWatch(self.memory_limit_bytes, self.recycle)
        if engine.on_cpu:
            most = int(memory.HARD_FACTOR * self.memory_limit_bytes) + memory.SLACK_BYTES
            memory.bound_data(memory.data_bytes() + most)
        if used <= allowed:
            return ""
        return f"it takes {used >> 20} MB, its contract allows {allowed >> 20} MB"

    def recycle(self, why: str) -> None:
        """From the memory watch's thread: no more batches, and out once those in hand are back."""
        if self.state is not ReplicaState.READY:
            return
        self.exit_code = memory.RECYCLE_EXIT
        sys.stderr.write(f"{self.arguments.service}:{self.arguments.version} makes room: {why}\n")
        self.become(ReplicaState.DRAINING, why)
        self.turns.wake()
        timer = threading.Timer(DRAIN_SECONDS, os._exit, (memory.RECYCLE_EXIT,))
        timer.daemon = True
        timer.start()

    def _engine(self, contract: Contract | None, options: Options) -> tuple[Engine, Warmth | None, str]:
        """From the cache when the model was prepared, else from its own files, with a word about why."""
        given, note = self.arguments, ""
        folder: Path = given.version_dir
        if given.cache is not None:
            try:
                found = Cache(given.cache).find(folder / given.model, given.provider)
                if found is not None:
                    path, known = found
                    mapped = replace(options, mapped=True)
                    return Engine(folder, path, contract, given.service, mapped), known, ""
            except (CacheError, LoadError, OSError) as error:
                note = f"the prepared model was refused: {without_folders(str(error), given.cache)}"
        return Engine(folder, folder / given.model, contract, given.service, options), None, note

    def serve(self) -> None:
        """Batches of all planes in fair turns, until the last plane leaves while draining."""
        turns = self.turns
        while self.state is not ReplicaState.DRAINING or turns.planes:
            connection = turns.next(-1 if self._rested else REST_SECONDS)
            if connection is None:
                self._rest()
                continue
            try:
                self._serve_one(connection)
            except (EOFError, OSError, ValueError, LookupError, struct.error):
                turns.drop(connection)
            else:
                turns.done(connection)

    def _rest(self) -> None:
        """Nothing has come for a while: give back what runs of other shapes have left in the arena."""
        engine, self._rested = self.engine, True
        if engine is not None and memory.private_bytes() - self._settled_bytes > REST_BYTES:
            engine.shrink()
            memory.give_back()

    def _serve_one(self, connection: Connection) -> None:
        kind, body = connection.frame()
        if kind == frames.Kind.RUN:
            self.busy_since, self._rested = time.monotonic(), False
            try:
                connection.send(self._run(connection, body))
            finally:
                self.busy_since = None
            self.batches += 1
        elif kind == frames.Kind.LAYOUT:
            layout = msgspec.json.decode(body, type=frames.Layout)
            if layout.id >= MAX_LAYOUTS:
                raise ValueError("too many layouts")
            connection.layouts[layout.id] = layout
        else:
            raise ValueError("unexpected frame")

    def _run(self, connection: Connection, body: memoryview) -> bytes:
        engine, watchdog = self.engine, self.watchdog
        assert engine is not None and watchdog is not None
        slot, layout_id, batch, rows, stop_us = frames.RUN.unpack_from(body)
        layout = connection.layouts[layout_id]
        at, inline = frames.RUN.size, frames.inline_start(len(layout.inputs))
        buffers = []
        for _ in layout.inputs:
            size, offset = frames.PLACE.unpack_from(body, at)
            at += frames.PLACE.size
            if offset == frames.INLINE:
                buffers.append(body[inline : inline + size])
                inline = frames.padded(inline + size)
            else:
                assert connection.slab is not None
                buffers.append(connection.slab.request(slot)[offset : offset + size])
        if stop_us:
            watchdog.begin(stop_us / 1e6)
        room = connection.slab.answer(slot) if connection.slab is not None else None
        try:
            outputs, timing = engine.run(layout, rows, buffers, room)
        except RefusedError as error:
            late = stop_us and self._stopped(engine)
            status, sentence = (504, LATE) if late else (error.status, str(error))
            return frames.pack(frames.Kind.FAILED, frames.FAILED.pack(batch, status) + sentence.encode())
        if stop_us:
            self._stopped(engine)
        return result(batch, outputs, timing, room)

    def _stopped(self, engine: Engine) -> bool:
        """Whether the run that just came back had been told to."""
        if self.watchdog is None or not self.watchdog.end():
            return False
        engine.runtime.resume()
        return True


def result(batch: int, outputs: list[Output], timing: Timing, room: memoryview | None) -> bytes:
    """A RESULT frame; large outputs that are not in `room` yet are put there as long as it lasts."""
    head = [frames.RESULT.pack(batch, timing.input, timing.run, timing.output, len(outputs))]
    inline: list[bytes | memoryview] = []
    ends = [output.offset + len(output.data) for output in outputs if output.offset != frames.INLINE]
    free = slots.aligned(max(ends)) if ends else 0
    for output in outputs:
        size, offset = len(output.data), output.offset
        if offset != frames.INLINE:
            pass
        elif room is not None and size >= slots.LARGE and free + size <= len(room):
            room[free : free + size] = output.data
            offset, free = free, slots.aligned(free + size)
        else:
            inline.append(output.data)
        head.append(frames.OUTPUT.pack(output.datatype.code, len(output.dims), size, offset))
        head.append(frames.DIM.pack(*output.dims) if len(output.dims) == 1 else frames.dims(output.dims))
    return frames.pack(frames.Kind.RESULT, b"".join([*head, *inline]))


def _give_up_loading() -> None:
    sys.stderr.write(f"the model was not loaded within {LOAD_SECONDS:g} s\n")
    sys.stderr.flush()
    os._exit(3)


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
    parser.add_argument("--cache", type=Path, help="folder of prepared models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--gpu-id", type=int, default=0)
    parser.add_argument("--gpu-memory-mb", type=int, default=0)
    parser.add_argument("--sandbox", choices=("on", "off"), default="on", help="off: for debugging only")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--standby"] and len(argv) == 2:
        try:
            order = wait_for_work(Path(argv[1]))
        except OSError as error:
            sys.stderr.write(f"standby cannot listen on {argv[1]}: {error.strerror}\n")
            return 2
        if order is None:
            return 0
        argv = order
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
        door = Door(worker, arguments.socket)
    except OSError as error:
        sys.stderr.write(f"worker cannot listen on {arguments.socket}: {error.strerror}\n")
        return 2
    late = threading.Timer(LOAD_SECONDS, _give_up_loading)
    late.daemon = True
    try:
        import_runtimes()
        worker.enter_sandbox()
        door.open()
        late.start()
        worker.load()
        late.cancel()
    except (LoadError, ContractError, OSError, ValueError) as error:
        why = without_folders(str(error), arguments.version_dir)
        worker.become(ReplicaState.CRASHED, why)
        sys.stderr.write(f"{arguments.service}:{arguments.version} cannot be loaded: {why}\n")
        time.sleep(0.5)  # so that plane and supervisor read the reason from us, not only an exit code
        return 3
    worker.serve()
    return worker.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
