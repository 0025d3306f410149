"""A plane as a running thing: listening sockets, a clock, applying routes, and a graceful end."""

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.plane import control, routes
from inference.plane.app import App
from inference.plane.exchange import Limits
from inference.plane.flags import Options
from inference.plane.gateway import Gateway
from inference.plane.http import Server
from inference.plane.regions import Regions
from inference.plane.repository import Control
from inference.plane.tls import Identities, TlsError, Watch
from inference.protocol import ReplicaState

if TYPE_CHECKING:
    from inference.plane.grpc.server import GrpcServer

log = logging.getLogger(__name__)
DRAIN_SECONDS = 30.0
TICK_SECONDS = 1.0
POLL_SECONDS = 0.02


class StartError(Exception):
    """The plane cannot start; the message is a sentence for a person."""


class Plane:
    """Listens on construction of `start`; `run` returns when drained."""

    def __init__(
        self, limits: Limits, *, public_metrics: bool = False, options: Options | None = None
    ) -> None:
        self.options = options or Options()
        self.gateway = Gateway()
        self.regions = Regions(enabled=self.options.client_shared_memory)
        self.identities = Identities(self.options.trusted_gateways)
        self.app = App(
            self.gateway,
            limits,
            public_metrics=public_metrics,
            memory=self.regions,
            identities=self.identities,
        )
        self.server = Server(self.app, limits)
        self.limits = limits
        self.grpc: GrpcServer | None = None
        self._tls = Watch(self.options.tls) if self.options.tls else None
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._stop = asyncio.Event()

    async def start(self, host: str, port: int) -> None:
        """Raises StartError."""
        loop = asyncio.get_running_loop()
        try:
            context = self.options.tls.server_context() if self.options.tls else None
            inherited = os.environ.get(routes.LISTEN_FD)
            if inherited:
                listener = socket.socket(fileno=int(inherited))
                self._listener = await loop.create_server(
                    self.server, sock=listener, backlog=1024, ssl=context
                )
            else:
                self._listener = await loop.create_server(self.server, host, port, backlog=1024, ssl=context)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise StartError(f"port {port} on {host} is in use") from None
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        except TlsError as error:
            raise StartError(str(error)) from None
        self.port = self._listener.sockets[0].getsockname()[1]
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if self.options.grpc_port is not None:
            await self._start_grpc(host, self.options.grpc_port)

    async def _start_grpc(self, host: str, port: int) -> None:
        """Raises StartError."""
        from inference.plane.grpc.server import GrpcApp, GrpcServer  # 20 MB that a plane without gRPC saves

        server = GrpcServer(GrpcApp(self.gateway, self.regions, self.identities), self.limits)
        try:
            await server.start(host, port, self.options.tls, shared_port=self.options.shared_port)
        except (OSError, TlsError) as error:
            raise StartError(str(error)) from None
        self.grpc = server

    def set_control(self, control: Control) -> None:
        """After `start`: who loads and unloads by a client's order."""
        self.app.extras.control = control
        if self.grpc is not None:
            self.grpc.app.questions.control = control

    def apply(self, new: routes.Routes) -> None:
        """Raises ValueError."""
        self.gateway.apply(new)
        self.app.forget()
        self.server.route_by(self.gateway.routing_headers)
        if self.grpc is not None:
            self.grpc.app.forget()
        tenants = {tenant.slug for tenant in new.snapshot.tenants}
        self.regions.keep_only(tenants, alone=new.open_access)

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
        if self.grpc is not None:
            await self.grpc.stop(DRAIN_SECONDS)
        for _ in range(int(DRAIN_SECONDS / POLL_SECONDS)):
            if not self.gateway.busy and not self.server.connections:
                break
            await asyncio.sleep(POLL_SECONDS)
        ticker.cancel()
        await self.gateway.close()
        self.regions.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self.server.tick(now)
            self.gateway.tick()
            self.regions.tick(now)
            if self._tls is not None and self._tls.changed():
                await self._renew(self._tls.files.server_context())

    async def _renew(self, context: ssl.SSLContext) -> None:
        """New handshakes use the new files: another server on the same socket. Connections that stand do not notice."""
        old = self._listener
        if old is None:
            return
        loop = asyncio.get_running_loop()
        sock = socket.socket(fileno=os.dup(old.sockets[0].fileno()))
        sock.setblocking(False)
        self._listener = await loop.create_server(self.server, sock=sock, backlog=1024, ssl=context)
        old.close()


def port_is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


async def run_node(
    folder: Path,
    host: str,
    port: int,
    limits: Limits,
    *,
    public_metrics: bool,
    options: Options | None = None,
) -> None:
    """The plane of a supervised node. Raises StartError."""
    plane = Plane(limits, public_metrics=public_metrics, options=options)
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
