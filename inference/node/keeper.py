"""The one plane of a node: keeps it running and makes it serve the routes that the supervisor wants."""

import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from console.kit import processes
from inference.node import desired
from inference.node.layout import Layout, environment
from inference.plane import probe, routes
from inference.plane.probe import PlaneStatus
from inference.plane.routes import Routes
from inference.protocol import ReplicaState

log = logging.getLogger(__name__)

_MUTE_SECONDS = 15.0
_PING_SECONDS = 1.0
_PATIENT_FAILURES = 3


@dataclass(slots=True)
class Keeper:
    """planned: what routes.json holds. confirmed: what a plane last said it serves, confirmed_by: which plane."""

    layout: Layout
    on_change: Callable[[], None]
    child: processes.Child | None = None
    status: PlaneStatus | None = None
    planned: Routes | None = None
    confirmed: Routes | None = None
    confirmed_by: str = ""
    failures: int = 0
    restarts: int = 0
    retry_at: float = 0.0
    answered_at: float = 0.0
    detail: str = ""
    stopping: bool = False
    listener: socket.socket | None = None

    def adopt(self, now: float) -> bool:
        """Take over a living plane that listens where we want it; end one that listens elsewhere."""
        try:
            self.planned = routes.read(self.layout.routes_file)
        except (OSError, ValueError):
            self.planned = None  # the first start, or a file of another release: it is written anew
        self.confirmed = self.planned
        child = processes.find(self.layout.plane_pid_file)
        if child is None:
            return False
        if child.file.command != self.layout.plane_command():
            child.send(signal.SIGTERM)
            return False
        self.child, self.answered_at, self.restarts = child, now, child.file.restarts
        return True

    @property
    def state(self) -> ReplicaState:
        if self.child is None:
            return ReplicaState.CRASHED if self.failures else ReplicaState.STOPPED
        return self.status.state if self.status else ReplicaState.STARTING

    def observe(self, now: float) -> None:
        before = self.state
        if self.child is not None and not self.child.is_alive():
            self._note_end(now)
        elif self.child is not None:
            self._ping(now)
        if self.state is not before:
            self.on_change()

    def _note_end(self, now: float) -> None:
        assert self.child is not None
        words = processes.last_words(self.layout.plane_log)
        ended = self.child.exit_detail()
        if now - self.child.file.started_at >= desired.HEALTHY_SECONDS:
            self.failures = 0
        self.failures += 1
        self.restarts += 1
        wait = desired.backoff_seconds(self.failures)
        self.retry_at, self.child, self.status, self.confirmed_by = now + wait, None, None, ""
        self.detail = ended if "killed" in ended else f"{ended}: {words}"
        log.warning("plane %s; starts again in %g s", self.detail, wait)

    def _ping(self, now: float) -> None:
        assert self.child is not None
        try:
            status = probe.ping(self.layout.plane_socket, timeout_seconds=_PING_SECONDS)
        except probe.ProbeError:
            self.status = None
            if now - max(self.answered_at, self.child.file.started_at) > _MUTE_SECONDS:
                log.warning("plane gave no answer for %.0f s and is replaced", _MUTE_SECONDS)
                self.child.send(signal.SIGKILL)
            return
        if status.pid == self.child.identity.pid:
            self.status, self.answered_at, self.detail = status, now, ""

    def ensure_started(self, now: float) -> None:
        if self.child is not None or now < self.retry_at or self.stopping:
            return
        self._listen()
        fd = self.listener.fileno() if self.listener else None
        try:
            self.child = processes.spawn(
                self.layout.plane_command(),
                pid_file=self.layout.plane_pid_file,
                log_file=self.layout.plane_log,
                environment=environment() | ({routes.LISTEN_FD: str(fd)} if fd is not None else {}),
                started_at=now,
                restarts=self.restarts,
                pass_fds=[fd] if fd is not None else [],
            )
        except OSError as error:
            self.failures += 1
            self.retry_at = now + desired.backoff_seconds(self.failures)
            log.warning("plane cannot be started: %s", error)
            return
        self.answered_at = now
        self.on_change()

    def _listen(self) -> None:
        """Hold the listening socket ourselves: while a plane is replaced, clients wait in its queue.

        Not for one that keeps failing: an honest refusal is better than a long wait.
        """
        if self.failures > _PATIENT_FAILURES:
            self.let_go()
        elif self.listener is None:
            # In use: the plane reports it in words, as it would without us.
            with contextlib.suppress(OSError):
                self.listener = socket.create_server((self.layout.host, self.layout.port), backlog=1024)

    def let_go(self) -> None:
        """Close our copy of the listening socket; from now on only a living plane accepts."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def serve(self, wanted: Routes) -> bool:
        """Write the routes and have the plane read them. True once the plane of now serves exactly these."""
        if self.planned != wanted:
            routes.write(self.layout.routes_file, wanted)
            self.planned, self.confirmed_by = wanted, ""
        if self.status is None:
            return False
        if self.confirmed_by == self.status.instance:
            return True
        try:
            probe.ask_plane(self.layout.plane_socket, "apply")
        except probe.ProbeError as error:
            log.warning("plane did not take snapshot %d: %s", wanted.snapshot.number, error)
            return False
        self.confirmed, self.confirmed_by = wanted, self.status.instance
        self.on_change()
        return True
