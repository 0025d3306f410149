"""The workers of a node: each slot's process, what it says of itself, and how its life so far went."""

import logging
import signal
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from console.kit import processes
from inference.blobs import BlobStore, contract_bytes, materialise
from inference.node import desired, sizing
from inference.node.desired import Occupant, Slot
from inference.node.layout import Layout, environment
from inference.plane import probe
from inference.plane.probe import PlaneStatus, WorkerStatus
from inference.protocol import ReplicaReport, ReplicaState, VersionSpec

log = logging.getLogger(__name__)

_ASK_READY_SECONDS = 2.0
_ASK_TIMEOUT_SECONDS = 0.5
_MUTE_SECONDS = 20.0  # a living worker that answers nothing for so long is replaced


@dataclass(slots=True)
class Resident:
    """One slot. failures: ends in a row; failure: the last one as words. since: when `state` began."""

    slot: Slot
    state: ReplicaState
    since: float
    child: processes.Child | None = None
    status: WorkerStatus | None = None
    files: Future[Any] | None = None
    detail: str = ""
    failure: str = ""
    restarts: int = 0
    failures: int = 0
    retry_at: float = 0.0
    answered_at: float = 0.0
    asked_at: float = 0.0
    draining_since: float | None = None
    asked_to_stop_at: float | None = None

    @property
    def is_ready(self) -> bool:
        return self.state is ReplicaState.READY

    def become(self, state: ReplicaState, now: float, detail: str = "") -> bool:
        """Note a state; True when it is another than before."""
        changed = state is not self.state
        if changed:
            self.since = now
        self.state, self.detail = state, detail
        return changed


