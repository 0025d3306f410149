"""The product as a person starts it: `pilothouse up` on free ports in a home of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.services.process import free_port, wait_until

PILOTHOUSE = Path(sys.executable).with_name("pilothouse")
# Chosen for the test run itself; the product under test gets its own.
NOT_PASSED_ON = {
    "DJANGO_SETTINGS_MODULE",
    "DJANGO_ALLOW_ASYNC_UNSAFE",
    "PILOTHOUSE_HOME",
    "REDIS_URL",
    "DATABASE_URL",
}
READY = b"Ctrl-C stops everything"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"


class Product:
    def __init__(self, home: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.options = options
        self.console_port, self.plane_port = free_port(), free_port()
        self.console = f"http://127.0.0.1:{self.console_port}"
        self.plane = f"http://127.0.0.1:{self.plane_port}"
        self.log = home.with_suffix(".log")
        self._env = {key: value for key, value in os.environ.items() if key not in NOT_PASSED_ON} | dict(
            env or {}
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, seconds: float = 120) -> None:
        """Returns when it says that it is up."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [PILOTHOUSE, "up", "--home", self.home, "--port", str(self.console_port),
                 "--plane-port", str(self.plane_port), *self.options],
                env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        wait_until(self._is_ready, seconds=seconds, what=f"the product to be ready\n{self.tail()}", every=0.2)

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def credentials(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "credentials.json").read_text(encoding="utf-8"))
        return found

    def infer(self, tenant: str, content: bytes = PDF) -> httpx.Response:
        """Ask file-type with the tenant's inference key."""
        key = self.credentials["tenants"][tenant]["infer"]
        body = {
            "inputs": [
                {"name": "file", "datatype": "BYTES", "shape": [1, 1], "data": [content.decode("latin-1")]}
            ]
        }
        return httpx.post(
            f"{self.plane}/v2/models/file-type/infer",
            json=body,
            headers={"Authorization": f"Bearer {key}"},
            timeout=20,
        )

    def rest(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        answer = httpx.request(
            method,
            f"{self.console}/api/v1/{path}",
            headers={"Authorization": f"Bearer {self.credentials['token']}"},
            timeout=90,
            **arguments,
        )
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        body: dict[str, Any] = answer.json()
        return body

    def roll_out(self, version: int, *, seconds: float = 180) -> dict[str, Any]:
        """Start a rollout as a pipeline does and long-poll to its end; the final body."""
        rollout = self.rest("POST", "rollouts", json={"service": "file-type", "version": version})
        for _ in range(int(seconds // 30)):
            rollout = self.rest("GET", f"rollouts/{rollout['id']}/wait", params={"timeout": 30})
            if rollout["state"] in {"promoted", "aborted", "superseded"}:
                break
        return rollout

    def interrupt(self, *, seconds: float = 60) -> int:
        """Ctrl-C as a terminal sends it: to the whole group. Returns the exit status."""
        assert self._process is not None, "not started"
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(seconds)

    def clean_up(self) -> None:
        """After a failed test: end what is left, one process id at a time."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Everything alive that was started for this home: its path is in the command line or the environment."""
        needle = str(self.home).encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                said = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if needle in said and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        return found

    def tail(self) -> str:
        return self.log.read_bytes()[-4000:].decode(errors="replace") if self.log.exists() else ""

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"pilothouse up ended with {self._process.returncode}:\n{self.tail()}")
        return READY in self.log.read_bytes()
