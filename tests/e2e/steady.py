"""A steady open-loop load: one request every 1/rate seconds, whatever the answers do.

Failures are what a client would see: an answer that is not 200, a refused or broken connection, a timeout. Nothing is
sent twice, so a failure is never hidden by a retry of the client.
"""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

TIMEOUT_SECONDS = 30.0


@dataclass(slots=True)
class Outcome:
    sent: int = 0
    ended: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    longest_ms: float = 0.0

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class SteadyLoad:
    """Runs in a thread of its own between `with` and the end of it. Bounded: it stops after max_seconds by itself."""

    def __init__(
        self, url: str, *, key: str, body: dict[str, Any], rate: float = 50.0, max_seconds: float = 300.0
    ) -> None:
        if not url.startswith(("http://127.0.0.1:", "http://localhost:")):
            raise ValueError(f"{url} is not on loopback; load goes nowhere else")
        self.url, self.rate, self.max_seconds = url, rate, max_seconds
        self.headers, self.body = {"authorization": f"Bearer {key}"}, body
        self.outcome = Outcome()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "SteadyLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def take(self) -> Outcome:
        """What was sent since the last call, once the last of it has ended: a late failure is a failure too."""
        taken, self.outcome = self.outcome, Outcome()
        limit = time.monotonic() + 2 * TIMEOUT_SECONDS
        while taken.ended < taken.sent:
            if time.monotonic() > limit:
                raise TimeoutError(f"{taken.sent - taken.ended} requests have not ended")
            time.sleep(0.05)
        return taken

    async def _run(self) -> None:
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits) as client:
            began, sent, pending = time.monotonic(), 0, set[asyncio.Task[None]]()
            while not self._stop.is_set() and time.monotonic() - began < self.max_seconds:
                task = asyncio.create_task(self._one(client))
                pending.add(task)
                task.add_done_callback(pending.discard)
                sent += 1
                await asyncio.sleep(max(0.0, began + sent / self.rate - time.monotonic()))
            await asyncio.gather(*pending)

    async def _one(self, client: httpx.AsyncClient) -> None:
        outcome, began = self.outcome, time.monotonic()
        outcome.sent += 1
        try:
            answer = await client.post(self.url, json=self.body, headers=self.headers)
            if answer.status_code != 200:
                outcome.failures[f"{answer.status_code} {answer.text[:80]}"] += 1
        except httpx.HTTPError as error:
            outcome.failures[type(error).__name__] += 1
        outcome.ended += 1
        outcome.longest_ms = max(outcome.longest_ms, (time.monotonic() - began) * 1000)
