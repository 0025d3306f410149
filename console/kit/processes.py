"""Processes that outlive the one that started them, told apart by pid and start time.

A pid alone is no identity: it may belong to somebody else by the time we look. The kernel's start time, in clock ticks
since boot, settles it; a process that has ended but was not reaped counts as gone. No Django: launcher and node use it.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from console.kit.files import write_atomic

_LOG_BYTES = 20 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    pid: int
    start_time: int


class PidFile(msgspec.Struct, frozen=True):
    """What `run/<name>.json` holds. started_at: seconds since the epoch; restarts: of this slot until now."""

    pid: int
    start_time: int
    command: list[str]
    started_at: float
    restarts: int = 0
    meta: dict[str, str | int] = {}

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start_time)


def start_time_of(pid: int) -> int | None:
    """None when there is no such living process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(identity: Identity) -> bool:
    return start_time_of(identity.pid) == identity.start_time


def rss_of(pid: int) -> int:
    """Resident bytes; 0 when the process is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process. False when it is gone."""
    try:
        # A pidfd cannot be recycled between the check and the signal.
        fd = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


class Child:
    """A process we watch: started by us, or found again by its pid file."""

    def __init__(self, file: PidFile, popen: subprocess.Popen[bytes] | None) -> None:
        self.file = file
        self.adopted = popen is None
        self._popen = popen

    @property
    def identity(self) -> Identity:
        return self.file.identity

    def is_alive(self) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        return is_alive(self.identity)

    def exit_detail(self) -> str:
        """How it ended, as words."""
        code = self._popen.poll() if self._popen is not None else None
        if code is None:
            return "ended"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def send(self, number: signal.Signals) -> bool:
        return self.is_alive() and send(self.identity, number)


def spawn(
    command: Sequence[str],
    *,
    pid_file: Path,
    log_file: Path,
    environment: Mapping[str, str],
    started_at: float,
    restarts: int = 0,
    meta: dict[str, str | int] | None = None,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a process in its own session, so that neither our death nor our terminal's Ctrl-C reaches it."""
    with open_log(log_file) as log:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            start_new_session=True,
            close_fds=True,
            pass_fds=pass_fds,
        )
    file = PidFile(
        pid=popen.pid,
        start_time=start_time_of(popen.pid) or 0,
        command=list(command),
        started_at=started_at,
        restarts=restarts,
        meta=meta or {},
    )
    write_atomic(pid_file, msgspec.json.encode(file))
    return Child(file, popen)


def open_log(path: Path) -> BinaryIO:
    """For appending; one that has grown too long is set aside first, so that two of them are the most there is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    return path.open("ab")


def last_words(path: Path) -> str:
    """The last line of a log, for the sentence that says why a process ended."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = [line.strip() for line in file.read(4096).decode(errors="replace").splitlines()]
    except OSError:
        return ""
    return next((line[:300] for line in reversed(lines) if line), "")


def read_pid_file(path: Path) -> PidFile | None:
    """None when there is none, or it was cut short by a crash."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=PidFile)
    except (OSError, msgspec.MsgspecError):
        return None


def find(path: Path) -> Child | None:
    """The living process of a pid file, if it is still the one that was started."""
    file = read_pid_file(path)
    if file is None or not is_alive(file.identity):
        return None
    return Child(file, None)


def strays(marker: str, known: frozenset[int]) -> list[Identity]:
    """Processes whose command line holds `marker` but whose pid file was never written: we died in between."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in known or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(argument.decode(errors="replace").startswith(marker) for argument in arguments[1:]):
            start_time = start_time_of(int(entry.name))
            if start_time is not None:
                found.append(Identity(int(entry.name), start_time))
    return found
