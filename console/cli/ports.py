"""Whether a port is free, and who has it when it is not."""

import socket
from pathlib import Path

_LISTEN = "0A"


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose last connections are only fading away counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def next_free(port: int, *, tries: int = 50) -> int | None:
    return next((candidate for candidate in range(port, port + tries) if is_free(candidate)), None)


def holder(port: int) -> str:
    """Such as "python3 (process 4711)"; empty when the system does not tell us."""
    inodes = _listening_inodes(port)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            links = [str(link.readlink()) for link in (folder / "fd").iterdir()]
        except OSError:  # somebody else's process, or one that has just ended
            continue
        if any(link in inodes for link in links):
            try:
                name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                continue
            return f"{name} (process {folder.name})"
    return ""


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found
