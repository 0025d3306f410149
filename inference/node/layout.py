"""Where a node keeps what, and the command lines of its processes."""

import hashlib
import os
import stat
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from inference.blobs import CONTRACT_FILE
from inference.node.desired import Slot

_SOCKET_LIMIT = 107  # bytes of sun_path on Linux, without the closing NUL
_LONGEST_SOCKET_NAME = 34

# What a process that handles strangers' bytes may know of our environment: no address, key or password among it.
_PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE",
    "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LOG_LEVEL",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """folder: of this node. blobs: where versions' files come from. logs: one file for each process."""

    node: str
    folder: Path
    blobs: Path
    logs: Path
    host: str = "127.0.0.1"
    port: int = 8080
    sockets: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sockets", _socket_folder(self.folder))

    @property
    def snapshot_file(self) -> Path:
        return self.folder / "snapshot.json"

    @property
    def routes_file(self) -> Path:
        return self.folder / "routes.json"

    @property
    def plane_socket(self) -> Path:
        return self.folder / "plane.sock"

    @property
    def versions(self) -> Path:
        return self.folder / "versions"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def plane_pid_file(self) -> Path:
        return self.run / "plane.json"

    @property
    def plane_log(self) -> Path:
        return self.logs / "plane.log"

    def prepare(self) -> None:
        for path in (self.folder, self.sockets, self.versions, self.run, self.logs):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def socket(self, slot: Slot) -> Path:
        return self.sockets / f"{stem(slot)}.sock"

    def pid_file(self, slot: Slot) -> Path:
        return self.run / f"{stem(slot)}.json"

    def log(self, slot: Slot) -> Path:
        return self.logs / f"worker-{stem(slot)}.log"

    def plane_command(self) -> list[str]:
        return [
            sys.executable, "-m", "inference.plane",
            "--node-dir", str(self.folder), "--host", self.host, "--port", str(self.port),
        ]  # fmt: skip

    def worker_command(self, slot: Slot, *, threads: int) -> list[str]:
        version = self.versions / slot.digest
        return [
            sys.executable, "-m", "inference.plane.worker",
            "--socket", str(self.socket(slot)), "--version-dir", str(version),
            "--contract", str(version / CONTRACT_FILE),
            "--service", slot.service, "--version", str(slot.version), "--ordinal", str(slot.ordinal),
            "--threads", str(threads),
        ]  # fmt: skip


def stem(slot: Slot) -> str:
    """Short, since a socket's path may have 107 bytes, and yet one for each slot."""
    full = f"{slot.service}/{slot.version}/{slot.digest}".encode()
    return f"{slot.service[:12]}-{slot.version}-{slot.ordinal}-{hashlib.sha256(full).hexdigest()[:6]}"


def environment() -> dict[str, str]:
    """For plane and workers."""
    known = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # The package is found also when the agent was started from another folder.
    known["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parents[2]), *filter(None, [known.get("PYTHONPATH")])]
    )
    return known | {"PYTHONUNBUFFERED": "1"}


def _socket_folder(folder: Path) -> Path:
    """In the node's folder when its path is short enough for sockets, else a private one under /tmp."""
    own = folder / "workers"
    if len(os.fsencode(own)) + 1 + _LONGEST_SOCKET_NAME <= _SOCKET_LIMIT:
        return own
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"pilothouse-{os.getuid()}-{name}"
    short.mkdir(mode=0o700, exist_ok=True)
    info = short.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise PermissionError(
            f"{short} belongs to somebody else or is open to others; sockets cannot be kept there"
        )
    return short