@dataclass
class Residents:
    """Everything the supervisor does to workers. Used by one thread; only copying files happens in another."""

    layout: Layout
    on_change: Callable[[], None]
    slots: dict[Slot, Resident] = field(default_factory=dict)
    _copier: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "copy"))
    _verified: set[str] = field(default_factory=set)

    def adopt(self, now: float) -> int:
        """Take over the living workers of an agent that died. Returns how many."""
        for path in sorted(self.layout.run.glob("*.json")):
            child = processes.find(path)
            if path == self.layout.plane_pid_file:
                continue
            if child is None:
                path.unlink(missing_ok=True)
                continue
            try:
                slot = msgspec.convert(child.file.meta, Slot)
            except msgspec.ValidationError:
                continue
            resident = Resident(slot, ReplicaState.STARTING, now, child=child, restarts=child.file.restarts)
            resident.answered_at = now
            self.slots[slot] = resident
        return len(self.slots)

    def known_pids(self) -> set[int]:
        return {resident.child.identity.pid for resident in self.slots.values() if resident.child}

    def observe(self, now: float) -> None:
        """Notice who ended and ask the others how they are."""
        for resident in self.slots.values():
            if resident.child is None:
                self._watch_files(resident, now)
            elif not resident.child.is_alive():
                self._note_end(resident, now)
            else:
                self._ask(resident, now)

    def _watch_files(self, resident: Resident, now: float) -> None:
        if resident.files is None or not resident.files.done():
            return
        error = resident.files.exception()
        resident.files = None
        if error is None:
            self._verified.add(resident.slot.digest)
            resident.retry_at = now
        else:
            self._fail(resident, now, f"files cannot be laid out: {error}")

    def _note_end(self, resident: Resident, now: float) -> None:
        child = resident.child
        assert child is not None
        ended = child.exit_detail()
        words = processes.last_words(self.layout.log(resident.slot))
        if now - child.file.started_at >= desired.HEALTHY_SECONDS:
            resident.failures = 0
        if not resident.is_ready:
            self._verified.discard(resident.slot.digest)  # it never loaded: perhaps its files are damaged
        own_word = resident.status.detail if resident.status and resident.status.detail else words
        resident.child, resident.status = None, None
        self.layout.pid_file(resident.slot).unlink(missing_ok=True)
        if resident.asked_to_stop_at is not None:  # as we wished; a wanted slot starts again at once
            resident.asked_to_stop_at = None
            resident.retry_at = now
            resident.restarts += 1
            if resident.become(ReplicaState.STOPPED, now, "stopped"):
                self.on_change()
            return
        resident.restarts += 1
        self._fail(resident, now, f"{ended}: {own_word}" if own_word and "killed" not in ended else ended)

    def _fail(self, resident: Resident, now: float, detail: str) -> None:
        resident.failures += 1
        wait = desired.backoff_seconds(resident.failures)
        resident.retry_at = now + wait
        resident.failure = detail
        resident.become(ReplicaState.CRASHED, now, f"{detail}; starts again in {wait:g} s")
        log.warning("worker %s %s", resident.slot, resident.detail)
        self.on_change()

    def _ask(self, resident: Resident, now: float) -> None:
        child = resident.child
        assert child is not None
        if resident.is_ready and now - resident.asked_at < _ASK_READY_SECONDS:
            return
        resident.asked_at = now
        try:
            status = probe.ask_worker(self.layout.socket(resident.slot), timeout_seconds=_ASK_TIMEOUT_SECONDS)
        except probe.ProbeError:
            if now - max(resident.answered_at, child.file.started_at) > _MUTE_SECONDS:
                log.warning(
                    "worker %s gave no answer for %.0f s and is replaced", resident.slot, _MUTE_SECONDS
                )
                child.send(signal.SIGKILL)
            return
        if status.pid != child.identity.pid:  # the last owner of the socket, still ending
            return
        resident.answered_at, resident.status = now, status
        state = ReplicaState.DRAINING if resident.draining_since is not None else status.state
        keeps = state is ReplicaState.STARTING and resident.state is state
        if resident.become(state, now, status.detail or (resident.detail if keeps else "")):
            self.on_change()

    def occupants(self, plane: PlaneStatus | None) -> dict[Slot, Occupant]:
        return {slot: self._occupant(resident, plane) for slot, resident in self.slots.items()}

    def _occupant(self, resident: Resident, plane: PlaneStatus | None) -> Occupant:
        copying = resident.files is not None
        return Occupant(
            alive=resident.child is not None or copying,
            ready=resident.is_ready,
            idle=copying or _is_idle(resident.slot, plane),
            draining_since=resident.draining_since,
            asked_to_stop_at=resident.asked_to_stop_at,
            retry_at=resident.retry_at,
        )

    def ready(self) -> set[tuple[str, int, str]]:
        """Versions with at least one worker that can answer; one on its way out does not count."""
        return {slot.loads for slot, resident in self.slots.items() if resident.is_ready}

    def start(self, slot: Slot, spec: VersionSpec, *, workers: int, now: float) -> None:
        """Lay out the files, in the background, then start the process at the next call."""
        resident = self.slots.setdefault(slot, Resident(slot, ReplicaState.STARTING, now))
        if resident.files is not None:
            return
        if slot.digest not in self._verified:
            store = BlobStore(self.layout.blobs)
            resident.become(ReplicaState.STARTING, now, "laying out files")
            resident.files = self._copier.submit(
                materialise, spec, self.layout.versions, store, contract_bytes(spec.contract)
            )
            return
        threads = sizing.threads_for(spec.contract, workers=workers, quota=sizing.cpu_quota())
        try:
            resident.child = processes.spawn(
                self.layout.worker_command(slot, threads=threads),
                pid_file=self.layout.pid_file(slot),
                log_file=self.layout.log(slot),
                environment=environment() | {"OMP_NUM_THREADS": str(threads)},
                started_at=now,
                restarts=resident.restarts,
                meta=msgspec.to_builtins(slot),
            )
        except OSError as error:
            self._fail(resident, now, f"cannot be started: {error}")
            return
        resident.answered_at = now
        resident.draining_since = resident.asked_to_stop_at = None
        resident.become(ReplicaState.STARTING, now, resident.failure and f"again, after: {resident.failure}")
        self.on_change()

    def drain(self, slot: Slot, now: float) -> None:
        resident = self.slots[slot]
        resident.draining_since = now
        if resident.become(ReplicaState.DRAINING, now):
            self.on_change()

    def stop(self, slot: Slot, now: float) -> None:
        resident = self.slots[slot]
        resident.asked_to_stop_at = now
        if resident.child:
            resident.child.send(signal.SIGTERM)

    def kill(self, slot: Slot) -> None:
        child = self.slots[slot].child
        if child:
            child.send(signal.SIGKILL)

    def forget(self, slot: Slot) -> None:
        self.slots.pop(slot, None)
        self.layout.pid_file(slot).unlink(missing_ok=True)
        self.layout.socket(slot).unlink(missing_ok=True)
        self.on_change()

    def undrain(self, needed: Collection[Slot]) -> None:
        """Wanted again before it was asked to stop: it simply stays."""
        for slot in needed:
            resident = self.slots.get(slot)
            if resident and resident.draining_since is not None and resident.asked_to_stop_at is None:
                resident.draining_since, resident.asked_at = None, 0.0
                resident.state = ReplicaState.STARTING

    def reports(self) -> tuple[ReplicaReport, ...]:
        return tuple(_report(resident) for _, resident in sorted(self.slots.items()))

    def close(self) -> None:
        self._copier.shutdown(wait=False, cancel_futures=True)


def _is_idle(slot: Slot, plane: PlaneStatus | None) -> bool:
    """No request of this version waits in the plane, and none is inside this worker."""
    if plane is None:
        return True
    pools = [pool for pool in plane.pools if (pool.service, pool.version) == (slot.service, slot.version)]
    links = [
        link
        for link in plane.links
        if (link.service, link.version, link.ordinal) == (slot.service, slot.version, slot.ordinal)
    ]
    return not any(pool.retiring and pool.requests for pool in pools) and not any(
        link.inflight for link in links
    )


def _report(resident: Resident) -> ReplicaReport:
    slot, status = resident.slot, resident.status
    pid = resident.child.identity.pid if resident.child else None
    return ReplicaReport(
        service=slot.service,
        version=slot.version,
        ordinal=slot.ordinal,
        state=resident.state,
        detail=resident.detail,
        pid=pid,
        since=resident.since,
        restarts=resident.restarts,
        rss_bytes=processes.rss_of(pid) if pid else 0,
        load_phases=dict(status.load_phases) if status else {},
    )
