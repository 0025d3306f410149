"""The console's own metrics, in one registry that any app may add to."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

# route: the name of the URL pattern, never the path, so that labels stay bounded.
REQUESTS = Counter(
    "pilothouse_console_requests",
    "Answers of the console.",
    ["route", "method", "code"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "pilothouse_console_request_duration_seconds",
    "From the first middleware to the last.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
    registry=REGISTRY,
)
LIVE_CONNECTIONS = Gauge(
    "pilothouse_live_connections", "Open WebSockets of the live console.", registry=REGISTRY
)

Samples = Iterable[tuple[Mapping[str, str], float]]


class _ReadOnScrape(Collector):
    """A gauge whose values are read when somebody asks."""

    def __init__(self, name: str, text: str, labels: Sequence[str], read: Callable[[], Samples]) -> None:
        self.name, self.text, self.labels, self.read = name, text, labels, read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [GaugeMetricFamily(self.name, self.text, labels=self.labels)]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        try:
            for labels, value in self.read():
                family.add_metric([labels[name] for name in self.labels], value)
        except Exception as error:  # database or Redis away: the metric is missing, never 0
            log.warning("metric %s not read: %s", self.name, error)
        return [family]


def register_gauge(name: str, text: str, read: Callable[[], Samples], labels: Sequence[str] = ()) -> None:
    """Add a gauge, read at each scrape: read() yields ({label: value}, number). Call it once, in AppConfig.ready."""
    if name not in _registered:
        _registered.add(name)
        REGISTRY.register(_ReadOnScrape(name, text, labels, read))


_registered: set[str] = set()
