"""Ends runs that take too long: first the runtime is asked to stop, then the process goes."""

import os
import sys
import threading
import time
from collections.abc import Callable

GRACE_SECONDS = 1.0
STUCK_EXIT = 11
# Deadlines nearer than that are met this much late: the thread need not wake for each.
_GRAIN_SECONDS = 0.005


def leave(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
    os._exit(STUCK_EXIT)


class Watchdog:
    """stop: asks the runtime to end the run in hand. give_up: called when that did not help.

    A run costs two locks and no system call: the thread sleeps until the earliest end that it knows of, and a run with
    a later end, the usual case, need not wake it.
    """

    def __init__(self, stop: Callable[[], None], give_up: Callable[[str], None] = leave) -> None:
        self._stop = stop
        self._give_up = give_up
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._ends_at = float("inf")
        self._looks_at = float("inf")
        self._stopped = False
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def begin(self, seconds: float) -> None:
        with self._lock:
            self._ends_at = end = time.monotonic() + max(seconds, _GRAIN_SECONDS)
            if end < self._looks_at:
                self._looks_at = end
                self._news.set()

    def end(self) -> bool:
        """Whether the run was asked to stop."""
        with self._lock:
            self._ends_at = float("inf")
            stopped, self._stopped = self._stopped, False
            return stopped

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._news.clear()
                now = time.monotonic()
                if self._ends_at <= now:
                    if self._stopped:
                        break
                    self._stopped = True
                    self._stop()
                    self._ends_at = now + GRACE_SECONDS
                self._looks_at = self._ends_at
                wait = self._looks_at - now
            self._news.wait(None if wait == float("inf") else wait)
        self._give_up(f"a run did not end {GRACE_SECONDS:g} s after it was stopped; the worker leaves")
