"""Keeping one request's failure to itself: a failed batch runs again one by one; repeaters are quarantined. Pure."""

from inference.plane.batcher import FairQueue, Job
from inference.plane.quarantine import Quarantine


class _Group:
    """Members of one failed batch: how many are still out, and which failed again alone."""

    __slots__ = ("failed", "left", "size")

    def __init__(self, size: int) -> None:
        self.size = self.left = size
        self.failed: list[Job] = []


class Isolation:
    """busy: some requests run alone because their batch failed. quarantine: who may not join others at all."""

    def __init__(self, queue: FairQueue) -> None:
        self.quarantine = Quarantine()
        self.busy = False
        self._queue = queue
        self._groups: dict[Job, _Group] = {}

    def rerun(self, jobs: list[Job]) -> None:
        """One request of a batch may be to blame: each again by itself, so only that one fails."""
        again = [job for job in jobs if not job.done]
        group = _Group(len(again))
        for job in again:
            job.alone = True
            self._groups[job] = group
        self.busy = bool(self._groups)
        self._queue.put_back(again)

    def ended(self, job: Job, now: float, *, failed: bool) -> None:
        """A request is over. Where all of a batch fail alone it is the model's fault and nobody's."""
        group = self._groups.pop(job, None)
        self.busy = bool(self._groups)
        if group is None:
            return
        group.left -= 1
        if failed:
            group.failed.append(job)
        if not group.left and len(group.failed) < group.size:
            for one in group.failed:
                self.strike(one, now)

    def strike(self, job: Job, now: float) -> None:
        own = self.quarantine.strike(job.tenant, job.wire, now)
        if own is not None:
            self._queue.solo.add(own)

    def tick(self, now: float) -> None:
        for wire in self.quarantine.release(now):
            self._queue.solo.discard(wire)
