"""The signal protocol: what any gate, objective, chart or headline may ask, and the three kinds of answer.

A reading is a value, `NoData` or `ProviderError`; a missing metric is never 0. Both sources answer the same indicators
from the same counters, so a verdict does not depend on which one is installed.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MAX_POINTS = 1000


class Indicator(StrEnum):
    """Counted over requests that reached a version, per `requests_total` and `request_duration_seconds`.

    error_ratio: answers with code 5xx over all answers but refusals of the client's own making (4xx), 0..1.
    refused_rate: requests per second that a limit turned away (`refused_total`), 0 while others are counted.
    latency_*: milliseconds, interpolated inside a histogram bucket as Prometheus' histogram_quantile does.
    """

    REQUESTS = "requests"
    REQUEST_RATE = "request_rate"
    ERROR_RATIO = "error_ratio"
    LATENCY_P50 = "latency_p50_ms"
    LATENCY_P95 = "latency_p95_ms"
    LATENCY_P99 = "latency_p99_ms"
    REFUSED_RATE = "refused_rate"


# What a version can be judged by: a refused request reached none.
OF_VERSIONS = tuple(kind for kind in Indicator if kind is not Indicator.REFUSED_RATE)


@dataclass(frozen=True, slots=True)
class Query:
    """version None: all versions together. tenant is honoured by all but latencies.

    limit: of refused_rate only, such as rate or queue; None is all limits. It has no version.
    """

    indicator: Indicator
    service: str
    version: int | None = None
    tenant: str | None = None
    window_seconds: float = 60.0
    limit: str | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """requests: how many requests the value rests on. at: seconds since the epoch, the end of the window."""

    value: float
    requests: float
    at: float
    source: str
    query: str


@dataclass(frozen=True, slots=True)
class NoData:
    reason: str
    at: float
    source: str
    query: str


@dataclass(frozen=True, slots=True)
class ProviderError:
    reason: str
    at: float
    source: str
    query: str


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a counter of a service grew in the window, by the values of one of its labels."""

    by: dict[str, float]
    at: float
    source: str
    query: str


Reading = Value | NoData | ProviderError


@dataclass(frozen=True, slots=True)
class Point:
    """value None: a gap."""

    at: float
    value: float | None


class SignalSource(Protocol):
    name: str

    def read(self, query: Query, *, at: float | None = None) -> Reading:
        """The indicator over the window that ends at `at` (default now). Never raises for a far side that is away."""

    def series(
        self, query: Query, *, start: float, end: float, step_seconds: float
    ) -> list[Point] | ProviderError:
        """The indicator over a sliding window, for charts. At most MAX_POINTS points, one for each step."""


class CounterSource(Protocol):
    """Counters and gauges as they are, for pages that draw a histogram or shares; both sources are one."""

    def growth(
        self, metric: str, service: str, *, by: str, window_seconds: float = 60.0, at: float | None = None
    ) -> Growth | NoData | ProviderError:
        """by: a label's name; empty sums over all series."""

    def level(self, metric: str, service: str, *, at: float | None = None) -> float | NoData | ProviderError:
        """The highest value of a gauge of the service over all nodes and versions, as last reported."""
