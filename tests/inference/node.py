"""A node for tests: the supervisor in a thread of the test, or in a process that can be killed."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx

from console.kit import processes
from inference.blobs import BlobStore, contract_bytes, digest_of
from inference.contract import infer_contract, to_json
from inference.graph import read_signature
from inference.intake import stage
from inference.node.layout import Layout
from inference.protocol import (
    KeySpec,
    NodeReport,
    ReplicaReport,
    ReplicaState,
    ServiceSpec,
    Snapshot,
    VersionSpec,
    encode,
)
from inference.supervisor import Supervisor
from tests.services.process import free_port, wait_until

SECONDS = 30.0
SECRET = "ph_" + "k" * 40
KEY = KeySpec(hashlib.sha256(SECRET.encode()).hexdigest(), "local", None)
EPOCH = "11111111-1111-1111-1111-111111111111"
ROOT = Path(__file__).resolve().parents[2]

# The same as the agent does, without Celery: found again by another process after a kill -9.
_OWNER = """
import sys
from pathlib import Path
from inference.node.layout import Layout
from inference.supervisor import Supervisor
node, folder, blobs, logs, port = sys.argv[1:]
layout = Layout(node=node, folder=Path(folder), blobs=Path(blobs), logs=Path(logs), port=int(port))
Supervisor(layout, plane_url="http://127.0.0.1:" + port).run()
"""


class RunningNode:
    def __init__(
        self, home: Path, *, blobs: Path, folder: Path | None = None, port: int | None = None
    ) -> None:
        """folder: of the node; given together with `port` to look at a node that somebody else supervises."""
        self.layout = Layout(
            node="node-1",
            folder=folder or home / "n",
            blobs=blobs,
            logs=home / "logs",
            port=port or free_port(),
        )
        self.store = BlobStore(blobs)
        self.supervisor = self._supervisor()
        self._thread: threading.Thread | None = None
        self._owner: subprocess.Popen[bytes] | None = None
        self._number = 0

    def _supervisor(self) -> Supervisor:
        return Supervisor(self.layout, plane_url=self.url)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.layout.port}"

    def version(self, folder: Path, *, number: int = 1, replicas: int = 1, weight: int = 100) -> VersionSpec:
        """A model folder as a version whose files are in the blob store."""
        with stage(folder, self.store) as staged:
            contract = to_json(infer_contract(read_signature(staged.folder), "adder"))
            staged.keep(self.store)
        digest = digest_of(staged.files, contract_bytes(contract))
        return VersionSpec(number, digest, staged.files, contract, replicas, weight)

    def snapshot(self, *versions: VersionSpec) -> Snapshot:
        """The next snapshot, in which the service `adder` has these versions."""
        self._number += 1
        services = (ServiceSpec("adder", "local", versions),) if versions else ()
        return Snapshot(EPOCH, self._number, services, tenants=(), keys=(KEY,))

    def want(self, *versions: VersionSpec) -> Snapshot:
        """Offer the next snapshot to the supervisor."""
        snapshot = self.snapshot(*versions)
        self.supervisor.offer(snapshot)
        return snapshot

    def start(self) -> None:
        self._thread = threading.Thread(target=self.supervisor.run, daemon=True)
        self._thread.start()

    def take_over(self) -> None:
        """A new supervisor, as after the death of the old one."""
        self.supervisor = self._supervisor()
        self.start()

    def start_as_process(self) -> int:
        """The supervisor in a process of its own. Returns its pid."""
        layout = self.layout
        arguments = [layout.node, str(layout.folder), str(layout.blobs), str(layout.logs), str(layout.port)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._owner = subprocess.Popen([sys.executable, "-c", _OWNER, *arguments], env=environment)
        return self._owner.pid

    def kill_owner(self) -> None:
        assert self._owner is not None, "not started"
        self._owner.kill()
        self._owner.wait(5)

    def put_snapshot_on_disk(self, snapshot: Snapshot) -> None:
        self.layout.snapshot_file.write_bytes(encode(snapshot))

    def report(self) -> NodeReport:
        return self.supervisor.report()

    def replica(self, number: int = 1, ordinal: int = 0) -> ReplicaReport | None:
        return next((r for r in self.report().replicas if (r.version, r.ordinal) == (number, ordinal)), None)

    def states(self) -> dict[tuple[int, int], ReplicaState]:
        return {(r.version, r.ordinal): r.state for r in self.report().replicas}

    def wait(self, what: str, true: Any, *, seconds: float = SECONDS) -> None:
        wait_until(true, seconds=seconds, what=what)

    def wait_serving(self, snapshot: Snapshot) -> None:
        """Until every replica is ready and the plane serves this snapshot."""
        wanted = {
            (version.number, ordinal): ReplicaState.READY
            for service in snapshot.services
            for version in service.versions
            for ordinal in range(version.replicas)
        }
        self.wait(
            f"snapshot {snapshot.number} to be served; now {self.report()}",
            lambda: self.report().snapshot_number == snapshot.number and self.states() == wanted,
        )
        self.wait("an answer", lambda: not wanted or self.ask() is not None)

    def ask(self, value: float = 0.0) -> float | None:
        """The first number of the answer; None when there was none."""
        answer = self.post(value)
        return (
            float(answer.json()["outputs"][0]["data"][0])
            if answer is not None and answer.is_success
            else None
        )

    def post(self, value: float = 0.0) -> httpx.Response | None:
        data = [value] * 4
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": data}]}
        try:
            return httpx.post(
                f"{self.url}/v2/models/adder/infer",
                json=body,
                headers={"Authorization": f"Bearer {SECRET}"},
                timeout=20,
            )
        except httpx.HTTPError:
            return None

    def pid_files(self) -> dict[str, processes.PidFile]:
        found = {path.stem: processes.read_pid_file(path) for path in self.layout.run.glob("*.json")}
        return {name: file for name, file in found.items() if file is not None}

    def end(self) -> None:
        if self._owner is not None and self._owner.poll() is None:
            self.kill_owner()
        self.supervisor.close()
        if self._thread is not None:
            self._thread.join(15)
        self.supervisor.drain()
        for file in self.pid_files().values():
            processes.send(file.identity, signal.SIGKILL)
