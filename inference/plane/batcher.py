"""Who goes next: requests of one version, in fair turns between tenants, joined into batches. Pure: no clock, no I/O.

Each tenant has an account of the worker time spent on it, divided by its weight; the tenant that would be done first,
had each its own share of the workers, is next (Parekh and Gallager's packet form of fair queueing, 1993, in turns of
a quantum as in Shreedhar and Varghese's deficit round robin, 1995). Time is predicted when a batch is taken and put
right when it has run. A batch holds requests of one Wire; a tenant's requests of one Wire leave in the order they came.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from inference.plane.packing import Buffer
from inference.plane.plans import Plan, Wire
from inference.plane.refusals import RefusedError

# One output of one request: datatype code, dims, packed data, which is valid only during the call that hands it over.
Piece = tuple[int, tuple[int, ...], Buffer]
# Of a whole batch: what a tenant may take before another one's turn comes.
TURNS = 8
MAX_AWAY = 16


class Job:
    """One request on its way; whoever made it overrides `answered` and `refused`, of which one is called, once.

    rows: -1 when the model does not batch. cost: what it takes of a batch, at least 1. deadline: time.monotonic().
    """

    __slots__ = (
        "alone", "arrived", "buffers", "cost", "deadline", "deaths", "done", "plan", "queued", "rows", "tenant", "wire",
    )  # fmt: skip

    def __init__(self, tenant: str, arrived: float) -> None:
        self.tenant = tenant
        self.arrived = arrived
        self.deaths = 0
        self.alone = False
        self.done = True

    def carry(self, plan: Plan, rows: int, buffers: list[Buffer], deadline: float) -> None:
        self.plan = plan
        self.wire = plan.wire
        self.rows = rows
        self.cost = rows if rows > 1 else 1
        self.buffers = buffers
        self.deadline = deadline
        self.done = False
        self.queued = True

    def answered(self, outputs: list[Piece]) -> None:
        raise NotImplementedError

    def refused(self, error: RefusedError) -> None:
        raise NotImplementedError


class _Tenant:
    """lines: none is empty, but for the last one of a tenant that is alone, which is kept for its next request.

    spent: seconds of worker time so far, divided by weight.
    """

    __slots__ = ("lines", "name", "spent", "weight")

    def __init__(self, name: str, weight: int) -> None:
        self.name = name
        self.weight = weight
        self.spent = 0.0
        self.lines: dict[Wire, deque[Job]] = {}

    def urgent(self, now: float) -> Wire:
        """Whose head has waited for half of its time, the longest first; else whose deadline is next."""
        lines = self.lines
        if len(lines) == 1:
            return next(iter(lines))
        return min(lines, key=lambda wire: _urgency(lines[wire][0], now))


def _urgency(job: Job, now: float) -> tuple[bool, float]:
    aged = now - job.arrived > job.deadline - now
    return (not aged, job.arrived if aged else job.deadline)


def _by_rows(wire: Wire, rows: float) -> float:
    return rows


class FairQueue:
    """max_rows: of a joined batch; 1 means that nothing is joined.

    price: predicted seconds of a run of one Wire and so many rows. solo: wires whose requests are not joined.
    reason: why the batch taken last ended where it did: full, key_change, or "" when nothing else could have joined.
    """

    def __init__(self, max_rows: int, price: Callable[[Wire, float], float] = _by_rows) -> None:
        self.max_rows = max_rows
        self.price = price
        self.weights: dict[str, int] = {}
        self.solo: set[Wire] = set()
        self.rows = 0
        self.reason = ""
        self._tenants: dict[str, _Tenant] = {}
        self._alone: deque[Job] = deque()
        # Tenants without a request here keep what they overspent. Nobody begins below the floor: time that was not
        # used is no credit for later.
        self._away: dict[str, _Tenant] = {}
        self._floor = 0.0
        self._charged: dict[Job, dict[str, float]] = {}

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return self.rows > 0

    def __iter__(self) -> Iterator[Job]:
        yield from self._alone
        for tenant in self._tenants.values():
            for line in tenant.lines.values():
                yield from line

    def set_weights(self, weights: dict[str, int]) -> None:
        """Tenants without a weight have 1."""
        self.weights = weights
        for tenant in (*self._tenants.values(), *self._away.values()):
            tenant.weight = weights.get(tenant.name, 1)

    def add(self, job: Job) -> None:
        self.rows += job.cost
        tenant = self._tenants.get(job.tenant)
        if tenant is not None:
            line = tenant.lines.get(job.wire)
            if line is not None:
                line.append(job)
                return
        self._line(job).append(job)

    def put_back(self, jobs: list[Job]) -> None:
        """Jobs that were taken and did not run: before all others, or by themselves where `alone` says so."""
        for job in reversed(jobs):
            job.queued = True
            self.rows += job.cost
            if job.alone:
                self._alone.appendleft(job)
            else:
                self._line(job).appendleft(job)

    def _line(self, job: Job) -> deque[Job]:
        tenant = self._tenants.get(job.tenant)
        if tenant is None:
            tenant = self._enter(job.tenant)
        line = tenant.lines.get(job.wire)
        if line is None:
            tenant.lines = {wire: line for wire, line in tenant.lines.items() if line}
            line = tenant.lines[job.wire] = deque()
        return line

    def remove(self, job: Job) -> None:
        """A cancelled or expired job; nothing happens when it is not here."""
        if not job.queued:
            return
        job.queued = False
        self.rows -= job.cost
        if job.alone:
            self._alone.remove(job)
            return
        tenant = self._tenants[job.tenant]
        line = tenant.lines[job.wire]
        line.remove(job)
        if not line:
            del tenant.lines[job.wire]
            self._leave_if_empty(tenant)

    def newest(self, tenant: str) -> Job | None:
        found = self._tenants.get(tenant)
        ends = [line[-1] for line in found.lines.values() if line] if found is not None else []
        return max(ends, key=lambda job: job.arrived, default=None)

    def oldest(self) -> Job | None:
        """Of those waiting for a joined batch."""
        heads = [line[0] for tenant in self._tenants.values() for line in tenant.lines.values() if line]
        return min(heads, key=lambda job: job.arrived, default=None)

    def take(self, now: float = 0.0) -> list[Job]:
        """The next batch; empty when nobody waits. Each one is told to `settle` in the end."""
        if not self.rows:
            return []
        if self._alone:
            job = self._alone.popleft()
            job.queued = False
            self.rows -= job.cost
            self.reason = "full"
            return [job]
        tenants = self._tenants
        if len(tenants) == 1:
            (tenant,) = tenants.values()
            batch = self._take_from_one(tenant, now)
        else:
            batch = self._take_in_turns(now)
        rows = 0
        for job in batch:
            job.queued = False
            rows += job.cost
        self.rows -= rows
        return batch

    def settle(self, batch: list[Job], seconds: float | None) -> None:
        """The batch is back after so much worker time; None: it did not run to its end, and costs nobody anything."""
        if self._charged:
            charged = self._charged.pop(batch[0], None)
            if charged is not None:
                self._put_right(charged, seconds or 0.0)

    # One tenant: nobody to be fair to, so nothing is charged

    def _take_from_one(self, tenant: _Tenant, now: float) -> list[Job]:
        wire = tenant.urgent(now)
        line = tenant.lines[wire]
        limit = 1 if wire in self.solo else self.max_rows
        if self.rows <= limit and len(tenant.lines) == 1:  # all that waits: the usual case
            self.reason = "full" if self.rows == limit else ""
            batch = list(line)
            line.clear()
            if self._away:
                self._begin_anew()
            return batch
        batch = [line.popleft()]
        room = limit - batch[0].cost
        while line and line[0].cost <= room:
            job = line.popleft()
            room -= job.cost
            batch.append(job)
        self.reason = "full" if line or room <= 0 else "key_change"
        if not line:
            del tenant.lines[wire]
            self._leave_if_empty(tenant)
        return batch

    # Several tenants

    def _take_in_turns(self, now: float) -> list[Job]:
        leader, wire = self._leader(now)
        self._floor = max(self._floor, leader.spent)
        limit = 1 if wire in self.solo else self.max_rows
        each = max(self.price(wire, limit) / limit, 1e-9)
        ceiling = self._ceiling(wire)
        batch: list[Job] = []
        charged: dict[str, float] = {}
        room, turn = limit, each * limit / TURNS
        # All who ride along may together get one batch ahead of one who cannot.
        ahead = each * limit / sum([tenant.weight for tenant in self._tenants.values()])
        heap = [
            (-1.0 if tenant is leader else tenant.spent + tenant.lines[wire][0].cost * each / tenant.weight,
             number, tenant)
            for number, tenant in enumerate(self._tenants.values())
            if wire in tenant.lines
        ]  # fmt: skip
        heapify(heap)
        full = changed = False
        while heap and not full:
            _, number, tenant = heappop(heap)
            line, weight = tenant.lines[wire], tenant.weight
            price = each / weight
            most = float("inf") if tenant is leader else ceiling + ahead
            until = min(most, (heap[0][0] if heap else float("inf")) + turn / weight)
            taken = 0
            while line:
                cost = line[0].cost
                if batch and (cost > room or tenant.spent + (taken + cost) * price > until):
                    break
                batch.append(line.popleft())
                room -= cost
                taken += cost
            if taken:
                tenant.spent += taken * price
                charged[tenant.name] = charged.get(tenant.name, 0.0) + taken * each
            if not line:
                del tenant.lines[wire]
                self._leave_if_empty(tenant)
                if tenant.lines:
                    ceiling = min(ceiling, tenant.spent)
            elif room <= 0:
                full = True
            elif line[0].cost > room:
                changed = (
                    True  # it does not fit any more; a smaller one of another tenant may, yet not for ever
                )
                ceiling = min(ceiling, tenant.spent)
            elif (done := tenant.spent + line[0].cost * price) <= most:
                heappush(heap, (done, number, tenant))
        self.reason = "full" if full or room <= 0 or changed else "key_change" if self._tenants else ""
        if self._tenants:
            self._charged[batch[0]] = charged
        return batch

    def _leader(self, now: float) -> tuple[_Tenant, Wire]:
        """Whose turn it is, and the key of the batch: the most urgent head's among those whose turn it is."""
        found: list[tuple[float, float, _Tenant, Wire]] = []
        total = sum([tenant.weight for tenant in self._tenants.values()])
        for tenant in self._tenants.values():
            wire = tenant.urgent(now)
            limit = 1 if wire in self.solo else self.max_rows
            whole = self.price(wire, limit)
            line = tenant.lines[wire]
            # A batch of one key runs as a whole: it is the packet that would end first under ideal sharing.
            rows = min(len(line) * line[0].cost, max(limit, line[0].cost))
            done = tenant.spent + whole * rows / limit / tenant.weight
            found.append((done, whole / TURNS / total, tenant, wire))
        first = min(found, key=lambda one: one[0])
        near = [one for one in found if one[0] <= first[0] + first[1]]
        if len(near) > 1:
            first = min(near, key=lambda one: _urgency(one[2].lines[one[3]][0], now))
        return first[2], first[3]

    def _ceiling(self, wire: Wire) -> float:
        """How far others may ride along: not beyond the tenant that waits longest for another key."""
        return min(
            (tenant.spent for tenant in self._tenants.values() if wire not in tenant.lines),
            default=float("inf"),
        )

    def _put_right(self, charged: dict[str, float], seconds: float) -> None:
        factor = seconds / (sum(charged.values()) or 1.0) - 1.0
        for name, predicted in charged.items():
            tenant = self._tenants.get(name) or self._away.get(name)
            if tenant is not None:
                tenant.spent += predicted * factor / tenant.weight

    def _enter(self, name: str) -> _Tenant:
        for other in list(self._tenants.values()) if len(self._tenants) == 1 else ():
            if not any(other.lines.values()):
                other.lines.clear()
                self._leave_if_empty(other)
        tenant = self._away.pop(name, None)
        if tenant is None:
            tenant = _Tenant(name, self.weights.get(name, 1))
        if tenant.spent < self._floor:
            tenant.spent = self._floor
        self._tenants[name] = tenant
        return tenant

    def _leave_if_empty(self, tenant: _Tenant) -> None:
        if tenant.lines:
            return
        del self._tenants[tenant.name]
        self._away[tenant.name] = tenant
        if not self._tenants:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Nobody waits, so nobody was wronged."""
        self._floor = 0.0
        self._charged.clear()
        if len(self._away) > MAX_AWAY:
            self._away.clear()
        for tenant in (*self._tenants.values(), *self._away.values()):
            tenant.spent = 0.0
