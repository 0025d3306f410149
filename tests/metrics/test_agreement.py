"""Both sources read the same counters and give the same answer, so a verdict never depends on which is installed."""

import http.server
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.metrics.embedded import EmbeddedSource
from console.metrics.prometheus import PrometheusSource
from console.metrics.source import Growth, Indicator, NoData, Query, Reading, Value
from rollouts.gates import Gate
from rollouts.judge import judge
from tests.metrics.recorded import INTERVAL, Plane, Recording
from tests.services import parts, prometheus
from tests.services.redis import RedisServer

WINDOW = 60.0
MINUTES_OF_HISTORY = 3


@st.composite
def traffic(draw: st.DrawFn) -> dict[str, float]:
    """A service's load: requests per interval, share of errors, seconds, and when things happen (interval numbers)."""
    return {
        "rate": draw(st.integers(4, 40)),
        "errors": draw(st.sampled_from([0.0, 0.0, 0.01, 0.1, 0.4])),
        "refused": draw(st.sampled_from([0.0, 0.2])),
        "seconds": draw(st.sampled_from([0.004, 0.03, 0.2, 2.0])),
        "born": draw(st.sampled_from([0, 0, 70, 80])),
        "restart": draw(st.sampled_from([0, 0, 75])),
        "planes": draw(st.sampled_from([1, 2])),
        "seed": draw(st.integers(0, 1000)),
    }


def play(recording: Recording, name: str, load: dict[str, float], *, end: float) -> None:
    """Three minutes of samples, the last one at `end`."""
    rolls = random.Random(int(load["seed"]))
    planes = [Plane(f"{name}-{number}:8080", f"{name}-{number}") for number in range(int(load["planes"]))]
    steps = int(MINUTES_OF_HISTORY * 60 / INTERVAL)
    for step in range(steps + 1):
        for plane in planes:
            if load["restart"] and step == load["restart"]:
                plane.restart()
            if step >= load["born"]:
                answer(plane, name, load, rolls)
            recording.take(plane, end - (steps - step) * INTERVAL)


def answer(plane: Plane, name: str, load: dict[str, float], rolls: random.Random) -> None:
    for _ in range(int(load["rate"])):
        roll = rolls.random()
        code = 500 if roll < load["errors"] else 429 if roll > 1 - load["refused"] else 200
        plane.answer(name, 2, code=code, seconds=load["seconds"] * rolls.uniform(0.5, 1.5))
        if code == 429:
            plane.refuse(name, "rate" if rolls.random() < 0.7 else "queue")


def close(embedded: Reading, other: Reading, *, slack: float, share: float) -> bool:
    if not (isinstance(embedded, Value) and isinstance(other, Value)):
        return isinstance(embedded, NoData) and isinstance(other, NoData)
    return abs(embedded.value - other.value) <= slack + share * max(embedded.value, other.value)


@given(loads=st.lists(traffic(), min_size=12, max_size=12))
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_the_same_counters_give_the_same_reading(
    redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory, loads: list[dict[str, float]]
) -> None:
    binary = prometheus.find_binary()
    if binary is None:
        parts.did_not_run("Prometheus", "apt-get install prometheus")
    end = float(int(time.time()) - 3600 * 6)
    recording = Recording()
    for number, load in enumerate(loads):
        play(recording, f"service-{number}", load, end=end)
    redis_server.client.flushall()
    recording.samples.sort(key=lambda sample: sample[0])
    recording.into_redis(redis_server.client)
    folder = tmp_path_factory.mktemp("prometheus")
    recording.into_prometheus(folder)
    server = prometheus.PrometheusServer(binary, [], folder=folder)
    server.start()
    try:
        embedded, far = EmbeddedSource(redis_server.url), PrometheusSource(server.url)
        for number, load in enumerate(loads):
            compare(embedded, far, f"service-{number}", load, at=end + 0.7)
            compare_refused(embedded, far, f"service-{number}", load, at=end + 0.7)
    finally:
        server.stop()


