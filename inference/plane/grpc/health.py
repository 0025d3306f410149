"""grpc.health.v1.Health, which Kubernetes probes and load balancers ask; it needs no key and names no model."""

import asyncio
from typing import Any

from inference.plane.gateway import Gateway
from inference.plane.grpc.messages import HEALTH
from inference.plane.refusals import RefusedError
from inference.protocol import ReplicaState

SERVICE = "grpc.health.v1.Health"
NAMES = ("", "inference.GRPCInferenceService", SERVICE)
SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3
LOOK_SECONDS = 0.5
MAX_WATCHERS = 64


class Health:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._watchers = 0

    def check(self, data: bytes) -> bytes:
        """Raises RefusedError 404 for a service that is not here."""
        if self._name(data) not in NAMES:
            raise RefusedError(404, "unknown service")
        return self._told(self._status())

    async def watch(self, data: bytes, context: Any) -> None:
        """The status now and at each change, until the plane drains. Raises RefusedError."""
        name = self._name(data)
        if self._watchers >= MAX_WATCHERS:
            raise RefusedError(429, f"{MAX_WATCHERS} watchers are the most")
        self._watchers += 1
        try:
            last = None
            while True:
                status = self._status() if name in NAMES else UNKNOWN
                if status != last:
                    await context.write(self._told(status))
                    last = status
                if self.gateway.state is ReplicaState.DRAINING:
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._watchers -= 1

    def _status(self) -> int:
        return NOT_SERVING if self.gateway.unready() else SERVING

    def _name(self, data: bytes) -> str:
        return str(HEALTH["HealthCheckRequest"].FromString(data).service)

    def _told(self, status: int) -> bytes:
        return bytes(HEALTH["HealthCheckResponse"](status=status).SerializeToString())
