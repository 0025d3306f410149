"""Who goes next: requests of one version, in fair turns between tenants, joined into batches. Pure: no clock, no I/O.

Deficit round robin over tenants (Shreedhar and Varghese, 1995): at each turn a tenant may take `quantum x weight` more
rows. A batch holds requests of one Wire; a tenant's own requests leave in the order they came, apart from other wires.
"""

from collections import deque
from collections.abc import Iterator

from inference.plane.packing import Buffer
from inference.plane.refusals import RefusedError
from inference.plane.requests import Plan, Wire

# One output of one request: datatype code, dims, packed data, which is valid only during the call that hands it over.
Piece = tuple[int, tuple[int, ...], Buffer]


class Job:
    """One request on its way; whoever made it overrides `answered` and `refused`, of which one is called, once.

    rows: -1 when the model does not batch. cost: what it takes of a batch, at least 1. deadline: time.monotonic().
    """

    __slots__ = (
        "alone", "arrived", "buffers", "cost", "deadline", "deaths", "done", "plan", "queued", "rows", "sequence",
        "tenant", "wire",
    )  # fmt: skip

    def __init__(self, tenant: str, arrived: float) -> None:
        self.tenant = tenant
        self.arrived = arrived
        self.deaths = 0
        self.alone = False
        self.sequence = 0
        self.done = True
        self.queued = False

    def carry(self, plan: Plan, rows: int, buffers: list[Buffer], deadline: float) -> None:
        self.plan = plan
        self.wire = plan.wire
        self.rows = rows
        self.cost = rows if rows > 1 else 1
        self.buffers = buffers
        self.deadline = deadline
        self.done = False

    def answered(self, outputs: list[Piece]) -> None:
        raise NotImplementedError

    def refused(self, error: RefusedError) -> None:
        raise NotImplementedError


class _Tenant:
    __slots__ = ("deficit", "in_turn", "lines", "name", "size", "weight")

    def __init__(self, name: str, weight: int) -> None:
        self.name = name
        self.weight = weight
        self.lines: dict[Wire, deque[Job]] = {}
        self.size = 0
        self.deficit = 0
        self.in_turn = False

    def oldest(self) -> Wire:
        lines = self.lines
        if len(lines) == 1:
            return next(iter(lines))
        return min(lines, key=lambda wire: lines[wire][0].sequence)

    def take(self, wire: Wire) -> None:
        """Forget the head of a line, which the caller has."""
        line = self.lines[wire]
        line.popleft().queued = False
        self.size -= 1
        if not line:
            del self.lines[wire]


class FairQueue:
    """max_rows: of a joined batch; 1 means that nothing is joined."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.weights: dict[str, int] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._ring: deque[_Tenant] = deque()
        self._alone: deque[Job] = deque()
        self._sequence = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Job]:
        yield from self._alone
        for tenant in self._ring:
            for line in tenant.lines.values():
                yield from line

    def set_weights(self, weights: dict[str, int]) -> None:
        """Tenants without a weight have 1."""
        self.weights = weights
        for tenant in self._ring:
            tenant.weight = weights.get(tenant.name, 1)

    def add(self, job: Job) -> None:
        self._sequence += 1
        job.sequence = self._sequence
        self._line(job).append(job)

    def put_back(self, jobs: list[Job]) -> None:
        """Jobs that were taken and did not run: before all others, or by themselves where `alone` says so."""
        for job in reversed(jobs):
            if job.alone:
                job.queued = True
                self._size += 1
                self._alone.appendleft(job)
            else:
                self._line(job).appendleft(job)

    def _line(self, job: Job) -> deque[Job]:
        job.queued = True
        self._size += 1
        tenant = self._tenants.get(job.tenant)
        if tenant is None:
            tenant = self._tenants[job.tenant] = _Tenant(job.tenant, self.weights.get(job.tenant, 1))
            self._ring.append(tenant)
        tenant.size += 1
        line = tenant.lines.get(job.wire)
        if line is None:
            line = tenant.lines[job.wire] = deque()
        return line

    def remove(self, job: Job) -> None:
        """A cancelled or expired job; nothing happens when it is not here."""
        if not job.queued:
            return
        job.queued = False
        self._size -= 1
        if job.alone:
            self._alone.remove(job)
            return
        tenant = self._tenants[job.tenant]
        line = tenant.lines[job.wire]
        line.remove(job)
        tenant.size -= 1
        if not line:
            del tenant.lines[job.wire]
        if not tenant.size:
            self._ring.remove(tenant)
            del self._tenants[tenant.name]

    def newest(self, tenant: str) -> Job | None:
        found = self._tenants.get(tenant)
        if found is None:
            return None
        return max((line[-1] for line in found.lines.values()), key=lambda job: job.sequence)

    def take(self) -> list[Job]:
        """The next batch; empty when nobody waits."""
        if self._alone:
            job = self._alone.popleft()
            job.queued = False
            self._size -= 1
            return [job]
        if not self._ring:
            return []
        batch = self._take_from_one(self._ring[0]) if len(self._ring) == 1 else self._take_in_turns()
        self._size -= len(batch)
        return batch

    def _take_from_one(self, tenant: _Tenant) -> list[Job]:
        wire = tenant.oldest()
        line = tenant.lines[wire]
        batch, room = [line[0]], self.max_rows - line[0].cost
        tenant.take(wire)
        while line and line[0].cost <= room:
            job = line[0]
            room -= job.cost
            batch.append(job)
            tenant.take(wire)
        if not tenant.size:
            self._leave(tenant)
        return batch

    def _take_in_turns(self) -> list[Job]:
        quantum = max(1, self.max_rows // 16)
        ring = self._ring
        wire = ring[0].oldest()
        batch: list[Job] = []
        room, idle_turns = self.max_rows, 0
        passed_over: _Tenant | None = None
        while ring and room > 0 and idle_turns < len(ring):
            tenant = ring[0]
            if not tenant.in_turn:
                tenant.in_turn = True
                tenant.deficit += quantum * tenant.weight
            line = tenant.lines.get(wire)
            if not line:
                # Credit is not hoarded by being passed over: one batch's worth is the most.
                tenant.deficit = min(tenant.deficit, self.max_rows)
            while line and line[0].cost <= tenant.deficit and (line[0].cost <= room or not batch):
                job = line[0]
                tenant.deficit -= job.cost
                room -= job.cost
                batch.append(job)
                tenant.take(wire)
            if not tenant.size:
                self._leave(tenant)
                continue
            if room <= 0:
                break  # its turn goes on with the next batch
            if line and (line[0].cost <= room or not batch):
                idle_turns = 0  # it only lacks credit, which grows with each round
            else:
                idle_turns += 1
                passed_over = passed_over or tenant
            tenant.in_turn = False
            ring.rotate(-1)
        self._lead(passed_over)
        return batch

    def _lead(self, tenant: _Tenant | None) -> None:
        """Whoever could not join, for a request too long or of another wire, chooses the next batch."""
        if tenant is None or tenant.name not in self._tenants:
            return
        while self._ring[0] is not tenant:
            self._ring[0].in_turn = False
            self._ring.rotate(-1)

    def _leave(self, tenant: _Tenant) -> None:
        self._ring.remove(tenant)
        del self._tenants[tenant.name]
