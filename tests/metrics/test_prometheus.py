"""The Prometheus source against servers that are away, slow, wrong or empty, and labels that try to break out."""

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from console.metrics import promql
from console.metrics.prometheus import PrometheusSource
from console.metrics.source import Indicator, NoData, ProviderError, Query
from tests.services.prometheus import PrometheusServer

QUERY = Query(Indicator.ERROR_RATIO, "file-type", 2)
Serve = Callable[[int, bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that answers everything with one status and body."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(status: int, body: bytes) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def vector(*values: str) -> bytes:
    result = [{"metric": {}, "value": [0, value]} for value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_nobody_listening_is_a_provider_error() -> None:
    reading = PrometheusSource("http://127.0.0.1:1").read(QUERY)
    assert isinstance(reading, ProviderError) and reading.reason == "Prometheus cannot be reached"


def test_a_server_that_never_answers_costs_a_bounded_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = PrometheusSource(f"http://127.0.0.1:{silent.getsockname()[1]}", read_seconds=0.3)
        began = time.monotonic()
        reading = source.read(QUERY)
    assert isinstance(reading, ProviderError) and reading.reason == "Prometheus did not answer in time"
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"broken"),
        (400, b'{"status":"error","error":"parse error"}'),
        (200, b"<html>"),
        (200, b"{}"),
        (200, b'{"data": {"result": [{"metric": {}}]}}'),
        (200, b'{"data": {"result": [0, "1"]}}'),
        (200, b'{"data": {"result": "x"}}'),
        (200, b"[]"),
    ],
)
def test_any_other_answer_is_a_provider_error(serve: Serve, status: int, body: bytes) -> None:
    source = PrometheusSource(serve(status, body))
    assert isinstance(source.read(QUERY), ProviderError)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_number_is_no_data(serve: Serve, value: str) -> None:
    reading = PrometheusSource(serve(200, vector(value))).read(QUERY)
    assert isinstance(reading, NoData)
    assert reading.query == promql.value_expression(QUERY)


def test_an_empty_answer_is_no_data(serve: Serve) -> None:
    reading = PrometheusSource(serve(200, vector())).read(QUERY)
    assert isinstance(reading, NoData) and reading.reason == "no node has reported"


HOSTILE = [
    'a"} or vector(1) #',
    "back\\slash",
    "new\nline",
    "tab\t",
    "ünïcødé",
    "\u0001",
    "{{$x}}",
    "😀",
    "a" * 255,
]


@pytest.mark.parametrize("indicator", list(Indicator))
def test_a_real_server_parses_every_expression(
    prometheus_server: Callable[[list[str]], PrometheusServer], indicator: Indicator
) -> None:
    source = PrometheusSource(prometheus_server([]).url)
    for name in HOSTILE:
        reading = source.read(Query(indicator, name, 2, tenant=name))
        assert isinstance(reading, NoData), (name, reading)
        assert reading.reason == "no node has reported"
    points = source.series(Query(indicator, "x"), start=1000, end=1100, step_seconds=10)
    assert isinstance(points, list) and len(points) == 11 and all(point.value is None for point in points)
