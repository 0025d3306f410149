"""One version in the plane: its queue, its workers, and what happens to a request between the two."""

import asyncio
import time
from collections.abc import Callable
from math import prod

from inference.contract import Contract
from inference.plane import answers
from inference.plane.batcher import FairQueue, Job, Piece
from inference.plane.datatypes import BY_CODE, bytes_offsets
from inference.plane.links import Batch, Link, Outputs
from inference.plane.metrics import VersionMeter
from inference.plane.probe import PoolStatus, WorkerStatus
from inference.plane.refusals import Limit, RefusedError
from inference.plane.requests import Codec
from inference.plane.routes import WorkerRoute

MAX_DEATHS = 2
# How long a version without a worker still counts as one that will be back.
HOPE_SECONDS = 30.0
START_SECONDS = 3.0


class Pool:
    """weights: of tenants in the queue. Every job that `submit` takes ends with one call to its reply."""

    def __init__(
        self, service: str, version: int, contract: Contract, meter: VersionMeter, instance: str
    ) -> None:
        self.service = service
        self.version = version
        self.contract = contract
        self.meter = meter
        self.timeout_seconds = contract.spec.parameters.inference_timeout_ms / 1e3
        self.limit = contract.spec.parameters.max_concurrent_requests
        self.codec = Codec(contract, batched=contract.max_batch_size > 1)
        self.queue = FairQueue(contract.max_batch_size if self.codec.batched else 1)
        self.links: dict[str, Link] = {}
        self.outstanding: dict[str, int] = {}
        self.total = 0
        self.ready = False
        self.retiring = False
        self._full_hands = False
        self._pump_due = False
        self._loop = asyncio.get_running_loop()
        self.hope_until = time.monotonic() + START_SECONDS
        self.on_empty: Callable[[Pool], None] = lambda _: None
        self._instance = instance
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._leaving: list[Link] = []
        self.opening = answers.opening(service, str(version))
        self.version_line = b"x-pilothouse-version: %d\r\n" % version

    # Workers

    def set_workers(self, routes: list[WorkerRoute]) -> None:
        wanted = {route.socket: route for route in routes}
        for socket in self.links.keys() - wanted.keys():
            link = self.links.pop(socket)
            self._leaving.append(link)
            link.retire()
        for socket in wanted.keys() - self.links.keys():
            self.links[socket] = Link(wanted[socket], self, self._instance)
        self.link_changed()

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Of the classes of its outputs, as a worker told them."""
        for link in self.links.values():
            if link.worker is not None and link.worker.labels:
                return link.worker.labels
        return {}

    def link_changed(self) -> None:
        self.ready = any(link.state == "ready" for link in self.links.values())

    def link_ready(self, worker: WorkerStatus) -> None:
        if not worker.batch_safe:
            self.queue.max_rows = 1
        self.pump()

    def link_lost(self, batches: list[Batch], *, was_ready: bool) -> None:
        """Requests of a worker that went away go to another, or wait for its return."""
        if was_ready:
            self.hope_until = time.monotonic() + HOPE_SECONDS
        if batches:
            self.meter.deaths += 1
        for position, batch in enumerate(reversed(batches)):
            running = position == len(batches) - 1
            again = []
            for job in batch.jobs:
                if job.done:
                    continue
                if running:
                    # Only these can have killed it; alone, a poisonous one takes no innocent with it the next time.
                    job.deaths += 1
                    job.alone = True
                if job.deaths >= MAX_DEATHS:
                    self.meter.given_up += 1
                    told = f"the model's process died {job.deaths} times on this request; it is given up"
                    self._refuse(job, RefusedError(500, told))
                else:
                    again.append(job)
            self.queue.put_back(again)
        self.pump()

    # Requests

    def submit(self, job: Job) -> None:
        """Take a job in. Raises RefusedError 503 when it cannot wait here."""
        if self.total >= self.limit:
            self._make_room(job.tenant)
        if not self.ready and time.monotonic() > self.hope_until:
            raise RefusedError(
                503,
                f"no worker of {self.service} version {self.version} is ready",
                Limit("worker", len(self.links), 0, 1.0),
            )
        self.total += 1
        self.outstanding[job.tenant] = self.outstanding.get(job.tenant, 0) + 1
        self.queue.add(job)
        if job.deadline < self._timer_at:
            self._arm(job.deadline)
        if not self._full_hands and not self._pump_due:
            # After the sockets that are readable now: what has already arrived leaves in one batch, and nobody waits.
            self._pump_due = True
            self._loop.call_soon(self.pump)

    def cancel(self, job: Job) -> None:
        """The client is gone: leave the queue, or let the answer fall on the floor."""
        if not job.done:
            self._settle(job)

    def pump(self) -> None:
        """Hand batches to workers as long as both wait. A worker that is idle never waits for a fuller batch."""
        queue = self.queue
        self._full_hands = self._pump_due = False
        while queue:
            link = self._idlest()
            if link is None:
                self._full_hands = True  # until one comes back: then `pump` is called again
                return
            batch = queue.take()
            now = time.monotonic()
            observe = self.meter.queue.observe
            for job in batch:
                observe(now - job.arrived)
            link.send(batch)

    def _idlest(self) -> Link | None:
        best = None
        for link in self.links.values():
            if link.accepts and (best is None or len(link.batches) < len(best.batches)):
                best = link
        return best

    def _make_room(self, tenant: str) -> None:
        """The queue is full: a tenant below its fair share takes the newest place of the one furthest above its own."""
        weights = self.queue.weights
        active = {*self.outstanding, tenant}
        total = sum(weights.get(name, 1) for name in active)

        def share(name: str) -> float:
            return self.limit * weights.get(name, 1) / total

        if self.outstanding.get(tenant, 0) + 1 <= share(tenant):
            fullest = sorted(self.outstanding, key=lambda name: share(name) - self.outstanding[name])
            for name in fullest:
                if name != tenant and self.outstanding[name] > share(name):
                    job = self.queue.newest(name)
                    if job is not None:
                        self._refuse(job, self._full())
                        return
        raise self._full()

    def _full(self) -> RefusedError:
        return RefusedError(
            503,
            f"{self.service} version {self.version} has {self.total} requests in hand, its limit is {self.limit}:"
            " 0 places are left; try again in a second",
            Limit("queue", self.limit, 0, 1.0),
        )

    # Endings

    def batch_ran(self, batch: Batch, outputs: Outputs) -> None:
        jobs, rows = batch.jobs, batch.rows
        self.meter.ran(rows if rows > 0 else len(jobs), outputs.input_ns, outputs.run_ns, outputs.output_ns)
        self.meter.last_at = int(time.time() * 1e3)
        if len(jobs) == 1:
            self._answer(jobs[0], outputs.pieces)
            return
        if any(not dims or dims[0] != rows for _, dims, _ in outputs.pieces):
            # The graph promised rows and gave something else: joined answers cannot be told apart.
            self.queue.max_rows = 1
            self._run_alone(jobs)
            return
        cuts = [_cut(piece, jobs, rows) for piece in outputs.pieces]
        for job, pieces in zip(jobs, zip(*cuts, strict=True), strict=True):
            self._answer(job, list(pieces))

    def batch_failed(self, batch: Batch, status: int, sentence: str) -> None:
        if len(batch.jobs) > 1:
            self._run_alone(batch.jobs)
        elif not batch.jobs[0].done:
            self._refuse(batch.jobs[0], RefusedError(status, sentence))

    def _run_alone(self, jobs: list[Job]) -> None:
        """One request of a batch may be to blame: each again by itself, so only that one fails."""
        self.meter.reruns += 1
        again = [job for job in jobs if not job.done]
        for job in again:
            job.alone = True
        self.queue.put_back(again)

    def _answer(self, job: Job, pieces: list[Piece]) -> None:
        if job.done:
            return
        self._settle(job)
        job.answered(pieces)

    def _refuse(self, job: Job, error: RefusedError) -> None:
        self._settle(job)
        job.refused(error)

    def _settle(self, job: Job) -> None:
        job.done = True
        self.queue.remove(job)
        self.total -= 1
        left = self.outstanding[job.tenant] - 1
        if left:
            self.outstanding[job.tenant] = left
        else:
            del self.outstanding[job.tenant]
        if self.retiring and not self.total:
            self.on_empty(self)

    # Deadlines: one timer for the earliest, looked at again only when it fires

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay = max(0.001, at - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = time.monotonic()
        waiting = list(self.queue)
        inside = [job for link in self._all_links() for batch in link.batches.values() for job in batch.jobs]
        earliest = float("inf")
        for job in waiting + inside:
            if job.done:
                continue
            if job.deadline <= now:
                self._refuse(job, self._late(job))
            elif job.deadline < earliest:
                earliest = job.deadline
        if earliest < float("inf"):
            self._arm(earliest)

    def _late(self, job: Job) -> RefusedError:
        allowed = round((job.deadline - job.arrived) * 1e3)
        where = "in the queue" if job.queued else "inside the model"
        if job.queued and not self.ready:
            where = "waiting for a worker that is not back yet"
        return RefusedError(504, f"the deadline of {allowed} ms passed {where}")

    # Leaving

    def retire(self) -> None:
        """No new requests come; those in hand are finished by this version's own workers."""
        self.retiring = True
        if not self.total:
            self.on_empty(self)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for link in self.links.values():
            link.retire()
        self.links.clear()

    def _all_links(self) -> list[Link]:
        return [*self.links.values(), *self._leaving]

    def trim(self) -> None:
        self._leaving = [link for link in self._leaving if link.batches]
        for link in self.links.values():
            link.trim()

    def status(self) -> PoolStatus:
        return PoolStatus(self.service, self.version, self.total, self.retiring)


def _cut(piece: Piece, jobs: list[Job], rows: int) -> list[Piece]:
    """One output of a batch, cut into its requests' rows."""
    code, dims, data = piece
    inner = dims[1:]
    cut: list[Piece] = []
    if BY_CODE[code].size:
        size, at = len(data) // rows if rows else 0, 0
        for job in jobs:
            end = at + job.rows * size
            cut.append((code, (job.rows, *inner), data[at:end]))
            at = end
        return cut
    elements, at = prod(inner), 0
    for job, end in zip(jobs, bytes_offsets(data, (job.rows * elements for job in jobs)), strict=True):
        cut.append((code, (job.rows, *inner), data[at:end]))
        at = end
    return cut
