"""Keeps a worker within the memory that its contract gives it, by what no file backs: mapped weights are shared."""

import ctypes
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LOOK_SECONDS = 0.5
RECYCLE_EXIT = 10
# Above this many times its limit a worker cannot be waited for: the node needs the memory now.
HARD_FACTOR = 2.0
# Of the address space for data beyond the limit: stacks, arenas that are reserved and not used, fragmentation.
SLACK_BYTES = 512 << 20


def private_bytes() -> int:
    """Memory of this process that no file backs."""
    return _status("RssAnon:")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return 0


def limit_for_load(model_bytes: int) -> int:
    """Private memory that loading a model of that size may take: the file, its optimised copy, the packed weights."""
    return (2 << 30) + 10 * model_bytes


def bound_data(most_bytes: int) -> None:
    """An allocation beyond fails inside the run that asks for it, and that request is refused."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def data_bytes() -> int:
    return _status("VmData:")


def give_back() -> None:
    """Freed memory that the allocator still holds goes back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own
    if trim is not None:
        trim(0)


def leave(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
    os._exit(RECYCLE_EXIT)


class MemoryWatch:
    """recycle: called once, with a sentence, when the limit is passed and giving back did not help."""

    def __init__(
        self,
        limit_bytes: int,
        recycle: Callable[[str], None],
        *,
        give_up: Callable[[str], None] = leave,
        used: Callable[[], int] = private_bytes,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.limit_bytes = limit_bytes
        self._recycle = recycle
        self._give_up = give_up
        self._used = used
        self._look_seconds = look_seconds
        threading.Thread(target=self._watch, name="memory", daemon=True).start()

    def _watch(self) -> None:
        asked = False
        while True:
            time.sleep(self._look_seconds)
            used = self._used()
            if used <= self.limit_bytes:
                continue
            if not asked:
                give_back()
                used = self._used()
            told = f"{used >> 20} MB of private memory are in use, {self.limit_bytes >> 20} MB are allowed"
            if used > HARD_FACTOR * self.limit_bytes:
                self._give_up(f"{told}; the worker leaves at once")
                return
            if used > self.limit_bytes and not asked:
                asked = True
                self._recycle(told)
