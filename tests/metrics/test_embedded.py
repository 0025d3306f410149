"""The embedded source: windows, restarts, newborn series, silence."""

import math
import time

import pytest

from console.metrics.embedded import EmbeddedSource
from console.metrics.histogram import histogram_quantile
from console.metrics.source import Growth, Indicator, NoData, ProviderError, Query, Reading, Value
from tests.metrics.recorded import Plane, Recording
from tests.services.redis import RedisServer

# In the past, so that Redis accepts every entry's id, whatever other tests write later.
NOW = float(int(time.time()) - 7200)


class Tape:
    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.recording = Recording()
        self.source = EmbeddedSource(server.url)

    def say(self, plane: Plane, seconds_ago: float) -> None:
        self.recording.take(plane, NOW - seconds_ago)

    def read(
        self,
        indicator: Indicator = Indicator.REQUESTS,
        *,
        version: int = 2,
        window: float = 60,
        ago: float = 0,
    ) -> Reading:
        self.recording.samples.sort(key=lambda sample: sample[0])
        self.recording.into_redis(self.server.client)
        self.recording.samples.clear()
        query = Query(indicator, "file-type", version, window_seconds=window)
        return self.source.read(query, at=NOW - ago)

    def value(
        self,
        indicator: Indicator = Indicator.REQUESTS,
        *,
        version: int = 2,
        window: float = 60,
        ago: float = 0,
    ) -> float:
        reading = self.read(indicator, version=version, window=window, ago=ago)
        assert isinstance(reading, Value), reading
        return reading.value


@pytest.fixture
def tape(redis_server: RedisServer) -> Tape:
    return Tape(redis_server)


def test_growth_is_counted_over_the_window_only(tape: Tape) -> None:
    plane = Plane()
    for ago, times in ((24, 7), (12, 5), (2, 3)):
        plane.answer("file-type", 2, times=times)
        tape.say(plane, ago)
    assert tape.value(window=10) == 3
    assert tape.value(window=20) == 8


def test_a_long_silence_is_a_straight_line_so_that_its_growth_is_not_counted_at_once(tape: Tape) -> None:
    plane = Plane()
    tape.say(plane, 100)
    plane.answer("file-type", 2, times=100)
    tape.say(plane, 0)
    assert tape.value(window=20) == pytest.approx(20)


def test_neighbouring_windows_add_up(tape: Tape) -> None:
    plane = Plane()
    for ago in range(60, -1, -2):
        plane.answer("file-type", 2, times=3)
        tape.say(plane, ago)
    whole = tape.value(window=40)
    assert whole == tape.value(window=20) + tape.value(window=20, ago=20) == 60


def test_a_restarted_plane_begins_at_0_and_loses_nothing(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 2, times=1000)
    tape.say(plane, 12)
    plane.answer("file-type", 2, times=10)
    tape.say(plane, 10)
    plane.restart()
    plane.answer("file-type", 2, times=4)
    tape.say(plane, 8)
    assert tape.value(window=11) == 14


def test_planes_and_nodes_are_summed(tape: Tape) -> None:
    planes = [Plane("a:1", "node-1"), Plane("b:1", "node-2")]
    for ago in (16, 2):
        for plane in planes:
            plane.answer("file-type", 2, times=5)
            tape.say(plane, ago)
    assert tape.value(window=10) == 10


def test_a_series_born_in_the_window_counts_from_0(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 2)
    tape.say(plane, 15)
    plane.answer("file-type", 2, code=500, times=9)
    tape.say(plane, 2)
    assert tape.value(Indicator.ERROR_RATIO, window=20) == 1.0
    assert tape.value(Indicator.REQUESTS, window=20) == 9


def test_what_a_plane_counted_before_the_tape_began_is_not_counted(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 2, times=100_000)
    tape.say(plane, 10)
    plane.answer("file-type", 2, times=3)
    tape.say(plane, 2)
    assert tape.value(window=60) == 3


def test_a_clients_own_mistakes_are_no_errors_and_no_answers(tape: Tape) -> None:
    plane = Plane()
    tape.say(plane, 15)
    for code, times in ((200, 6), (500, 2), (503, 1), (400, 50), (429, 50)):
        plane.answer("file-type", 2, code=code, times=times)
    tape.say(plane, 1)
    reading = tape.read(Indicator.ERROR_RATIO)
    assert isinstance(reading, Value)
    assert reading.value == pytest.approx(3 / 9) and reading.requests == 9


def test_versions_and_services_are_kept_apart(tape: Tape) -> None:
    plane = Plane()
    tape.say(plane, 15)
    plane.answer("file-type", 1, times=10)
    plane.answer("file-type", 2, times=3)
    plane.answer("another", 2, times=100)
    tape.say(plane, 1)
    assert (tape.value(version=1), tape.value(version=2)) == (10, 3)
    reading = tape.source.read(Query(Indicator.REQUESTS, "file-type", None, window_seconds=60), at=NOW)
    assert isinstance(reading, Value) and reading.value == 13


def test_latency_is_interpolated_inside_its_bucket(tape: Tape) -> None:
    plane = Plane()
    tape.say(plane, 15)
    plane.answer("file-type", 2, times=90, seconds=0.02)
    plane.answer("file-type", 2, times=10, seconds=0.2)
    tape.say(plane, 1)
    reading = tape.read(Indicator.LATENCY_P95)
    assert isinstance(reading, Value)
    assert reading.value == pytest.approx(175.0) and reading.requests == 100


