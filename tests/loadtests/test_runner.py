"""The agent's side: a process with a key of its own, whose true state the row tells, whatever dies."""

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from console.kit import clock, processes
from console.loadtests import actions, command, files, runner
from console.loadtests.models import LoadTest
from console.loadtests.states import State
from console.services.models import Service
from console.tenants.models import Token
from console.tenants.permissions import SYSTEM
from console.tenants.tokens import digest
from tests.cast import Cast

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def plane(settings: Any) -> Iterator[list[str]]:
    """Answers 200 to whoever shows a key; the keys it was shown."""
    keys: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("Authorization", "").removeprefix("Bearer "))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.PLANE_URL = f"http://127.0.0.1:{server.server_address[1]}"
    yield keys
    server.shutdown()
    server.server_close()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the load tool will do: take so many seconds, then end with this code."""

    def set_up(*, seconds: float = 0.0, code: int = 0) -> None:
        def of(row: LoadTest, *, plane_url: str, csv: Path) -> list[str]:
            wanted = [str(os.getpid()), str(csv), str(seconds), str(code)]
            return [sys.executable, "-m", "tests.loadtests.tool", *wanted]

        monkeypatch.setattr(command, "of", of)

    return set_up


def ask(service: Service, **plan: Any) -> LoadTest:
    wanted = actions.wanted(
        service, service.tenant, actor=SYSTEM, plan={"duration_seconds": 5, **plan}, thresholds=["p99=50ms"]
    )
    return actions.start(wanted, actor=SYSTEM)


def until(row: LoadTest, state: State, *, seconds: float = 15) -> LoadTest:
    deadline = time.monotonic() + seconds
    while row.state != state:
        assert time.monotonic() < deadline, (row.state, row.message)
        time.sleep(0.05)
        row.refresh_from_db()
    return row


def begin(row: LoadTest) -> threading.Thread:
    thread = runner.begin(row.pk)
    assert thread is not None
    return thread


def test_a_run_ends_with_its_report_and_its_key_is_revoked(
    cast: Cast,
    service: Service,
    plane: list[str],
    tool: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    tool()
    row = ask(service)
    begin(row).join(20)
    row.refresh_from_db()
    assert (row.state, row.verdict, row.requests, row.errors) == ("finished", "met", 200, 4)
    assert row.csv_bytes == files.csv_of(row.pk).stat().st_size
    key = Token.objects.get(sha256=digest(plane[0]))
    assert (key.tenant, key.scopes, key.state) == (service.tenant, ["infer"], "revoked")
    assert key.expires_at is not None and key.expires_at < clock.now() + timedelta(minutes=5)
    assert plane[0] not in caplog.text
    assert not (files.folder() / f"{row.pk}.log").exists()


def test_a_tool_that_fails_says_why(
    cast: Cast, service: Service, plane: list[str], tool: Callable[..., None]
) -> None:
    tool(code=1)
    row = ask(service)
    begin(row).join(20)
    row.refresh_from_db()
    assert (row.state, row.report) == ("failed", None)
    assert row.message == "The load tool ended with code 1: the model is not there"


def test_a_stop_ends_the_process_and_then_says_so(
    cast: Cast, service: Service, plane: list[str], tool: Callable[..., None]
) -> None:
    tool(seconds=60)
    row = ask(service)
    thread = begin(row)
    while not row.pid:
        row.refresh_from_db()
        time.sleep(0.05)
    identity = processes.Identity(row.pid, row.pid_started or 0)
    assert processes.is_alive(identity)
    stopping = actions.cancel(row, actor=cast.ada.actor)
    assert (stopping.state, stopping.face.word) == ("running", "stopping")
    thread.join(20)
    assert until(row, State.CANCELLED).message == "Stopped; the load tool has ended."
    assert not processes.is_alive(identity)
    assert Token.objects.get(name=f"load test {row.pk}").is_revoked


def test_a_plane_that_never_takes_the_key_ends_the_run_with_words(
    cast: Cast, service: Service, tool: Callable[..., None], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool()
    settings.PLANE_URL = "http://127.0.0.1:9"
    monkeypatch.setattr(runner, "KEY_SECONDS", 0.5)
    row = ask(service)
    begin(row).join(20)
    row.refresh_from_db()
    assert row.state == "failed"
    assert "did not take the load test's key" in row.message


def test_an_agent_that_dies_takes_the_load_along_and_the_row_ends_failed(
    cast: Cast, service: Service, tmp_path: Path
) -> None:
    """kill -9: the kernel ends the tool, and the sweep tells what is true."""
    agent = subprocess.Popen(
        [sys.executable, "-c", _AGENT, str(tmp_path / "x.csv")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    pid = int(agent.stdout.readline())
    identity = processes.Identity(pid, processes.start_time_of(pid) or 0)
    row = ask(service)
    assert actions.claim(row.pk, node="node-1") is not None
    secret = actions.make_key(row)
    assert secret.startswith("ph_")
    assert actions.note(row, pid=pid)
    time.sleep(1.0)  # the tool asks the kernel once it has started
    os.kill(agent.pid, signal.SIGKILL)
    agent.wait(10)
    deadline = time.monotonic() + 10
    while processes.is_alive(identity):
        assert time.monotonic() < deadline, "the load goes on without its agent"
        time.sleep(0.05)
    assert actions.sweep(clock.now() + timedelta(seconds=5)) == 0
    assert actions.sweep(clock.now() + timedelta(seconds=20)) == 1
    row.refresh_from_db()
    assert row.state == "failed"
    assert "The agent of node-1 that ran it is gone" in row.message
    assert Token.objects.get(name=f"load test {row.pk}").is_revoked
    assert not actions.note(row), "a late word of the agent changes nothing"


_AGENT = """
import os, subprocess, sys, time
tool = [sys.executable, "-m", "tests.loadtests.tool", str(os.getpid()), sys.argv[1], "60", "0"]
print(subprocess.Popen(tool, start_new_session=True).pid, flush=True)
time.sleep(60)
"""


def test_a_test_is_taken_once_and_an_agent_takes_only_so_many(
    cast: Cast, service: Service, plane: list[str], tool: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool()
    row = ask(service)
    monkeypatch.setattr(runner, "MOST_AT_ONCE", 0)
    assert runner.begin(row.pk) is None
    row.refresh_from_db()
    assert row.state == "queued"
    monkeypatch.setattr(runner, "MOST_AT_ONCE", 2)
    thread = begin(row)
    assert runner.begin(row.pk) is None
    thread.join(20)


def test_one_that_nobody_takes_is_asked_for_again_and_ends_at_last(
    cast: Cast, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ask(service)
    asked: list[int] = []
    monkeypatch.setattr(actions, "ask_agents", asked.append)
    now = clock.now()
    assert actions.sweep(now + timedelta(seconds=2)) == 0 and asked == []
    assert actions.sweep(now + timedelta(seconds=30)) == 0 and asked == [row.pk]
    assert actions.sweep(now + timedelta(minutes=11)) == 1
    row.refresh_from_db()
    assert (row.state, "No agent took it" in row.message) == ("failed", True)


def test_the_oldest_csv_goes_when_together_they_are_too_many(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES_TOGETHER", 250)
    for number in (1, 2, 3):
        files.csv_of(number).write_bytes(b"x" * 100)
        os.utime(files.csv_of(number), (number, number))
    assert files.keep(3) == 100
    assert [path.name for path in sorted(files.folder().glob("*.csv"))] == ["2.csv", "3.csv"]
