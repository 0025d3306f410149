"""The worker process alone, spoken to over its socket as planes and agents do."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from inference.plane import frames, slots
from inference.plane.probe import ProbeError, WorkerStatus, ask_worker
from inference.plane.watchdog import Watchdog
from inference.protocol import decode
from tests.plane import models
from tests.plane.parts import ROOT
from tests.services.process import Child, wait_until

LAYOUT = frames.Layout(id=0, batched=True, inputs=(("turns", "INT64", (1,)),), outputs=("done",))


class Plane:
    """A plane's side of one connection, as little as it takes."""

    def __init__(self, path: Path, instance: str = "p1", *, slab: bool = True) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(path))
        hello = json.dumps({"as": "plane", "instance": instance}).encode()
        self.slab, fd = slots.create()
        socket.send_fds(self.sock, [frames.pack(frames.Kind.HELLO, hello)], [fd] if slab else [])
        os.close(fd)

    def receive(self) -> tuple[frames.Kind, bytearray]:
        return frames.receive(self.sock)

    def status(self) -> WorkerStatus:
        kind, body = self.receive()
        assert kind is frames.Kind.STATUS
        return decode(bytes(body), WorkerStatus)

    def define(self, layout: frames.Layout) -> None:
        self.sock.sendall(frames.pack(frames.Kind.LAYOUT, msgspec.json.encode(layout)))

    def run(self, batch: int, data: bytes, *, rows: int = 1, stop_us: int = 0, layout: int = 0) -> None:
        head = frames.run_struct(1)
        body = head.pack(
            head.size - 4 + len(data),
            frames.Kind.RUN,
            0,
            layout,
            batch,
            rows,
            stop_us,
            len(data),
            frames.INLINE,
        )
        self.sock.sendall(body + data)

    def close(self) -> None:
        self.sock.close()
        self.slab.close()


def turns(count: int) -> bytes:
    return np.array([count], "<i8").tobytes()


def batch_of(kind: frames.Kind, body: bytearray) -> int:
    found = frames.RESULT if kind is frames.Kind.RESULT else frames.FAILED
    number: int = found.unpack_from(body)[0]
    return number


class Running:
    def __init__(self, folder: Path, version: Path, *more: str) -> None:
        self.socket = folder / "w.sock"
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "inference.plane.worker",
            *arguments(self.socket, version),
        ]
        self.child = Child([*command, *more], folder=ROOT, log=folder / "worker.log", env=environment())

    def ready(self) -> WorkerStatus:
        return wait_state(self.socket, "ready")

    def stop(self) -> None:
        if self.child.process.poll() is None:
            os.kill(self.child.pid, signal.SIGKILL)
        self.child.process.wait(10)


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}


def arguments(path: Path, version: Path) -> list[str]:
    return ["--socket", str(path), "--version-dir", str(version), "--service", "s", "--version", "1"]


def wait_state(path: Path, state: str) -> WorkerStatus:
    found: list[WorkerStatus] = []

    def there() -> bool:
        try:
            found[:] = [ask_worker(path, timeout_seconds=1)]
        except ProbeError:
            return False
        return found[0].state == state

    wait_until(there, seconds=20, what=f"the worker to be {state}")
    return found[0]


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, models.slow(tmp_path / "slow"))
    try:
        running.ready()
        yield running
    finally:
        running.stop()


def test_a_run_past_its_deadline_is_stopped_and_the_worker_goes_on(slow: Running) -> None:
    plane = Plane(slow.socket)
    assert plane.status().state == "ready"
    plane.define(LAYOUT)
    plane.run(1, turns(10_000_000), stop_us=100_000)
    kind, body = plane.receive()
    assert kind is frames.Kind.FAILED
    assert frames.FAILED.unpack_from(body) == (1, 504)
    assert body[frames.FAILED.size :] == b"the deadline passed inside the model"
    plane.run(2, turns(3), stop_us=5_000_000)
    kind, body = plane.receive()
    assert (kind, batch_of(kind, body)) == (frames.Kind.RESULT, 2)
    plane.close()


