"""Files that are whole or absent, also after a power cut. No Django: launcher and node use it too."""

import os
import secrets
from pathlib import Path


def sync_folder(path: Path) -> None:
    """A rename is durable only once its folder is."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Readers see the old file or the new one, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
