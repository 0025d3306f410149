"""Keeps a node's plane and workers in the state that the newest snapshot asks for.

One thread looks, decides and acts a few times each second. Nothing here needs Redis, the console or the database: the
last snapshot is on disk, plane and workers outlive this process, and the next supervisor takes them over by pid file.
"""

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from console.kit import processes
from console.kit.files import write_atomic
from inference.blobs import remove_tree
from inference.node import desired, sizing
from inference.node.desired import Action, Drain, Forget, Kill, Slot, Start, Stop
from inference.node.keeper import Keeper
from inference.node.layout import Layout
from inference.node.residents import Residents
from inference.plane.routes import Routes, WorkerRoute
from inference.protocol import NodeReport, ReplicaState, Snapshot, VersionSpec, decode, encode

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
PLANE_DRAIN_SECONDS = 12.0
WORKER_STOP_SECONDS = 5.0


class Supervisor:
    def __init__(
        self,
        layout: Layout,
        *,
        plane_url: str,
        clock: Callable[[], float] = time.time,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        layout.prepare()  # a snapshot may be offered before the thread runs
        self.layout = layout
        self.plane_url = plane_url
        self.clock = clock
        self.started_at = clock()
        self._on_change = on_change
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._target: Snapshot | None = None
        self._served: tuple[str, int] = ("", 0)
        self._profile: dict[str, Any] = {}
        self._report: NodeReport | None = None
        self.residents = Residents(layout, self._changed)
        self.keeper = Keeper(layout, self._changed)

    # Called by other threads.

    def offer(self, snapshot: Snapshot) -> bool:
        """Take a snapshot as the new target if it is newer, on disk first. False when it is not."""
        with self._lock:
            if not desired.supersedes(snapshot, self._target):
                return False
            write_atomic(self.layout.snapshot_file, encode(snapshot))
            self._target = snapshot
        log.info("snapshot %d of %s", snapshot.number, snapshot.epoch[:8])
        self._wake.set()
        return True

    @property
    def target(self) -> Snapshot | None:
        return self._target

    def restart(self, service: str, version: int, ordinal: int, pid: int) -> bool:
        """Have a worker end after its batch in hand; it starts again at once. False when that process is gone."""
        with self._lock:
            for slot, resident in self.residents.slots.items():
                child = resident.child
                same = (slot.service, slot.version, slot.ordinal) == (service, version, ordinal)
                if (
                    same
                    and child is not None
                    and child.identity.pid == pid
                    and resident.asked_to_stop_at is None
                ):
                    self.residents.stop(slot, self.clock())
                    self._wake.set()
                    return True
        return False

    def report(self) -> NodeReport:
        with self._lock:
            return NodeReport(
                node=self.layout.node,
                at=self.clock(),
                started_at=self.started_at,
                plane_url=self.plane_url,
                plane_state=self.keeper.state,
                snapshot_epoch=self._served[0],
                snapshot_number=self._served[1],
                profile=self._profile,
                replicas=self.residents.reports(),
            )

    # The supervising thread.

    def run(self) -> None:
        """Until `close`. An error in one look must not end supervision, so it is logged and the next look comes."""
        self.prepare()
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self.look()
            except Exception:  # the boundary of this thread
                log.exception("a look at the node failed")
            self._wake.wait(max(0.02, LOOK_SECONDS - (time.monotonic() - started)))
            self._wake.clear()

    def prepare(self) -> None:
        """Find the last snapshot and whatever still runs."""
        with self._lock:
            with contextlib.suppress(OSError, ValueError):
                found = decode(self.layout.snapshot_file.read_bytes(), Snapshot)
                if desired.supersedes(found, self._target):
                    self._target = found
            plane = self.keeper.adopt(self.clock())
            workers = self.residents.adopt(self.clock())
            if plane or workers:
                log.info("took over %d worker(s)%s", workers, " and the plane" if plane else "")
            self._end_strays()
        threading.Thread(target=self._read_profile, name="profile", daemon=True).start()

    def look(self) -> None:
        """See what is, decide, act once."""
        with self._lock:
            now = self.clock()
            self.keeper.observe(now)
            self.residents.observe(now)
            self.keeper.ensure_started(now)
            needed = self._route(now)
            self.residents.undrain(needed)
            for action in desired.decide(needed, self.residents.occupants(self.keeper.status), now):
                self._act(action, now)

    def _route(self, now: float) -> frozenset[Slot]:
        """Let the plane follow the target as far as workers can carry it. The slots that either still needs."""
        if self._target is None:
            return frozenset(self.residents.slots)
        applied = self.keeper.confirmed.snapshot if self.keeper.confirmed else None
        plan = desired.plan_routes(applied, self._target, self.residents.ready())
        done = self.keeper.serve(self._routes(plan.routes))
        if done and not plan.held:
            self._serve(self._target)
            return desired.slots_of(self._target)
        return desired.slots_of(self._target) | desired.slots_of(plan.routes if done else applied)

    def _serve(self, snapshot: Snapshot) -> None:
        served = (snapshot.epoch, snapshot.number)
        if served != self._served:
            self._served = served
            self._changed()
            self._drop_old_folders()

    def _routes(self, snapshot: Snapshot) -> Routes:
        workers = tuple(
            WorkerRoute(slot.service, slot.version, slot.ordinal, str(self.layout.socket(slot)))
            for slot in sorted(desired.slots_of(snapshot))
        )
        return Routes(node=self.layout.node, snapshot=snapshot, workers=workers)

    def _act(self, action: Action, now: float) -> None:
        match action:
            case Start(slot):
                spec = self._spec_of(slot)
                if spec is not None:
                    self.residents.start(slot, spec, workers=len(desired.slots_of(self._target)), now=now)
            case Drain(slot):
                self.residents.drain(slot, now)
            case Stop(slot):
                self.residents.stop(slot, now)
            case Kill(slot):
                self.residents.kill(slot)
            case Forget(slot):
                self.residents.forget(slot)

    def _spec_of(self, slot: Slot) -> VersionSpec | None:
        confirmed = self.keeper.confirmed.snapshot if self.keeper.confirmed else None
        for snapshot in filter(None, (self._target, confirmed)):
            for service in snapshot.services:
                for version in service.versions:
                    if (service.name, version.number, version.digest) == slot.loads:
                        return version
        return None

    def _end_strays(self) -> None:
        """Workers started in the instant before the last agent died, of which no pid file tells."""
        known = frozenset(self.residents.known_pids())
        for identity in processes.strays(str(self.layout.sockets) + "/", known):
            log.warning("ending worker %d, which no pid file knows", identity.pid)
            processes.send(identity, signal.SIGKILL)

    def _drop_old_folders(self) -> None:
        """Version folders that nothing runs from and nothing wants; the blobs stay."""
        wanted = {slot.digest for slot in desired.slots_of(self._target) | frozenset(self.residents.slots)}
        for folder in self.layout.versions.iterdir():
            if folder.name not in wanted:
                remove_tree(folder)

    def _read_profile(self) -> None:
        profile = sizing.profile()
        with self._lock:
            self._profile = profile
        self._changed()

    def _changed(self) -> None:
        self._on_change()

    # The end.

    def close(self) -> None:
        """End the supervising loop; plane and workers run on."""
        self._stop.set()
        self._wake.set()
        self.residents.close()

    def drain(self) -> None:
        """After `close`: the plane answers what it has and ends, then the workers do. Bounded, nothing is left."""
        with self._lock:
            self.keeper.stopping = True
            self.keeper.let_go()
            if self.keeper.child is not None:
                self.keeper.child.send(signal.SIGTERM)
                self._wait([self.keeper.child], PLANE_DRAIN_SECONDS)
                self.layout.plane_pid_file.unlink(missing_ok=True)
            children = [resident.child for resident in self.residents.slots.values() if resident.child]
            for child in children:
                child.send(signal.SIGTERM)
            self._wait(children, WORKER_STOP_SECONDS)
            now = self.clock()
            for slot, resident in self.residents.slots.items():
                resident.child = None
                resident.become(ReplicaState.STOPPED, now, "the node was stopped")
                self.layout.pid_file(slot).unlink(missing_ok=True)

    @staticmethod
    def _wait(children: list[processes.Child], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while any(child.is_alive() for child in children) and time.monotonic() < deadline:
            time.sleep(0.05)
        for child in children:
            if child.is_alive():
                log.warning("process %d did not end in %g s and is killed", child.identity.pid, seconds)
                child.send(signal.SIGKILL)
        for child in children:
            while child.is_alive() and time.monotonic() < deadline + 2:
                time.sleep(0.02)
