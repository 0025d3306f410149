"""The signal protocol: what any gate, objective, chart or headline may ask, and the three kinds of answer.

A reading is a value, `NoData` or `ProviderError`; a missing metric is never 0. Both sources answer the same indicators
from the same counters, so a verdict does not depend on which one is installed.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

MAX_POINTS = 1000


class Indicator(StrEnum):
    """Counted over requests that reached a version, per `requests_total` and `request_duration_seconds`.

    error_ratio: answers with code 5xx over all answers but refusals of the client's own making (4xx), 0..1.
    refused_rate: requests per second that a limit turned away (`refused_total`), 0 while others are counted.
    latency_*: milliseconds, interpolated inside a histogram bucket as Prometheus' histogram_quantile does.
    slow_share: answers that took longer than `Query.objective_ms`, over all answers, 0..1. The objective counts as the
    next bound of the histogram (histogram.BOUNDS), so that it is a count and no guess.
    agreement: answers of the shadow that agree with the one that was served, over all compared, 0..1.
    """

    REQUESTS = "requests"
    REQUEST_RATE = "request_rate"
    ERROR_RATIO = "error_ratio"
    LATENCY_P50 = "latency_p50_ms"
    LATENCY_P95 = "latency_p95_ms"
    LATENCY_P99 = "latency_p99_ms"
    SLOW_SHARE = "slow_share"
    AGREEMENT = "agreement"
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
    objective_ms: float | None = None
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
class Sampled:
    """What a query in the source's own language found: a number, or the numbers of all series without their labels.

    Of a web request: any JSON value.
    """

    result: Any
    at: float
    source: str
    query: str


Sampling = Sampled | NoData | ProviderError


@dataclass(frozen=True, slots=True)
class Point:
    """value None: a gap."""

    at: float
    value: float | None


class SignalSource(Protocol):
    name: str

    def read(self, query: Query, *, at: float | None = None) -> Reading:
        """The indicator over the window that ends at `at` (default now). Never raises for a far side that is away."""

    def ask(self, text: str, *, at: float | None = None) -> Sampling:
        """A query in PromQL. A source without that language says so as ProviderError. An empty answer is Sampled([]):
        whether that is no data or an answer is for the condition to say."""

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
