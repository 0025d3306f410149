"""Runs a load test in the node's agent: the load tool as a process, watched by a thread of its own.

The row says at any moment what is true: the thread tells that the process lives, and when nobody tells it any more,
`actions.sweep` ends the row. Nothing here holds up the agent's other tasks.
"""

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time

import httpx
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections

from console.kit import clock, processes
from console.kit.errors import OperationError
from console.loadtests import actions, command, files, reports
from console.loadtests.models import LoadTest
from console.loadtests.states import State

log = logging.getLogger(__name__)

MOST_AT_ONCE = 2
# The key is in the planes when the snapshot that holds it is; beat makes a new one every five seconds at the latest.
KEY_SECONDS = 30.0
BEAT_SECONDS = 1.0
# How long the tool may take to start its processes and to write its report, beside the time of the load itself.
OVERTIME_SECONDS = 45.0
STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.2

_busy: set[int] = set()
_lock = threading.Lock()


class Failed(Exception):
    """The run is over without a report; the text is for the page."""


class Stopped(Exception):
    """A person stopped it."""


def begin(loadtest_id: int) -> threading.Thread | None:
    """Take the test and run it on a new thread; None when it is taken, over, or this agent has enough to do."""
    with _lock:
        if len(_busy) >= MOST_AT_ONCE:
            return None
        row = actions.claim(loadtest_id, node=settings.NODE_NAME)
        if row is None:
            return None
        _busy.add(row.pk)
    thread = threading.Thread(target=_go, args=(row,), name=f"loadtest-{row.pk}", daemon=True)
    thread.start()
    return thread


def _go(row: LoadTest) -> None:
    try:
        run(row)
    except Exception:  # the last line of a thread: what nobody foresaw is logged, and the sweep ends the row
        log.exception("load test %s broke", row.pk)
    finally:
        with _lock:
            _busy.discard(row.pk)
        connections.close_all()


def run(row: LoadTest) -> None:
    """To its end, whichever that is."""
    try:
        secret = actions.make_key(row)
        _await_key(row, secret)
        with _Tool(row, secret) as tool:
            tool.watch()
        report = reports.of_csv(files.csv_of(row.pk), columns={})
        actions.end(row, State.FINISHED, _sentence(report), report=report, csv_bytes=files.keep(row.pk))
    except Stopped:
        files.remove(row.pk)
        actions.end(row, State.CANCELLED, "Stopped; the load tool has ended.")
    except (Failed, OperationError) as failure:
        files.remove(row.pk)
        actions.end(row, State.FAILED, str(failure))


def _sentence(report: dict[str, object]) -> str:
    return f"{report['requests']:,} requests sent, {report['errors']:,} of them failed."


def _await_key(row: LoadTest, secret: str) -> None:
    """Raises Failed when the plane does not take the key, or the service is not there."""
    deadline = time.monotonic() + KEY_SECONDS
    address = f"{settings.PLANE_URL}/v2/models/{row.service}"
    if row.version is not None:
        address += f"/versions/{row.version}"
    why = "it did not answer"
    while time.monotonic() < deadline:
        _tell(row)
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(
                address, headers={"Authorization": f"Bearer {secret}"}, timeout=3, trust_env=False
            )
            if answer.status_code == 200:
                return
            why = f"it answered {answer.status_code}: {answer.text[:200]}"
        time.sleep(_LOOK_SECONDS)
    raise Failed(
        f"The plane at {settings.PLANE_URL} did not take the load test's key within {KEY_SECONDS:g} s; {why}"
    )


def _tell(row: LoadTest, **changes: object) -> None:
    """Raises Stopped when a person wants it to end, or the row is over without us."""
    close_old_connections()
    try:
        if actions.note(row, **changes):
            return
    except DatabaseError as error:
        log.warning("load test %s goes on without the database: %s", row.pk, error)
        return
    raise Stopped


class _Tool:
    """The process, in a session of its own so that all of its own processes can be ended with it."""

    def __init__(self, row: LoadTest, secret: str) -> None:
        self._row = row
        self._log = files.folder() / f"{row.pk}.log"
        self._deadline = time.monotonic() + row.seconds + OVERTIME_SECONDS
        # The key goes by the environment: a command line can be read by everyone on the machine.
        environment = {**os.environ, **command.environment(secret)}
        with self._log.open("wb") as log_file:
            self._process = subprocess.Popen(
                command.of(row, plane_url=settings.PLANE_URL, csv=files.csv_of(row.pk)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log_file,
                env=environment,
                cwd=settings.BASE_DIR,
                start_new_session=True,
            )

    def __enter__(self) -> "_Tool":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._log.unlink(missing_ok=True)

    def watch(self) -> None:
        """Until it is done. Raises Failed, Stopped."""
        pid = self._process.pid
        started = processes.start_time_of(pid)
        _tell(self._row, pid=pid, pid_started=started, started_at=clock.now(), message="The load tool runs.")
        told = time.monotonic()
        while (code := self._process.poll()) is None:
            time.sleep(_LOOK_SECONDS)
            if time.monotonic() > self._deadline:
                raise Failed("The load tool did not end in its time and was killed.")
            if time.monotonic() - told >= BEAT_SECONDS:
                _tell(self._row)
                told = time.monotonic()
        if code not in command.GOOD_CODES:
            said = processes.last_words(self._log) or "it said nothing"
            word = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise Failed(f"The load tool {word}: {said}")

    def _end(self) -> None:
        """TERM, and KILL for the whole session when that is not heard. By the pid that we started and not reaped."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
