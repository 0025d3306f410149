"""A worker's side of its planes: what each has sent, read without waiting, and whose turn it is."""

import contextlib
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable

from inference.plane import frames, slots

BUFFER = 256 << 10
# A plane that takes nothing for so long is stopped or dead, and the others wait behind it.
SEND_SECONDS = 2.0
# The first body then begins on 16 bytes: runtimes read inline tensors in place.
_START = 16 - frames.HEAD.size


class Connection:
    """One plane. Frames may be sent from several threads, so each goes out whole under the lock."""

    def __init__(self, sock: socket.socket, slab: slots.Slab | None, instance: str = "") -> None:
        self.sock = sock
        self.slab = slab
        self.instance = instance
        self.layouts: dict[int, frames.Layout] = {}
        self.waits = False
        self._buffer = memoryview(bytearray(BUFFER))
        self._start = self._end = _START
        self._lock = threading.Lock()
        # Unlike settimeout this costs no poll before each send.
        seconds = struct.pack("@ll", int(SEND_SECONDS), 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)

    def send(self, data: bytes) -> None:
        """Raises OSError, also when the plane takes nothing for SEND_SECONDS."""
        with self._lock:
            self.sock.sendall(data)

    def tell(self, status: Callable[[], bytes]) -> None:
        """Send the worker's status; hang up when that fails.

        Asked for under the lock: were it asked for before, an older word of one thread could follow a newer one of the
        other, and the plane would believe for ever that a ready worker is loading.
        """
        try:
            with self._lock:
                self.sock.sendall(frames.pack(frames.Kind.STATUS, status()))
        except OSError:
            self.hang_up()

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):  # it already went
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()
        self._buffer = memoryview(b"")
        if self.slab is not None:
            self.slab.close()

    def fill(self) -> None:
        """Take what has arrived. Raises EOFError, OSError."""
        if self._start == self._end:
            if len(self._buffer) > BUFFER:
                self._buffer = memoryview(bytearray(BUFFER))
            self._start = self._end = _START
        with contextlib.suppress(BlockingIOError):
            got = self.sock.recv_into(self._buffer[self._end :], 0, socket.MSG_DONTWAIT)
            if not got:
                raise EOFError("the plane closed")
            self._end += got

    def has_frame(self) -> bool:
        """Whether a frame is here whole; makes room when it is not. Raises ValueError."""
        have = self._end - self._start
        if have < frames.HEAD.size:
            size = frames.HEAD.size
        else:
            told = frames.HEAD.unpack_from(self._buffer, self._start)[0]
            if not 1 <= told <= frames.LIMIT:
                raise ValueError("frame length out of bounds")
            size = told + 4
        if have >= size:
            return True
        if self._start + size > len(self._buffer):
            target = memoryview(bytearray(_START + size if size > BUFFER - _START else BUFFER))
            target[_START : _START + have] = self._buffer[self._start : self._end]
            self._buffer, self._start, self._end = target, _START, _START + have
        return False

    def frame(self) -> tuple[int, memoryview]:
        """The next frame, after `has_frame`: valid until the next `fill`. Raises ValueError."""
        size, kind = frames.HEAD.unpack_from(self._buffer, self._start)
        at, end = self._start + frames.HEAD.size, self._start + 4 + size
        self._start = end
        body = self._buffer[at:end]
        return kind, body if not at & 15 else memoryview(bytearray(body))


class Turns:
    """The planes of a worker and the order in which they are served: one batch each, round and round."""

    def __init__(self) -> None:
        self.planes: tuple[Connection, ...] = ()
        self._lock = threading.Lock()
        self._arrived: deque[Connection] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._wake, select.EPOLLIN)
        self._served: dict[int, Connection] = {}
        self._ring: deque[Connection] = deque()

    # Called by the door's thread.

    def add(self, connection: Connection) -> None:
        """From now on `planes` has it; it is served when its turn comes."""
        with self._lock:
            self.planes = (*self.planes, connection)
        self._arrived.append(connection)
        self.wake()

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    # Called by the serving thread.

    def next(self, idle_seconds: float = -1) -> Connection | None:
        """A plane of which a frame is here, waiting for one; None after `wake` and after `idle_seconds` without any, so
        that the caller looks around.
        """
        ring = self._ring
        if not ring or len(self._served) > 1:
            for fd, _ in self._poll.poll(0 if ring else idle_seconds):
                if fd == self._wake:
                    os.eventfd_read(self._wake)
                    self._take_in()
                else:
                    self._read(self._served[fd])
        return ring.popleft() if ring else None

    def done(self, connection: Connection) -> None:
        """After each `next`: it joins the ring's end when more is here."""
        connection.waits = False
        if connection.sock.fileno() in self._served:
            self._queue(connection)

    def drop(self, connection: Connection) -> None:
        with self._lock:
            self.planes = tuple(plane for plane in self.planes if plane is not connection)
        if self._served.pop(connection.sock.fileno(), None) is not None:
            self._poll.unregister(connection.sock)
        if connection in self._ring:
            self._ring.remove(connection)
        connection.hang_up()
        connection.close()

    def _take_in(self) -> None:
        while self._arrived:
            connection = self._arrived.popleft()
            for other in list(self._served.values()):
                # A plane that connects again has given its first connection up, or is about to.
                if connection.instance and other.instance == connection.instance:
                    self.drop(other)
            self._served[connection.sock.fileno()] = connection
            self._poll.register(connection.sock, select.EPOLLIN)

    def _read(self, connection: Connection) -> None:
        if connection.waits:
            return  # its buffer holds a frame that has not been looked at
        try:
            connection.fill()
        except (EOFError, OSError):
            self.drop(connection)
            return
        self._queue(connection)

    def _queue(self, connection: Connection) -> None:
        try:
            if connection.has_frame():
                connection.waits = True
                self._ring.append(connection)
        except ValueError:
            self.drop(connection)
