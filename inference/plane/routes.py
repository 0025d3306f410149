"""What a plane serves: the snapshot and the sockets of the workers that should stand behind it.

The supervisor writes `routes.json` with `write`, the plane reads it with `read`; nobody sees half a file.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from inference.protocol import Snapshot, decode, encode

# In the environment of a plane: a listening socket that its supervisor keeps open as well. While a plane is replaced,
# clients wait in its queue instead of being refused.
LISTEN_FD = "PILOTHOUSE_LISTEN_FD"


@dataclass(frozen=True, slots=True)
class WorkerRoute:
    """socket: absolute path of the worker's Unix socket; it need not exist yet."""

    service: str
    version: int
    ordinal: int
    socket: str


@dataclass(frozen=True, slots=True)
class Routes:
    """open_access: requests need no key and count as tenant `local`. Only a node alone on loopback sets it."""

    node: str
    snapshot: Snapshot
    workers: tuple[WorkerRoute, ...] = ()
    open_access: bool = False


def read(path: Path) -> Routes:
    """Raises ValueError for a wrong file, OSError for none."""
    return decode(path.read_bytes(), Routes)


def write(path: Path, routes: Routes) -> None:
    """Replace the file atomically and durably."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(encode(routes))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
