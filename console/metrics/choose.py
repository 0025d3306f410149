"""Which signal source this installation uses."""

from functools import lru_cache

from django.conf import settings

from console.metrics.embedded import EmbeddedSource
from console.metrics.prometheus import PrometheusSource
from console.metrics.source import CounterSource, SignalSource


def source() -> SignalSource:
    """Prometheus where PROMETHEUS_URL names one, else the nodes' own counters. One for the whole process."""
    return _source(settings.PROMETHEUS_URL, settings.REDIS_URL)


def counters() -> CounterSource:
    """The same source, asked for plain counters."""
    return _source(settings.PROMETHEUS_URL, settings.REDIS_URL)


@lru_cache(maxsize=4)
def _source(prometheus_url: str, redis_url: str) -> PrometheusSource | EmbeddedSource:
    if prometheus_url:
        return PrometheusSource(prometheus_url)
    return EmbeddedSource(redis_url)