def compare(
    embedded: EmbeddedSource, far: PrometheusSource, name: str, load: dict[str, float], *, at: float
) -> None:
    # Prometheus extrapolates to the window's edges, at most one interval's worth on each side of each plane.
    edge = 2 * load["rate"] * load["planes"]
    for indicator, slack, share in (
        (Indicator.REQUESTS, edge, 0.02),
        (Indicator.REQUEST_RATE, edge / WINDOW, 0.02),
        (Indicator.ERROR_RATIO, 0.03, 0.0),
        (Indicator.LATENCY_P50, 0.5, 0.1),
        (Indicator.LATENCY_P95, 0.5, 0.1),
    ):
        query = Query(indicator, name, 2, window_seconds=WINDOW)
        here, there = embedded.read(query, at=at), far.read(query, at=at)
        assert close(here, there, slack=slack, share=share), (load, here, there)
        assert isinstance(here, Value) and isinstance(there, Value)
        assert abs(here.requests - there.requests) <= edge + 0.02 * here.requests, (load, here, there)
        if indicator is Indicator.ERROR_RATIO and abs(here.value - 0.05) > 0.035:
            gate = Gate("errors", indicator, maximum=0.05)
            assert judge(gate, here, None).verdict == judge(gate, there, None).verdict


def compare_refused(
    embedded: EmbeddedSource, far: PrometheusSource, name: str, load: dict[str, float], *, at: float
) -> None:
    edge = 2 * load["rate"] * load["planes"]
    for limit in (None, "rate", "queue"):
        query = Query(Indicator.REFUSED_RATE, name, window_seconds=WINDOW, limit=limit)
        here, there = embedded.read(query, at=at), far.read(query, at=at)
        assert close(here, there, slack=edge / WINDOW, share=0.05), (limit, load, here, there)
    metric = "pilothouse_refused_total"
    mine = embedded.growth(metric, name, by="limit", at=at, window_seconds=WINDOW)
    other = far.growth(metric, name, by="limit", at=at, window_seconds=WINDOW)
    if isinstance(mine, Growth) and isinstance(other, Growth):
        assert mine.by.keys() == other.by.keys()
        assert all(abs(mine.by[limit] - other.by[limit]) <= edge for limit in mine.by), (mine, other)
    else:
        assert type(mine) is type(other), (mine, other)


class Exposed:
    """A /metrics endpoint. Each scrape is written to the Redis stream as well, so both sources see the same moments."""

    def __init__(self, redis_server: RedisServer) -> None:
        self.plane = Plane()
        self.lock = threading.Lock()
        exposed = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with exposed.lock:
                    body = exposed.plane.exposition().encode()
                    redis_server.client.xadd("ph:samples", {"sample": exposed.plane.sample(time.time())})
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def answered(self, version: int) -> float:
        with self.lock:
            rows = self.plane.requests.items()
            return sum(value for labels, value in rows if ("version", str(version)) in labels)

    def drive(self, seconds: float, *, canary_code: int | None = None) -> None:
        """Ten answers a second by version 1, and as many with this code by version 2."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self.lock:
                self.plane.answer("file-type", 1)
                if canary_code is not None:
                    self.plane.answer("file-type", 2, code=canary_code)
            time.sleep(0.1)


@pytest.fixture
def exposed(redis_server: RedisServer) -> Iterator[Exposed]:
    served = Exposed(redis_server)
    yield served
    served.server.shutdown()
    served.server.server_close()


def test_the_first_errors_of_a_new_version_are_seen_by_both(
    exposed: Exposed, redis_server: RedisServer, tmp_path: Path
) -> None:
    binary = prometheus.find_binary()
    if binary is None:
        parts.did_not_run("Prometheus", "apt-get install prometheus")
    server = prometheus.PrometheusServer(binary, [exposed.address], folder=tmp_path / "prometheus")
    server.start()
    try:
        server.wait_for_scrape()
        exposed.drive(4)
        exposed.drive(4, canary_code=500)  # series that did not exist before
        time.sleep(1.2)
        for source in (PrometheusSource(server.url), EmbeddedSource(redis_server.url)):
            errors = source.read(Query(Indicator.ERROR_RATIO, "file-type", 2, window_seconds=7))
            assert isinstance(errors, Value), errors
            assert errors.value == pytest.approx(1.0, abs=0.001)
            # Prometheus adds up to half an interval before a newborn series' first value.
            assert errors.requests == pytest.approx(exposed.answered(2), abs=8), source.name
            healthy = source.read(Query(Indicator.ERROR_RATIO, "file-type", 1, window_seconds=30))
            assert isinstance(healthy, Value) and healthy.value == 0
            never = source.read(Query(Indicator.ERROR_RATIO, "file-type", 9, window_seconds=30))
            assert isinstance(never, NoData) and "nothing was counted" in never.reason
    finally:
        server.stop()
