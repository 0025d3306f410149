import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inference.plane.metrics import Gauge, Histogram, Meters
from tests.plane.parts import Node


def filled() -> Meters:
    meters = Meters()
    meter = meters.version("file-type", 2)
    for seconds in (0.0001, 0.003, 0.2, 60.0):
        meter.answered("acme", "http", 200, seconds)
    meter.answered("acme", "http", 500, 0.1)
    meter.ran(4, 1000, 2_000_000, 1000)
    meters.outside["globex", "file-type", "http", 429] += 2
    meters.refused["globex", "file-type", "rate"] += 2
    return meters


def test_the_exposition_parses_and_says_the_same_as_the_sample() -> None:
    meters = filled()
    gauge = Gauge("pilothouse_worker_up", "help", (({"service": 'a"b\\c'}, 1),))
    parsed = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(meters.exposition([gauge]).decode())
        for sample in family.samples
    }
    told = {(series.name, tuple(sorted(series.labels.items()))): series.value for series in meters.series()}
    assert told.items() <= parsed.items()
    assert set(parsed) - set(told) == {("pilothouse_worker_up", (("service", 'a"b\\c'),))}


def test_a_histogram_counts_up_to_and_including_each_bound() -> None:
    histogram = Histogram((1, 2, 4))
    for value in (0.5, 1, 1.5, 4, 9):
        histogram.observe(value)
    assert histogram.counts == [2, 1, 1, 1] and histogram.sum == 16


def test_there_are_enough_buckets_from_half_a_millisecond_to_ten_seconds() -> None:
    bounds = filled().version("file-type", 2).duration.bounds
    assert len(bounds) >= 14 and bounds[0] == 0.0005 and bounds[-1] == 10.0


def test_a_version_long_gone_loses_its_series_and_a_used_one_never() -> None:
    meters = filled()
    for now in (0.0, 800.0):
        meters.retire(set(), now)
    assert ("file-type", 2) in meters.versions
    meters.retire({("file-type", 2)}, 850.0)
    meters.retire(set(), 900.0)
    meters.retire(set(), 1700.0)
    assert ("file-type", 2) in meters.versions
    meters.retire(set(), 1801.0)
    assert meters.versions == {}


@pytest.mark.parametrize("path", ["/v2/models/invented-{}/infer", "/v2/models/mlp/versions/7{}/infer"])
def test_names_that_clients_invent_never_become_labels(shared_node: Node, path: str) -> None:
    for number in range(5):
        assert shared_node.request("POST", path.format(number), b"{}").status == 404
    text = shared_node.request("GET", "/metrics", key=None).body.decode()
    assert "invented" not in text
    versions = re.findall(r'requests_total\{[^}]*version="([^"]*)"', text)
    assert set(versions) <= {"", "1"}
