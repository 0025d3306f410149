"""Listening Unix sockets."""

import os
import socket
from pathlib import Path


def listen(path: Path) -> socket.socket:
    """A listening Unix socket that only this user may open; takes the place of a dead one."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(64)
    return listener
