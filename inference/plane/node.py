"""A plane as a running thing: listening sockets, a clock, applying routes, and a graceful end."""

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from inference.plane import control, routes
from inference.plane.app import App
from inference.plane.exchange import Limits
from inference.plane.gateway import Gateway
from inference.plane.http import Server
from inference.protocol import ReplicaState

log = logging.getLogger(__name__)
DRAIN_SECONDS = 30.0
TICK_SECONDS = 1.0
POLL_SECONDS = 0.02


class StartError(Exception):
    """The plane cannot start; the message is a sentence for a person."""


class Plane:
    """Listens on construction of `start`; `run` returns when drained."""

    def __init__(self, limits: Limits, *, public_metrics: bool = False) -> None:
        self.gateway = Gateway()
        self.app = App(self.gateway, limits, public_metrics=public_metrics)
        self.server = Server(self.app, limits)
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._stop = asyncio.Event()

    async def start(self, host: str, port: int) -> None:
        """Raises StartError."""
        loop = asyncio.get_running_loop()
        try:
            inherited = os.environ.get(routes.LISTEN_FD)
            if inherited:
                listener = socket.socket(fileno=int(inherited))
                self._listener = await loop.create_server(self.server, sock=listener, backlog=1024)
            else:
                self._listener = await loop.create_server(self.server, host, port, backlog=1024)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise StartError(f"port {port} on {host} is in use") from None
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        self.port = self._listener.sockets[0].getsockname()[1]
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    def apply(self, new: routes.Routes) -> None:
        """Raises ValueError."""
        self.gateway.apply(new)
        self.app.forget()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`, then answer what is in hand and return."""
        # What lives now lives to the end: the collector need not look at it again, and requests leave no cycles.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        ticker = asyncio.get_running_loop().create_task(self._tick())
        await self._stop.wait()
        self.gateway.state = ReplicaState.DRAINING
        if self._listener is not None:
            self._listener.close()
        self.server.drain()
        for _ in range(int(DRAIN_SECONDS / POLL_SECONDS)):
            if not self.gateway.busy and not self.server.connections:
                break
            await asyncio.sleep(POLL_SECONDS)
        ticker.cancel()
        await self.gateway.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.server.tick(time.monotonic())
            self.gateway.tick()


def port_is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


async def run_node(folder: Path, host: str, port: int, limits: Limits, *, public_metrics: bool) -> None:
    """The plane of a supervised node. Raises StartError."""
    plane = Plane(limits, public_metrics=public_metrics)
    table = folder / "routes.json"

    async def apply() -> dict[str, Any]:
        plane.apply(routes.read(table))
        return {"number": plane.gateway.number, "epoch": plane.gateway.epoch}

    async def ping() -> Any:
        return plane.gateway.status(len(plane.server.connections))

    async def counters() -> Any:
        return plane.gateway.counters()

    async def drain() -> dict[str, str]:
        plane.stop()
        return {"state": ReplicaState.DRAINING}

    if table.exists():
        try:
            await apply()
        except (OSError, ValueError) as error:
            log.error("routes.json cannot be applied, waiting for a better one: %s", error)
    await plane.start(host, port)
    verbs = {"ping": ping, "apply": apply, "counters": counters, "drain": drain}
    supervisor = await control.serve(folder / "plane.sock", verbs)
    try:
        await plane.run()
    finally:
        supervisor.close()
