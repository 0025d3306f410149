"""The node agent: a Celery worker whose bootstep owns the supervisor of plane and workers.

The step sits on the worker's blueprint, not on the consumer's: a consumer restarts whenever Redis goes away, and
supervision must not notice. Snapshots come down by nudge or by looking every few seconds, reports and counter samples
go up from a thread of their own; the database is never asked.
"""

import logging
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import redis
from celery import Celery, bootsteps
from django.conf import settings

from inference.node.layout import Layout
from inference.plane import probe
from inference.protocol import SAMPLES_KEY, SNAPSHOT_KEY, Snapshot, decode, encode
from inference.supervisor import Supervisor

log = logging.getLogger(__name__)

POLL_SECONDS = 3.0
REPORT_SECONDS = 2.0
SAMPLES_KEPT = 4000
_LEAST_BETWEEN = 0.2  # changes come in bursts; one report tells them all

NAME_PREFIX = "agent@"
_here: "Agent | None" = None


def here() -> "Agent":
    """The agent of this process."""
    if _here is None:
        raise RuntimeError("this process is no node agent")
    return _here


class Agent:
    def __init__(self, app: Celery, layout: Layout, *, plane_url: str, redis_url: str) -> None:
        self._app = app
        self._redis = redis.Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=1)
        self._tell = threading.Event()
        self._fetch = threading.Event()
        self._stop = threading.Event()
        self._quiet: set[str] = set()
        self._layout = layout
        self.supervisor = Supervisor(layout, plane_url=plane_url, on_change=self._tell.set)
        # Two threads: an outage that makes sending slow must not make receiving late.
        self._threads = [
            threading.Thread(target=self.supervisor.run, name="supervisor", daemon=True),
            threading.Thread(
                target=self._every, args=(self._receive, self._fetch, POLL_SECONDS), daemon=True
            ),
            threading.Thread(target=self._every, args=(self._send, self._tell, REPORT_SECONDS), daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def nudge(self) -> None:
        self._fetch.set()

    def stop(self) -> None:
        """End supervision, then plane and workers in order; at last say so."""
        self.supervisor.close()
        self._threads[0].join(timeout=10)
        self._stop.set()
        self._fetch.set()
        self._tell.set()
        self.supervisor.drain()
        self._attempt("report", self._report)

    def _every(self, act: Any, event: threading.Event, seconds: float) -> None:
        while not self._stop.is_set():
            act()
            event.wait(seconds)
            self._stop.wait(_LEAST_BETWEEN)
            event.clear()

    def _receive(self) -> None:
        self._attempt("snapshot", self._take_snapshot)

    def _send(self) -> None:
        self._attempt("report", self._report)
        self._attempt("sample", self._sample)

    def _take_snapshot(self) -> None:
        raw = self._redis.get(SNAPSHOT_KEY)
        if isinstance(raw, bytes):
            self.supervisor.offer(decode(raw, Snapshot))

    def _report(self) -> None:
        self._app.send_task(
            "inference.tasks.record_report",
            args=[encode(self.supervisor.report()).decode()],
            queue="control",
            expires=10,
        )

    def _sample(self) -> None:
        try:
            sample = probe.counters(self._layout.plane_socket)
        except probe.ProbeError:
            return  # the plane is starting or gone; its state is in the report
        self._redis.xadd(SAMPLES_KEY, {"sample": encode(sample)}, maxlen=SAMPLES_KEPT, approximate=True)

    def _attempt(self, what: str, act: Any) -> None:
        """One line when something stops working and one when it works again."""
        try:
            act()
        except Exception as error:  # whatever redis, kombu and sockets raise: the node works on without them
            if what not in self._quiet:
                log.warning("%s cannot be exchanged for now: %s", what, error)
                self._quiet.add(what)
            return
        if what in self._quiet:
            log.info("%s is exchanged again", what)
            self._quiet.discard(what)


class AgentStep(bootsteps.StartStopStep):
    """Only in a worker named agent@<node>. No `requires`: it comes first and, stopping in reverse, goes last."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self.enabled = str(parent.hostname or "").startswith(NAME_PREFIX)

    def start(self, parent: Any) -> None:
        global _here
        layout = Layout(
            node=settings.NODE_NAME,
            folder=settings.HOME / "node" / settings.NODE_NAME,
            blobs=settings.HOME / "blobs",
            logs=settings.HOME / "logs",
            host=settings.PLANE_HOST,
            port=urlsplit(settings.PLANE_URL).port or 8080,
        )
        _here = Agent(parent.app, layout, plane_url=settings.PLANE_URL, redis_url=settings.REDIS_URL)
        _here.start()

    def stop(self, parent: Any) -> None:
        if _here is not None:
            started = time.monotonic()
            _here.stop()
            log.info("plane and workers ended in %.1f s", time.monotonic() - started)

    terminate = stop


def install(app: Celery) -> None:
    """Make the app's workers able to be agents."""
    app.steps["worker"].add(AgentStep)
