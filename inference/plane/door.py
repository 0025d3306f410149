"""Where planes and probes come in: a thread of the worker that listens, answers and watches for SIGTERM."""

import json
import os
import selectors
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from inference.plane import frames, slots
from inference.plane.connections import Connection, Turns
from inference.plane.unix import listen
from inference.protocol import ReplicaState

DRAIN_SECONDS = 30.0
GREETING_SECONDS = 1.0


class House(Protocol):
    """What a door belongs to: a worker."""

    turns: Turns

    @property
    def state(self) -> ReplicaState: ...

    def become(self, state: ReplicaState, detail: str = "") -> None: ...

    def status_bytes(self) -> bytes: ...


class Door:
    """Peers are processes of the same user (the socket is 0600), yet none may block it for long.

    Made before the sandbox, which allows no new sockets, and opened in it, so that its thread is inside.
    """

    def __init__(self, house: House, path: Path) -> None:
        self.house = house
        self.listener = listen(path)
        self.signals, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        self._wakeup = wakeup
        self._drain_by: float | None = None

    def open(self) -> None:
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
        if self.house.state is not ReplicaState.READY:
            os._exit(0)  # still loading: nothing is in hand
        self._drain_by = time.monotonic() + DRAIN_SECONDS
        self.house.become(ReplicaState.DRAINING)
        self.house.turns.wake()

    def _greet(self, sock: socket.socket) -> None:
        try:
            sock.settimeout(GREETING_SECONDS)
            hello, slab = _greeting(sock)
            if hello.get("as") != "plane":
                sock.sendall(frames.pack(frames.Kind.STATUS, self.house.status_bytes()))
                sock.close()
                return
        except (OSError, EOFError, ValueError, AttributeError):
            sock.close()
            return
        sock.settimeout(None)
        connection = Connection(sock, slab, str(hello.get("instance", "")))
        self.house.turns.add(connection)
        connection.tell(self.house.status_bytes)


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
