"""A batch that waits for company: until when, why it goes then, and the alarm for it."""

import asyncio
from collections.abc import Callable

from inference.plane.batcher import FairQueue
from inference.plane.governor import Governor


class Hold:
    """Armed once for each batch, whoever joins it. taken: requests that have left the queue in batches so far."""

    def __init__(
        self, governor: Governor, queue: FairQueue, loop: asyncio.AbstractEventLoop, pump: Callable[[], None]
    ) -> None:
        self.taken = 0
        self._seen = 0
        self._until = 0.0
        self._why = ""
        self._alarm: asyncio.TimerHandle | None = None
        self._governor, self._queue, self._loop, self._pump = governor, queue, loop, pump

    def may_go(self, now: float, *, at_once: bool) -> str:
        """Why the next batch leaves now, "" when it waits. at_once: nothing else will come."""
        governor, queue = self._governor, self._queue
        arrived = self.taken + len(queue)
        governor.window.saw(max(0, arrived - self._seen), now)
        self._seen = arrived
        if at_once or queue.rows >= queue.max_rows:
            why = "full"
        elif not self._until:
            self._until, why = governor.hold(now)
            if self._until:
                self._why = why
                self._alarm = self._loop.call_later(self._until - now, self._pump)
                return ""
        elif now < self._until - 1e-4:
            return ""
        else:
            why = self._why
        self._until = 0.0
        self.close()
        return why

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
