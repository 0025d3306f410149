"""A little steady traffic, so that every page is alive: python -m inference.demo.traffic

Reads keys and the plane's address from HOME/credentials.json. Waits quietly while the plane is away, stops sending
while HOME/demo-traffic-off exists, and says in its log once a minute what it saw.
"""

import asyncio
import json
import logging
import os
import random
import signal
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from inference.demo import SERVICE, samples

log = logging.getLogger(__name__)

OFF_SWITCH = "demo-traffic-off"
RATES = {"acme": 14.0, "globex": 6.0}  # requests/s; the quota of globex lets about 4 through
HIGH_SHARE = 1 / 3
MOST_AT_ONCE = 32
_SAY_SECONDS = 60.0
_AWAY_SECONDS = 1.0


class Traffic:
    """Open loop: requests are sent when they are due, however slow the answers are, up to MOST_AT_ONCE in flight."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.seen: Counter[str] = Counter()
        self.stopping = asyncio.Event()
        self._away_until = 0.0
        self._in_flight: set[asyncio.Task[None]] = set()
        self._chance = random.Random()  # noqa: S311  demo bytes, no secret
        requests = {name: _request(content) for name, content in samples.build().items()}
        high = {name for name, content in samples.build().items() if samples.begins_high(content)}
        self._high = [requests[name] for name in sorted(high)]
        self._low = [request for name, request in sorted(requests.items()) if name not in high]

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=MOST_AT_ONCE, max_keepalive_connections=MOST_AT_ONCE)
        async with httpx.AsyncClient(timeout=15.0, limits=limits, trust_env=False) as client:
            senders = [
                asyncio.create_task(self._send(client, tenant, rate)) for tenant, rate in RATES.items()
            ]
            senders.append(asyncio.create_task(self._say()))
            await self.stopping.wait()
            for task in senders:
                task.cancel()
            if self._in_flight:
                await asyncio.wait(self._in_flight, timeout=2)

    async def _send(self, client: httpx.AsyncClient, tenant: str, rate: float) -> None:
        looked_at, credentials = 0.0, None
        while True:
            # Exponential gaps: real clients do not march in step.
            await asyncio.sleep(self._chance.expovariate(rate))
            now = time.monotonic()
            if now - looked_at >= 1.0:
                looked_at, credentials = now, self._credentials()
            if credentials is None or now < self._away_until or len(self._in_flight) >= MOST_AT_ONCE:
                continue
            task = asyncio.create_task(self._ask(client, tenant, credentials))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    def _credentials(self) -> dict[str, Any] | None:
        """None while traffic is switched off or there is nobody to send to."""
        if (self.home / OFF_SWITCH).exists():
            return None
        try:
            found: dict[str, Any] = json.loads((self.home / "credentials.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if found.get("plane_url") and found.get("tenants") else None

    async def _ask(self, client: httpx.AsyncClient, tenant: str, credentials: dict[str, Any]) -> None:
        body, headers = self._chance.choice(self._high if self._chance.random() < HIGH_SHARE else self._low)
        try:
            answer = await client.post(
                f"{credentials['plane_url']}/v2/models/{SERVICE}/infer",
                content=body,
                headers={**headers, "Authorization": f"Bearer {credentials['tenants'][tenant]['infer']}"},
            )
        except httpx.TransportError as error:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            self.seen[f"{tenant} {type(error).__name__}"] += 1
        except (KeyError, TypeError):  # a tenant without a key
            self._away_until = time.monotonic() + _AWAY_SECONDS
        else:
            self.seen[f"{tenant} {answer.status_code}"] += 1

    async def _say(self) -> None:
        while True:
            await asyncio.sleep(_SAY_SECONDS)
            log.info(", ".join(f"{what}: {count}" for what, count in sorted(self.seen.items())) or "quiet")
            self.seen.clear()


def _request(content: bytes) -> tuple[bytes, dict[str, str]]:
    """Body and headers in the binary form: JSON can carry UTF-8 only, and most files are not."""
    tensor = struct.pack("<I", len(content)) + content
    file = {
        "name": "file", "datatype": "BYTES", "shape": [1, 1],
        "parameters": {"binary_data_size": len(tensor)},
    }  # fmt: skip
    head = json.dumps({"inputs": [file], "outputs": [{"name": "label"}, {"name": "score"}]}).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    return head + tensor, headers


async def main(home: Path) -> None:
    traffic = Traffic(home)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, traffic.stopping.set)
    await traffic.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would tell each request
    asyncio.run(main(Path(os.environ.get("PILOTHOUSE_HOME", "var")).expanduser()))
