"""Short questions to a plane or a worker, for supervisors: blocking, with a time limit, no event loop needed."""

import json
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from inference.plane import frames
from inference.protocol import CounterSample, ReplicaState, decode

T = TypeVar("T")


class ProbeError(Exception):
    """Nobody answered on that socket in time, or not in our language."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a worker says of itself, also while it loads.

    instance: changes with every process. load_phases: seconds by phase (read, session, provider, warmup, first).
    busy_seconds: how long the batch in hand has been running, 0.0 when idle. providers: as the runtime reports
    them after creation. signature: the graph's, `{}` until loaded. batch_seconds: of a warm run, by rows as text.
    row_bytes: memory that a row of a batch takes while it runs. cache: mapped, built or none. sandbox: what is in
    force, and after WITHOUT what the kernel refused. private_bytes: memory that no file backs; above
    memory_limit_bytes the worker drains and leaves.
    """

    service: str
    version: int
    ordinal: int
    pid: int
    instance: str
    state: ReplicaState
    since: float
    detail: str = ""
    connected: bool = False
    busy_seconds: float = 0.0
    batches: int = 0
    rss_bytes: int = 0
    batch_safe: bool = True
    providers: tuple[str, ...] = ()
    load_phases: dict[str, float] = field(default_factory=dict)
    signature: dict[str, Any] = field(default_factory=dict)
    batch_seconds: dict[str, float] = field(default_factory=dict)
    row_bytes: int = 0
    cache: str = "none"
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sandbox: str = ""
    private_bytes: int = 0
    memory_limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One worker as the plane sees it. state: connecting, starting, ready, draining or crashed (its last word).

    inflight: requests now inside that worker.
    """

    service: str
    version: int
    ordinal: int
    socket: str
    state: str
    detail: str = ""
    inflight: int = 0


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One version in the plane, also one that is gone from the routes but still has requests to finish.

    A worker of a version may be stopped once no pool of it has `requests` left. step: of the degradation ladder, 0
    is as usual. quarantined: tenants whose requests run alone because they made batches fail.
    """

    service: str
    version: int
    requests: int
    retiring: bool
    step: int = 0
    quarantined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaneStatus:
    """number and epoch of the snapshot that is applied; -1 and "" before the first."""

    state: ReplicaState
    pid: int
    instance: str
    node: str
    epoch: str
    number: int
    started_at: float
    connections: int = 0
    links: tuple[LinkStatus, ...] = ()
    pools: tuple[PoolStatus, ...] = ()


def ask_worker(path: Path | str, *, timeout_seconds: float = 2.0) -> WorkerStatus:
    """Raises ProbeError."""
    deadline = time.monotonic() + timeout_seconds
    with _connected(path, timeout_seconds) as sock:
        try:
            sock.sendall(frames.pack(frames.Kind.HELLO, json.dumps({"as": "probe"}).encode()))
            kind, body = frames.receive(sock, deadline=deadline)
            if kind is not frames.Kind.STATUS:
                raise ProbeError(f"{path}: unexpected answer")
            return decode(bytes(body), WorkerStatus)
        except (OSError, EOFError, ValueError) as error:
            raise ProbeError(f"{path}: {error}") from None


def ask_plane(path: Path | str, verb: str, *, timeout_seconds: float = 5.0) -> dict[str, Any]:
    """The raw answer to `ping`, `apply`, `counters` or `drain`. Raises ProbeError, also when the plane refuses."""
    deadline = time.monotonic() + timeout_seconds
    with _connected(path, timeout_seconds) as sock:
        try:
            sock.sendall(json.dumps({"do": verb}).encode() + b"\n")
            answer = json.loads(_line(sock, deadline))
        except (OSError, EOFError, ValueError) as error:
            raise ProbeError(f"{path}: {error}") from None
    if not isinstance(answer, dict):
        raise ProbeError(f"{path}: unexpected answer")
    if "error" in answer:
        raise ProbeError(str(answer["error"]))
    return answer


def ping(path: Path | str, *, timeout_seconds: float = 2.0) -> PlaneStatus:
    return _typed(ask_plane(path, "ping", timeout_seconds=timeout_seconds), PlaneStatus)


def counters(path: Path | str, *, timeout_seconds: float = 5.0) -> CounterSample:
    return _typed(ask_plane(path, "counters", timeout_seconds=timeout_seconds), CounterSample)


def _typed(answer: dict[str, Any], kind: type[T]) -> T:
    try:
        return decode(json.dumps(answer), kind)
    except ValueError as error:
        raise ProbeError(str(error)) from None


def _connected(path: Path | str, timeout_seconds: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_seconds)
    try:
        sock.connect(str(path))
    except OSError as error:
        sock.close()
        raise ProbeError(f"{path}: {error}") from None
    return sock


def _line(sock: socket.socket, deadline: float) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        part = sock.recv(1 << 16)
        if not part:
            raise EOFError("closed before it answered")
        received += part
        if len(received) > 64 << 20:
            raise ValueError("answer too long")
    return bytes(received)
