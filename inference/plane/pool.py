"""One version in the plane: its queue, its workers, and what happens to a request between the two."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from inference.contract import Contract
from inference.plane import answers
from inference.plane.arrivals import Arrivals
from inference.plane.batcher import Job
from inference.plane.costs import seeds_of
from inference.plane.cutting import cut
from inference.plane.governor import SHED, Governor, Terms
from inference.plane.holding import Hold
from inference.plane.isolation import Isolation
from inference.plane.ladder import RANKS, Rung
from inference.plane.links import Batch, Link, Outputs
from inference.plane.metrics import VersionMeter
from inference.plane.probe import PoolStatus, WorkerStatus
from inference.plane.refusals import Limit, RefusedError
from inference.plane.requests import Codec
from inference.plane.room import may_displace
from inference.plane.routes import WorkerRoute
from inference.plane.shadow import Shadow

MAX_DEATHS = 2
# How long a version without a worker still counts as one that will be back.
HOPE_SECONDS = 30.0
START_SECONDS = 3.0


class Pool:
    """Every job that `submit` takes ends with one call to its reply. outstanding: jobs in hand by tenant."""

    def __init__(
        self,
        service: str,
        version: int,
        contract: Contract,
        meter: VersionMeter,
        instance: str,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service = service
        self.version = version
        self.name = f"{service} version {version}"
        self.meter = meter
        self.contract = contract
        self.codec = Codec(contract, batched=contract.max_batch_size > 1)
        self.governor = Governor(Terms.of(contract))
        self.queue = self.governor.queue
        self._take_terms()
        self.arrivals = Arrivals()
        self.isolation = Isolation(self.queue)
        self.rung = Rung(RANKS[contract.spec.qos], 0.0)
        self.links: dict[str, Link] = {}
        self.outstanding: dict[str, int] = {}
        self.total = 0
        self.ready = False
        self.retiring = False
        self._full_hands = False
        self._pump_due = False
        self._loop = loop or asyncio.get_running_loop()
        self._clock = clock
        self.hope_until = clock() + START_SECONDS
        self.on_empty: Callable[[Pool], None] = lambda _: None
        self._instance = instance
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._hold = Hold(self.governor, self.queue, self._loop, self.pump)
        self._lonely = True
        self.shadow: Shadow | None = None
        self._leaving: list[Link] = []
        self.opening = answers.opening(service, str(version))
        self.version_line = b"x-pilothouse-version: %d\r\n" % version

    def _take_terms(self) -> None:
        self.timeout_seconds = self.governor.terms.timeout
        self.limit = self.governor.terms.limit

    def adopt(self, contract: Contract) -> None:
        """Serve on other parameters from the next request on; requests in hand keep the deadlines they have."""
        self.contract = contract
        self.codec = Codec(contract, batched=contract.max_batch_size > 1)
        self.rung = Rung(RANKS[contract.spec.qos], self.rung.pressure, self.rung.step, self.rung.calm)
        self.governor.adopt(Terms.of(contract))
        self._take_terms()
        self.pump()

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
        workers = sum(1 for link in self.links.values() if link.state == "ready")
        self.ready = workers > 0
        self.governor.workers = workers
        self.governor.tune()

    def link_ready(self, worker: WorkerStatus) -> None:
        if not worker.batch_safe:
            self.governor.never_join()
        device = bool(worker.providers) and not worker.providers[0].startswith("CPU")
        self.governor.seed(
            seeds_of(worker.batch_seconds, worker.load_phases), worker.row_bytes, device=device
        )
        self.pump()

    def link_lost(self, batches: list[Batch], *, was_ready: bool) -> None:
        """Requests of a worker that went away go to another, or wait for its return."""
        if was_ready:
            self.hope_until = self._clock() + HOPE_SECONDS
        if batches:
            self.meter.deaths += 1
        for position, batch in enumerate(reversed(batches)):
            running = position == len(batches) - 1
            again = []
            self.queue.settle(batch.jobs, None)
            for job in batch.jobs:
                if job.done:
                    continue
                if running:
                    # Only these can have killed it; alone, a poisonous one takes no innocent with it the next time.
                    job.deaths += 1
                    job.alone = True
                if job.deaths >= MAX_DEATHS:
                    self.meter.given_up += 1
                    self.isolation.strike(job, self._clock())
                    told = f"the model's process died {job.deaths} times on this request; it is given up"
                    self._refuse(job, RefusedError(500, told))
                else:
                    again.append(job)
            self.queue.put_back(again)
        self.pump()

    # Requests

    def submit(self, job: Job) -> None:
        """Take a job in. Raises RefusedError 503 when it cannot wait here."""
        governor = self.governor
        if self.total >= governor.freely or job.deadline - job.arrived < governor.comfort:
            self._admit(job)
        self.total += 1
        tenant, outstanding = job.tenant, self.outstanding
        outstanding[tenant] = outstanding.get(tenant, 0) + 1
        self.queue.add(job)
        if job.deadline < self._timer_at:
            self._arm(job.deadline)
        if self.total == 1 and self._lonely:
            self.pump()  # a client that waits for each answer: nobody joins, so not even the next turn is worth it
        elif not self._full_hands and not self._pump_due:
            # After the sockets that are readable now: what has already arrived leaves in one batch, and nobody waits.
            self._pump_due = True
            self._loop.call_soon(self.pump)

    def _admit(self, job: Job) -> None:
        """All that can speak against a request, for those that do not come in freely."""
        now = self._clock()
        if self.total >= self.limit:
            self._make_room(job.tenant)
        if not self.ready and now > self.hope_until:
            raise RefusedError(
                503, f"no worker of {self.name} is ready", Limit("worker", len(self.links), 0, 1.0)
            )
        if self.isolation.quarantine:
            job.wire = self.isolation.quarantine.wire_of(job.tenant, job.wire)
        if not self.total or not self.ready:
            return  # nobody is ahead, so it is tried: how else would a wrong estimate be found out?
        inside = self._rows_inside()
        if self.governor.step >= SHED:
            self.governor.shed(job, inside, self.outstanding, self.name)
        self.governor.admit(job, now, inside, self.name)

    def _rows_inside(self) -> float:
        return sum(max(1, batch.rows) for link in self.links.values() for batch in link.batches.values())

    def cancel(self, job: Job) -> None:
        """The client is gone: leave the queue, or let the answer fall on the floor."""
        if not job.done:
            self._settle(job)

    def pump(self) -> None:
        """Hand batches to workers as long as both wait."""
        queue, governor = self.queue, self.governor
        self._full_hands = self._pump_due = False
        while queue.rows:
            link = self._idlest()
            if link is None:
                self._full_hands = True  # until one comes back: then `pump` is called again
                return
            now = self._clock()
            why = "idle"
            if governor.window.delays:
                why = self._hold.may_go(now, at_once=self.retiring)
                if not why:
                    return
            batch = queue.take(now)
            self.meter.dispatched["drain" if self.retiring else queue.reason or why] += 1
            self.meter.queue.observe_all([now - job.arrived for job in batch])
            if self.arrivals.open:
                self.arrivals.record(batch)
            self._hold.taken += len(batch)
            self._lonely = len(batch) == 1
            link.send(batch)

    def _idlest(self) -> Link | None:
        best = None
        for link in self.links.values():
            if link.accepts and (best is None or len(link.batches) < len(best.batches)):
                best = link
        return best

    def _make_room(self, tenant: str) -> None:
        """The queue is full: a tenant below its fair share takes the newest place of the one furthest above its own."""
        for name in may_displace(tenant, self.outstanding, self.queue.weights, self.limit):
            job = self.queue.newest(name)
            if job is not None:
                self._refuse(job, self._full())
                return
        raise self._full()

    def _full(self) -> RefusedError:
        return RefusedError(
            503,
            f"{self.name} has {self.total} requests in hand, its limit is {self.limit}:"
            " 0 places are left; try again in a second",
            Limit("queue", self.limit, 0, 1.0),
        )

    # Endings

    def batch_ran(self, batch: Batch, outputs: Outputs) -> None:
        jobs, rows = batch.jobs, batch.rows
        count = rows if rows > 0 else len(jobs)
        input_ns, run_ns, output_ns = outputs.input_ns, outputs.run_ns, outputs.output_ns
        self.meter.ran(count, input_ns, run_ns, output_ns)
        self.meter.last_at = int(time.time() * 1e3)
        self.governor.ran(jobs, count, (input_ns + run_ns + output_ns) * 1e-9)
        if len(jobs) == 1:
            if self.isolation.busy:
                self.isolation.ended(jobs[0], self._clock(), failed=False)
            answered = [outputs.pieces]
        elif any(not dims or dims[0] != rows for _, dims, _ in outputs.pieces):
            # The graph promised rows and gave something else: joined answers cannot be told apart.
            self.governor.never_join()
            self._run_alone(jobs)
            return
        else:
            cuts = [cut(piece, jobs, rows) for piece in outputs.pieces]
            answered = [list(pieces) for pieces in zip(*cuts, strict=True)]
        outstanding, shadow = self.outstanding, self.shadow
        for job, pieces in zip(jobs, answered, strict=True):
            if not job.done:
                job.done = True
                self.total -= 1
                outstanding[job.tenant] -= 1
                job.answered(pieces)
                if shadow is not None:
                    shadow.served(job, pieces)
        if self.retiring and not self.total:
            self.on_empty(self)

    def batch_failed(self, batch: Batch, status: int, sentence: str) -> None:
        jobs = batch.jobs
        self.queue.settle(jobs, None)
        if len(jobs) > 1:
            self._run_alone(jobs)
            return
        self.isolation.ended(jobs[0], self._clock(), failed=True)
        if not jobs[0].done:
            late = status == 504  # a worker knows that it is late, not what was allowed
            self._refuse(jobs[0], self._late(jobs[0]) if late else RefusedError(status, sentence))

    def _run_alone(self, jobs: list[Job]) -> None:
        self.meter.reruns += 1
        self.isolation.rerun(jobs)

    def _refuse(self, job: Job, error: RefusedError) -> None:
        self._settle(job)
        job.refused(error)

    def _settle(self, job: Job) -> None:
        job.done = True
        self.queue.remove(job)
        if self.isolation.busy:
            self.isolation.ended(job, self._clock(), failed=False)
        self.total -= 1
        self.outstanding[job.tenant] -= 1
        if self.retiring and not self.total:
            self.on_empty(self)

    # Deadlines: one timer for the earliest, looked at again only when it fires

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay = max(0.001, at - self._clock())
        self._timer = self._loop.call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._clock()
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
        self._hold.close()
        if self._timer is not None:
            self._timer.cancel()
        for link in self.links.values():
            link.retire()
        self.links.clear()

    def _all_links(self) -> list[Link]:
        return [*self.links.values(), *self._leaving]

    # Once a second

    def tick(self) -> None:
        """Memory back, records open again, prisoners out."""
        self._leaving = [link for link in self._leaving if link.batches]
        for link in self.links.values():
            link.trim()
        self.arrivals.tick()
        self.isolation.tick(self._clock())
        self.meter.quarantines = self.isolation.quarantine.count
        self.outstanding = {name: count for name, count in self.outstanding.items() if count}
        self.rung = replace(self.rung, pressure=self.governor.pressure(self._rows_inside()))

    def stand_on(self, rung: Rung) -> None:
        """The step of the degradation ladder from now on."""
        self.rung = rung
        if (rung.step, rung.forced) != (self.governor.step, self.governor.forced):
            self.governor.step, self.governor.forced = rung.step, rung.forced
            self.governor.tune()

    def status(self) -> PoolStatus:
        return PoolStatus(
            self.service,
            self.version,
            self.total,
            self.retiring,
            self.governor.step,
            tuple(self.isolation.quarantine.inside()),
        )
