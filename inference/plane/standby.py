"""A worker process before it knows its model: the runtime is imported, which is most of what a start costs.

`python -m inference.plane.worker --standby PATH` listens at PATH (for this user only) for one agent, which keeps its
connection open. The agent sends a line `{"argv": [...]}`, and as it likes `"log": FILE` for what the worker prints and
`"environment": {...}`; the answer is `{"pid": n}` and from then on this is the worker of that command line. When the
agent goes before it has sent a line, or never comes, the process ends.
"""

import importlib
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from inference.plane.unix import listen

ALONE_SECONDS = 60.0
MAX_LINE = 1 << 20
_WARM = ("inference.plane.runtimes.onnx", "inference.plane.samples", "inference.plane.engine")


def import_runtimes() -> None:
    for module in _WARM:
        importlib.import_module(module)


def wait_for_work(path: Path) -> list[str] | None:
    """The command line to be; None when nobody needs this process any more. Raises OSError."""
    listener = listen(path)
    try:
        import_runtimes()
        listener.settimeout(ALONE_SECONDS)
        try:
            agent, _ = listener.accept()
        except TimeoutError:
            return None
    finally:
        listener.close()
        with suppress(OSError):
            path.unlink()
    with agent:
        agent.settimeout(None)
        order = _order(agent)
        if order is None:
            return None
        if isinstance(order.get("environment"), dict):
            os.environ.update({str(name): str(value) for name, value in order["environment"].items()})
        if order.get("log"):
            _write_to(Path(str(order["log"])))
        with suppress(OSError):
            agent.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
        return [str(word) for word in order["argv"]]


def _order(agent: socket.socket) -> dict[str, Any] | None:
    """The one line of the agent; None when it hangs up or talks nonsense."""
    line = b""
    with suppress(OSError, ValueError):
        while not line.endswith(b"\n"):
            part = agent.recv(1 << 16)
            if not part or len(line) > MAX_LINE:
                return None
            line += part
        order = json.loads(line)
        if isinstance(order, dict) and isinstance(order.get("argv"), list):
            return order
    return None


def _write_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