def test_silence_of_every_node_is_no_data(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 2)
    tape.say(plane, 16)
    reading = tape.read()
    assert isinstance(reading, NoData) and reading.reason == "no node has reported for 16 s"


def test_an_empty_tape_is_no_data(tape: Tape) -> None:
    reading = tape.read()
    assert isinstance(reading, NoData) and reading.reason == "no node has reported"


def test_a_version_nobody_asked_is_no_data_and_never_0(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 1)
    tape.say(plane, 5)
    tape.say(plane, 1)
    reading = tape.read()
    assert isinstance(reading, NoData) and "nothing was counted for file-type version 2" in reading.reason


def test_a_version_without_requests_in_the_window_has_no_error_ratio(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 2, times=5)
    tape.say(plane, 14)
    tape.say(plane, 1)
    reading = tape.read(Indicator.ERROR_RATIO, window=10)
    assert isinstance(reading, NoData) and reading.reason.startswith("no requests in the last 10 s")
    assert tape.value(Indicator.REQUESTS, window=10) == 0


def test_entries_of_another_form_are_passed_over(tape: Tape) -> None:
    plane = Plane()
    tape.say(plane, 12)
    tape.read()
    for raw in (b"", b"{}", b"[1]", b'{"node": 3}', b"\xff"):
        tape.server.client.xadd("ph:samples", {"sample": raw}, id=f"{int((NOW - 10) * 1000)}-*")
    tape.server.client.xadd("ph:samples", {"other": b"x"}, id=f"{int((NOW - 9) * 1000)}-0")
    plane.answer("file-type", 2, times=4)
    tape.say(plane, 2)
    assert tape.value(window=10) == 4


def test_a_redis_that_is_away_is_a_provider_error(tape: Tape, redis_server: RedisServer) -> None:
    plane = Plane()
    plane.answer("file-type", 2)
    tape.say(plane, 1)
    tape.value(Indicator.REQUESTS)
    redis_server.stop()
    assert isinstance(tape.source.read(Query(Indicator.REQUESTS, "file-type", 2), at=NOW), ProviderError)
    points = tape.source.series(Query(Indicator.REQUESTS, "file-type"), start=0, end=10, step_seconds=5)
    assert isinstance(points, ProviderError)


def test_a_chart_has_gaps_where_nobody_reported(tape: Tape) -> None:
    plane = Plane()
    for ago in (*range(100, 80, -2), *range(20, -1, -2)):
        plane.answer("file-type", 2, times=2)
        tape.say(plane, ago)
    tape.read()
    query = Query(Indicator.REQUEST_RATE, "file-type", 2, window_seconds=10)
    points = tape.source.series(query, start=NOW - 100, end=NOW, step_seconds=10)
    assert isinstance(points, list)
    assert [point.value is not None for point in points] == [True] * 4 + [False] * 4 + [True] * 3
    assert points[-1].value == 1.0


# Values from Prometheus' own bucketQuantile.
INF = math.inf


@pytest.mark.parametrize(
    ("quantile", "buckets", "expected"),
    [
        (0.5, [(1, 10), (2, 20), (INF, 20)], 1.0),
        (0.75, [(1, 10), (2, 20), (INF, 20)], 1.5),
        (0.95, [(1, 10), (INF, 20)], 1.0),
        (0.5, [(1, 0), (2, 10), (INF, 10)], 1.5),
        (0.5, [(-1, 10), (INF, 10)], -1.0),
        (0.5, [(2, 9), (1, 10), (INF, 12)], 0.6),
        (0.5, [(1, 0), (INF, 0)], math.nan),
        (0.5, [(1, 10), (2, 20)], math.nan),
        (0.5, [(INF, 20)], math.nan),
        (0.5, [], math.nan),
    ],
)  # fmt: skip
def test_quantiles(quantile: float, buckets: list[tuple[float, float]], expected: float) -> None:
    assert histogram_quantile(quantile, buckets) == pytest.approx(expected, nan_ok=True)


def refused(tape: Tape, limit: str | None = None, tenant: str | None = None) -> Reading:
    tape.read()
    return tape.source.read(
        Query(Indicator.REFUSED_RATE, "file-type", tenant=tenant, window_seconds=60, limit=limit), at=NOW
    )


def test_refusals_are_told_by_limit_and_tenant(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 2, times=100)
    tape.say(plane, 62)
    plane.refuse("file-type", "rate", times=60)
    plane.refuse("file-type", "queue", times=30, tenant="globex")
    plane.refuse("other", "rate", times=999)
    tape.say(plane, 50)
    tape.say(plane, 0)
    values = [
        reading.value
        for reading in (
            refused(tape),
            refused(tape, "rate"),
            refused(tape, "queue"),
            refused(tape, None, "globex"),
        )
        if isinstance(reading, Value)
    ]
    assert values == [1.5, 1.0, 0.5, 0.5]
    grown = tape.source.growth("pilothouse_refused_total", "file-type", by="limit", at=NOW)
    assert isinstance(grown, Growth) and grown.by == {"rate": 60, "queue": 30}


def test_none_refused_is_zero_only_where_requests_are_counted(tape: Tape) -> None:
    plane = Plane()
    plane.answer("file-type", 2, times=100)
    tape.say(plane, 62)
    tape.say(plane, 0)
    reading = refused(tape)
    assert isinstance(reading, Value) and reading.value == 0
    assert isinstance(tape.source.read(Query(Indicator.REFUSED_RATE, "unheard"), at=NOW), NoData)
    assert isinstance(tape.source.growth("pilothouse_refused_total", "file-type", by="limit", at=NOW), NoData)