def test_two_planes_are_served_in_turns_by_one_worker(slow: Running) -> None:
    first, second = Plane(slow.socket, "p1"), Plane(slow.socket, "p2")
    order: list[int] = []
    for plane in (first, second):
        assert plane.status().state == "ready"
        plane.define(LAYOUT)
    for number in range(6):
        first.run(number, turns(4000))
    time.sleep(0.02)
    second.run(100, turns(1))

    def collect(plane: Plane, count: int) -> None:
        for _ in range(count):
            kind, body = plane.receive()
            assert kind is frames.Kind.RESULT
            order.append(batch_of(kind, body))

    threads = [
        threading.Thread(target=collect, args=(first, 6)), threading.Thread(target=collect, args=(second, 1))
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == [0, 1, 2, 3, 4, 5, 100]
    assert order.index(100) <= 2, order
    assert ask_worker(slow.socket).batches == 7


def test_a_plane_that_comes_again_takes_its_own_place_only(slow: Running) -> None:
    old, other = Plane(slow.socket, "p1"), Plane(slow.socket, "p2")
    old.status(), other.status()
    new = Plane(slow.socket, "p1")
    new.status()
    with pytest.raises((EOFError, ConnectionError)):
        old.receive()
    for plane in (new, other):
        plane.define(LAYOUT)
        plane.run(1, turns(1))
        assert plane.receive()[0] is frames.Kind.RESULT


def test_a_plane_that_dies_or_talks_nonsense_harms_no_other(slow: Running) -> None:
    good = Plane(slow.socket, "good")
    good.status()
    good.define(LAYOUT)
    nonsense = [
        frames.HEAD.pack(0, 4),
        frames.HEAD.pack(frames.LIMIT + 1, 4),
        frames.pack(frames.Kind.RUN, b"\0" * 7),
        frames.pack(frames.Kind.RUN, frames.RUN.pack(9, 77, 1, 1, 0)),
        frames.pack(frames.Kind.LAYOUT, b"{}"),
        frames.pack(frames.Kind.STATUS, b"{}"),
        frames.HEAD.pack(100, 4) + b"half",
    ]
    for index, data in enumerate(nonsense):
        bad = Plane(slow.socket, f"bad{index}")
        bad.status()
        bad.sock.sendall(data)
        bad.sock.shutdown(socket.SHUT_WR)
        with pytest.raises((EOFError, ConnectionError)):
            bad.receive()
        bad.close()
        good.run(index, turns(1))
        kind, body = good.receive()
        assert (kind, batch_of(kind, body)) == (frames.Kind.RESULT, index)


def test_a_stuck_run_ends_the_process_and_says_so() -> None:
    stopped, gone = threading.Event(), threading.Event()
    told: list[str] = []

    def leave(sentence: str) -> None:
        told.append(sentence)
        gone.set()

    watchdog = Watchdog(stopped.set, leave)
    watchdog.begin(10)
    assert watchdog.end() is False
    watchdog.begin(0.02)
    assert stopped.wait(5)
    assert watchdog.end() is True
    watchdog.begin(0.02)
    assert gone.wait(5)
    assert "did not end" in told[0]


class Standby:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "standby.sock"
        command: list[str | Path] = [sys.executable, "-m", "inference.plane.worker", "--standby", self.path]
        self.child = Child(command, folder=ROOT, log=folder / "standby.log", env=environment())
        wait_until(self.path.exists, seconds=20, what="the standby to listen")
        self.agent = socket.socket(socket.AF_UNIX)
        self.agent.settimeout(20)
        self.agent.connect(str(self.path))

    def order(self, line: bytes) -> dict[str, Any]:
        self.agent.sendall(line)
        answer = json.loads(self.agent.recv(4096) or b"null")
        return answer if isinstance(answer, dict) else {}


def test_a_standby_becomes_the_worker_it_is_told_to_be_and_outlives_its_agent(tmp_path: Path) -> None:
    standby = Standby(tmp_path)
    version = models.mlp(tmp_path / "mlp")
    order = {"argv": arguments(tmp_path / "w.sock", version), "log": str(tmp_path / "own.log")}
    try:
        assert standby.order(json.dumps(order).encode() + b"\n") == {"pid": standby.child.pid}
        standby.agent.close()
        status = wait_state(tmp_path / "w.sock", "ready")
        assert status.pid == standby.child.pid
        assert (tmp_path / "own.log").exists() and not standby.path.exists()
    finally:
        os.kill(standby.child.pid, signal.SIGTERM)
        assert standby.child.process.wait(10) == 0


@pytest.mark.parametrize("line", [b"", b"nonsense\n", b"[]\n", b'{"argv": 3}\n'])
def test_a_standby_whose_agent_goes_or_talks_nonsense_ends(tmp_path: Path, line: bytes) -> None:
    standby = Standby(tmp_path)
    assert standby.path.stat().st_mode & 0o777 == 0o600
    standby.agent.sendall(line)
    if not line:
        standby.agent.close()
    assert standby.child.process.wait(20) == 0
    assert not standby.path.exists()
