"""Real planes and workers for tests: started as processes, found by their sockets, ended by their own ids."""

import hashlib
import http.client
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.contract import Contract, infer_contract, parse_contract, to_json
from inference.graph import read_signature
from inference.plane import routes
from inference.plane.probe import PlaneStatus, ProbeError, WorkerStatus, ask_plane, ask_worker, ping
from inference.protocol import KeySpec, QuotaSpec, RoutingSpec, ServiceSpec, Snapshot, TenantSpec, VersionSpec
from tests.services.process import Child, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
ACME, GLOBEX, OWNER, EXPIRED = (f"ph_{name}" + "0" * 24 for name in ("acme", "globex", "owner", "expired"))


def contract_of(folder: Path, name: str) -> Contract:
    file = folder / "contract.yaml"
    return (
        parse_contract(file.read_bytes()) if file.exists() else infer_contract(read_signature(folder), name)
    )


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Node:
    """A folder with one plane and its workers. weights: by service, by version; missing ones are 100."""

    folder: Path
    versions: dict[tuple[str, int], Path] = field(default_factory=dict)
    weights: dict[tuple[str, int], int] = field(default_factory=dict)
    quotas: tuple[QuotaSpec, ...] = ()
    replicas: dict[tuple[str, int], int] = field(default_factory=dict)
    number: int = 0
    port: int = field(default_factory=free_port)
    workers: dict[tuple[str, int, int], Child] = field(default_factory=dict)
    plane: Child | None = None
    plane_arguments: tuple[str, ...] = ()
    routing: dict[str, RoutingSpec] = field(default_factory=dict)

    def socket(self, service: str, version: int = 1, ordinal: int = 0) -> Path:
        return self.folder / f"{service}-{version}-{ordinal}.sock"

    def start_worker(self, service: str, version: int = 1, ordinal: int = 0) -> Child:
        command: list[str | Path] = [
            sys.executable, "-m", "inference.plane.worker",
            "--socket", self.socket(service, version, ordinal), "--version-dir", self.versions[service, version],
            "--service", service, "--version", str(version), "--ordinal", str(ordinal),
        ]  # fmt: skip
        child = Child(command, folder=ROOT, log=self.folder / f"worker-{service}.log", env=_environment())
        self.workers[service, version, ordinal] = child
        return child

    def wait_worker(
        self, service: str, version: int = 1, ordinal: int = 0, state: str = "ready"
    ) -> WorkerStatus:
        socket = self.socket(service, version, ordinal)
        found: list[WorkerStatus] = []

        def there() -> bool:
            try:
                found[:] = [ask_worker(socket, timeout_seconds=1)]
            except ProbeError:
                return False
            return found[0].state == state

        wait_until(there, seconds=30, what=f"{service}:{version}#{ordinal} to be {state}")
        return found[0]

    def routes(self) -> routes.Routes:
        services: dict[str, list[VersionSpec]] = {}
        for (service, number), folder in self.versions.items():
            contract = to_json(contract_of(folder, service))
            weight = self.weights.get((service, number), 100)
            spec = VersionSpec(number, f"{folder}", (), contract, 1, weight)
            services.setdefault(service, []).append(spec)
        keys = {ACME: "acme", GLOBEX: "globex", OWNER: "platform", EXPIRED: "acme"}
        snapshot = Snapshot(
            epoch="e1",
            number=self.number,
            services=tuple(
                ServiceSpec(name, "platform", tuple(specs), self.routing.get(name))
                for name, specs in services.items()
            ),
            tenants=tuple(TenantSpec(slug, 1, "open") for slug in ("platform", "acme", "globex")),
            keys=tuple(
                KeySpec(hashlib.sha256(key.encode()).hexdigest(), tenant, 1.0 if key == EXPIRED else None)
                for key, tenant in keys.items()
            ),
            quotas=self.quotas,
        )
        workers = tuple(
            routes.WorkerRoute(service, number, ordinal, str(self.socket(service, number, ordinal)))
            for service, number in self.versions
            for ordinal in range(self.replicas.get((service, number), 1))
        )
        return routes.Routes("test", snapshot, workers)

    def apply(self) -> None:
        self.number += 1
        routes.write(self.folder / "routes.json", self.routes())
        if self.plane is not None:
            ask_plane(self.folder / "plane.sock", "apply")

    def start_plane(self) -> Child:
        command: list[str | Path] = [
            sys.executable, "-m", "inference.plane",
            "--node-dir", self.folder, "--port", str(self.port), *self.plane_arguments,
        ]  # fmt: skip
        self.plane = Child(command, folder=ROOT, log=self.folder / "plane.log", env=_environment())
        self.plane.wait_ready(self._answers, seconds=30)
        return self.plane

    def _answers(self) -> bool:
        try:
            return self.status().pid == (self.plane.pid if self.plane else 0)
        except ProbeError:
            return False

    def status(self) -> PlaneStatus:
        return ping(self.folder / "plane.sock")

    def start(self) -> "Node":
        """Everything, until each worker is usable through the plane."""
        self.apply()
        for service, number in self.versions:
            for ordinal in range(self.replicas.get((service, number), 1)):
                self.start_worker(service, number, ordinal)
        self.start_plane()
        self.wait_links()
        return self

    def wait_links(self, seconds: float = 30) -> None:
        def all_ready() -> bool:
            states = [link.state for link in self.status().links]
            return bool(states) and set(states) == {"ready"}

        wait_until(all_ready, seconds=seconds, what="every link to be ready")

    def stop(self) -> None:
        for child in [*([self.plane] if self.plane else []), *self.workers.values()]:
            if child.process.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
            child.process.wait(10)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        *,
        key: str | None = ACME,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            told = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
            connection.request(method, path, body, told)
            answer = connection.getresponse()
            lower = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, lower, answer.read())
        finally:
            connection.close()

    def infer(
        self, service: str, inputs: list[dict[str, Any]], *, key: str | None = ACME, **more: Any
    ) -> Answer:
        """A JSON inference."""
        version = more.pop("version", None)
        path = f"/v2/models/{service}" + (f"/versions/{version}" if version else "") + "/infer"
        headers = more.pop("headers", None)
        return self.request("POST", path, json.dumps({"inputs": inputs, **more}), key=key, headers=headers)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
