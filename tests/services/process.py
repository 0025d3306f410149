"""One child process of a test: started with a log file, awaited, stopped by its own id."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


_given: set[int] = set()


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago; never the same twice."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return True
    except OSError:
        return False


def wait_until(true: Callable[[], bool], *, seconds: float, what: str, every: float = 0.05) -> None:
    """Raises TimeoutError saying `what` was awaited."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(every)


class Child:
    """Dies with the test run even when that is killed: the kernel sends it SIGTERM."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        *,
        folder: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.arguments = [str(word) for word in arguments]
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                self.arguments,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                user=user,
                group=user,
                extra_groups=[] if user else None,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, ready: Callable[[], bool], *, seconds: float = 15) -> None:
        """Raises RuntimeError with the end of the log when the process ends first, or does not get ready."""

        def ready_or_dead() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"{self.arguments[0]} ended with {self.process.returncode}:\n{self.tail()}"
                )
            return ready()

        try:
            wait_until(ready_or_dead, seconds=seconds, what=f"{self.arguments[0]} to be ready")
        except TimeoutError as error:
            self.stop()
            raise RuntimeError(f"{error}:\n{self.tail()}") from None

    def tail(self, size: int = 3000) -> str:
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def stop(self, *, by: signal.Signals = signal.SIGTERM, seconds: float = 10) -> int:
        """End it; SIGKILL when it does not obey. Returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(by)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def is_root() -> bool:
    return os.geteuid() == 0
