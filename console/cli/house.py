"""The processes that `up` started: begun in order, watched, brought back when they die, ended in reverse order."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from console.kit import processes
from console.kit.processes import Child

_BACKOFF_FIRST, _BACKOFF_MOST, _HEALTHY_SECONDS = 0.2, 10.0, 30.0


@dataclass(frozen=True, slots=True)
class Part:
    """One process. readiness: None when it can work, else why not yet. stop_seconds: then it is killed."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    readiness: Callable[[], str | None]
    ready_seconds: float = 30.0
    stop_seconds: float = 10.0


class NotReady(Exception):
    """A part did not come up; the message says which and why."""


@dataclass(slots=True)
class _Running:
    part: Part
    child: Child | None
    started_at: float
    failures: int = 0
    restarts: int = 0
    retry_at: float = 0.0


@dataclass
class House:
    home: Path
    say: Callable[[str], None]
    _running: list[_Running] = field(default_factory=list)

    def start(self, part: Part) -> None:
        self._running.append(_Running(part, self._spawn(part, 0), time.time()))

    def each_ready(self, names: Sequence[str], *, interrupted: Callable[[], bool]) -> Iterator[str]:
        """Yield each name as its part becomes able to work. Raises NotReady when one ends, or its time is over."""
        began = time.monotonic()
        waiting = [running for running in self._running if running.part.name in names]
        while waiting:
            for running in list(waiting):
                reason = running.part.readiness()
                if reason is None:
                    waiting.remove(running)
                    yield running.part.name
                else:
                    self._check_hope(running, reason, time.monotonic() - began)
            if interrupted():
                raise NotReady("stopped while starting")
            time.sleep(0.1)

    def _check_hope(self, running: _Running, reason: str, seconds: float) -> None:
        part, log = running.part, self.log(running.part.name)
        if running.child is not None and not running.child.is_alive():
            raise NotReady(
                f"{part.name} {running.child.exit_detail()}: {processes.last_words(log)} (log: {log})"
            )
        if seconds > part.ready_seconds:
            raise NotReady(f"{part.name} is not ready after {part.ready_seconds:g} s: {reason} (log: {log})")

    def look(self) -> None:
        """Bring back what has died, waiting longer each time it dies again soon."""
        now = time.time()
        for running in self._running:
            if running.child is not None and not running.child.is_alive():
                self._note_end(running, now)
            if running.child is None and now >= running.retry_at:
                running.restarts += 1
                running.child, running.started_at = self._spawn(running.part, running.restarts), now
                self.say(f"{running.part.name} was started again")

    def _note_end(self, running: _Running, now: float) -> None:
        assert running.child is not None
        if now - running.started_at >= _HEALTHY_SECONDS:
            running.failures = 0
        running.failures += 1
        wait = min(_BACKOFF_MOST, _BACKOFF_FIRST * 2.0 ** min(running.failures - 1, 16))
        running.retry_at = now + wait
        how = running.child.exit_detail()
        running.child = None
        self.say(
            f"{running.part.name} {how}; it is started again in {wait:g} s (log: {self.log(running.part.name)})"
        )

    def _spawn(self, part: Part, restarts: int) -> Child:
        ready_file = self.home / "run" / f"{part.name}.ready"
        ready_file.unlink(missing_ok=True)
        return processes.spawn(
            part.command,
            pid_file=self.pid_file(part.name),
            log_file=self.log(part.name),
            environment={**part.environment, "PILOTHOUSE_READY_FILE": str(ready_file)},
            started_at=time.time(),
            restarts=restarts,
        )

    def stop(self, *, hurry: Callable[[], bool]) -> None:
        """End all, last started first. hurry: True (a second Ctrl-C) kills what is left at once."""
        while self._running:
            running = self._running.pop()
            if running.child is not None:
                began = time.monotonic()
                how = end(running.child, seconds=running.part.stop_seconds, hurry=hurry)
                self.say(f"{running.part.name} {how} in {time.monotonic() - began:.1f} s")
            self.pid_file(running.part.name).unlink(missing_ok=True)
            (self.home / "run" / f"{running.part.name}.ready").unlink(missing_ok=True)

    def pid_file(self, name: str) -> Path:
        return self.home / "run" / f"{name}.json"

    def log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"


def end(child: Child, *, seconds: float, hurry: Callable[[], bool] = lambda: False) -> str:
    """Ask a process to end and make sure that it does. Returns "stopped" or "was killed"."""
    child.send(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while child.is_alive() and time.monotonic() < deadline and not hurry():
        time.sleep(0.05)
    if not child.is_alive():
        return "stopped"
    child.send(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while child.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    return "was killed"


# Agents first, since they end their plane and workers in order; Redis last, since all others need it to end well.
_LAST = ("redis", "prometheus")


def end_leftovers(home: Path) -> int:
    """End what an earlier run left behind, known by pid file and start time. Returns how many there were."""
    files = sorted(
        (home / "run").glob("*.json"), key=lambda path: (path.stem in _LAST, path.stem != "agent", path.stem)
    )
    # The node's own processes come after its agent, the plane before its workers.
    node_files = sorted((home / "node").glob("*/run/*.json"), key=lambda path: path.stem != "plane")
    after_agent = 1 if any(path.stem == "agent" for path in files) else 0
    ended = 0
    for path in [*files[:after_agent], *node_files, *files[after_agent:]]:
        child = processes.find(path)
        if child is not None and child.identity.pid != os.getpid():
            end(child, seconds=25.0 if path.stem == "agent" else 8.0)
            ended += 1
        with contextlib.suppress(OSError):
            path.unlink()
    return ended
