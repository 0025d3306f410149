"""The policy of one version: what it costs, how large a batch may be, who may come in. Pure; the clock is passed in.

The pool asks it while it serves, and a replay asks the same code about arrivals of the past.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inference.contract import Contract
from inference.plane.batcher import FairQueue, Job
from inference.plane.caps import SHARE, Cap, efficient, objective
from inference.plane.costs import Costs
from inference.plane.plans import Wire
from inference.plane.refusals import Limit, RefusedError
from inference.plane.room import is_shed_first
from inference.plane.window import Window

# Steps of the degradation ladder; each one includes those below it.
NO_DELAY, SMALLER, SHED, REFUSE = 1, 2, 3, 4
# Without an objective of its own, a version counts as overloaded when waiting takes this part of the timeout.
PATIENCE: Final = 0.25


@dataclass(frozen=True, slots=True)
class Terms:
    """What a contract says about serving; it may change while a version serves. Seconds and bytes.

    delay: None is adaptive. objective: None when the contract declares none.
    """

    max_rows: int
    limit: int
    timeout: float
    delay: float | None
    objective: float | None
    memory: int

    @classmethod
    def of(cls, contract: Contract) -> "Terms":
        parameters, slo = contract.spec.parameters, contract.spec.slo.latency_p99_ms
        delay = parameters.batching.max_queue_delay_ms
        return cls(
            max_rows=contract.max_batch_size,
            limit=parameters.max_concurrent_requests,
            timeout=parameters.inference_timeout_ms / 1e3,
            delay=None if delay == "adaptive" else float(delay) / 1e3,
            objective=None if slo is None else slo / 1e3,
            memory=parameters.memory_pool_mb << 20,
        )


class Governor:
    """freely, comfort: with fewer requests in hand, a request with so many seconds left comes in without a question."""

    def __init__(self, terms: Terms) -> None:
        self.costs = Costs()
        self.queue = FairQueue(terms.max_rows, self._price)
        self.cap = Cap(terms.max_rows)
        self.window = Window(terms.delay)
        self.terms = terms
        self.step = 0
        self.forced = False
        self.joins = True
        self.workers = 0
        self.row_bytes = 0
        self.freely = 0
        self.comfort = 0.0
        self.share = float("inf")
        self.patience = self.bound = terms.timeout
        self.adopt(terms)

    def _price(self, wire: Wire, rows: float) -> float:
        return self.costs.curve(wire).typical(rows) or rows * 1e-3

    def adopt(self, terms: Terms) -> None:
        self.terms = terms
        self.window.configure(terms.delay)
        self._bound_cap()
        self.tune()

    def seed(self, seconds_by_rows: Mapping[int, float], row_bytes: int, *, device: bool) -> None:
        """A worker tells of its warm-up; what was learnt from requests stays."""
        fresh = not self.costs.any().known
        self.costs.seed(seconds_by_rows)
        self.row_bytes = row_bytes
        self.window.device = device
        self._bound_cap()
        if fresh:
            curve = self.costs.any()
            self.cap.begin(curve, SHARE * objective(self.terms.objective, curve))
        self.tune()

    def never_join(self) -> None:
        """Rows of this model are not independent after all."""
        self.joins = False
        self.tune()

    def _bound_cap(self) -> None:
        fit = self.terms.memory // self.row_bytes if self.row_bytes else self.terms.max_rows
        self.cap.bound(min(self.terms.max_rows, fit))

    def tune(self) -> None:
        """Put together what is asked for each request, so that the asking is two comparisons."""
        terms, curve = self.terms, self.costs.any()
        rows = self.cap.rows if self.joins else 1
        if self.step >= SMALLER and curve.known:
            rows = efficient(curve, rows)
        self.queue.max_rows = rows
        goal = objective(terms.objective, curve)
        self.share = SHARE * goal if curve.known else float("inf")
        self.patience = goal if terms.objective is not None else PATIENCE * terms.timeout
        # A queue longer than twice the objective holds only requests that will be late.
        self.bound = 2 * goal if terms.objective is not None else terms.timeout
        self.window.study(curve, rows)
        if not self.workers or self.step >= SHED:
            self.freely, self.comfort = 0, 0.0
            return
        batch = curve.typical(rows) / self.workers
        # As if each request in hand were a whole batch.
        ahead = int(0.5 * min(terms.timeout, self.bound) / batch) if batch else terms.limit
        self.freely = min(terms.limit, ahead)
        self.comfort = self.freely * batch + curve.worst(rows)

    def ran(self, jobs: list[Job], rows: int, seconds: float) -> None:
        """A batch has run for so long; every 16th time the whole is looked at."""
        self.costs.curve(jobs[0].wire).observe(rows, seconds)
        queue = self.queue
        queue.settle(jobs, seconds)
        if self.cap.ran(late=seconds > self.share, full=rows >= queue.max_rows and queue.rows > 0):
            self.tune()

    # Waiting for company

    def hold(self, now: float) -> tuple[float, str]:
        """Until when the next batch waits for company although a worker is idle, 0.0: it goes; and why it goes then."""
        queue = self.queue
        oldest = queue.oldest()
        if oldest is None or queue.rows >= queue.max_rows or self.step >= NO_DELAY:
            return 0.0, "idle"
        curve = self.costs.curve(oldest.wire)
        slack = oldest.deadline - now - curve.worst(queue.rows + 1)
        wait = self.window.wait(now, queue.rows, oldest.arrived, slack, curve)
        why = "deadline" if wait >= slack or slack <= 0 else "timer"
        return (now + wait, why) if wait > 0 else (0.0, why if self.window.configured else "idle")

    # Who may come in

    def expected_wait(self, wire: Wire, inside: float) -> float:
        """Seconds until a request of this wire would begin to run. inside: rows in workers, half of them to go."""
        rows = self.queue.max_rows
        each = self.costs.curve(wire).typical(rows) / rows
        return (self.queue.rows + 0.5 * inside) * each / max(1, self.workers)

    def admit(self, job: Job, now: float, inside: float, name: str) -> None:
        """Raises RefusedError 503 for a request that could not be answered in time; better told now than too late."""
        curve = self.costs.curve(job.wire)
        run = curve.worst(job.cost)
        if not run:
            return
        wait = self.expected_wait(job.wire, inside)
        if now + wait + run > job.deadline:
            left = max(0.0, job.deadline - now)
            raise RefusedError(
                503,
                f"{name} would answer in about {wait + run:.3g} s: {wait:.3g} s of work are ahead and a run takes"
                f" {run:.3g} s, but the deadline is in {left:.3g} s",
                Limit("deadline", round(left, 6), 0, wait + run - left),
            )
        if wait > self.bound:
            raise RefusedError(
                503,
                f"{name} has {wait:.3g} s of work queued, its limit is {self.bound:.3g} s:"
                f" try again in {wait - self.bound:.2g} s",
                Limit("queue", round(self.bound, 6), 0, wait - self.bound),
            )

    def shed(self, job: Job, inside: float, held: Mapping[str, int], name: str) -> None:
        """Overload: who matters least is turned away first, in the end whoever would wait too long."""
        wait = self.expected_wait(job.wire, inside)
        if self.step >= REFUSE:
            turned_away = self.forced or wait > 0.5 * self.patience
        else:
            turned_away = is_shed_first(job.tenant, held, self.queue.weights)
        if turned_away:
            again = max(1.0, wait)
            raise RefusedError(
                503,
                f"{name} is overloaded: {wait:.2g} s of work are ahead, {self.patience:.2g} s are bearable;"
                f" requests of tenant {job.tenant} are turned away now; try again in {again:.2g} s",
                Limit("shed", round(self.patience, 6), 0, again),
            )

    def pressure(self, inside: float) -> float:
        """Expected wait over what is bearable; above 1 requests come in faster than they can be served well."""
        newest = next(iter(self.queue), None)
        if newest is None or self.patience <= 0:
            return 0.0
        return self.expected_wait(newest.wire, inside) / self.patience
