"""The signal source without Prometheus: the nodes' own counters, sampled every two seconds into a Redis stream."""

import math
from collections import defaultdict
from collections.abc import Callable

import redis

from console.kit import clock
from console.metrics import promql
from console.metrics.histogram import bound_of, histogram_quantile
from console.metrics.source import (
    MAX_POINTS,
    Growth,
    Indicator,
    NoData,
    Point,
    ProviderError,
    Query,
    Reading,
    Sampling,
    Value,
)
from console.metrics.tape import SAMPLES_KEY, STALE_SECONDS, SeriesKey, Shape, Tape, increases

_LATENCIES = frozenset({*promql.QUANTILES, Indicator.SLOW_SHARE})


class _Selection:
    """The counters a query is about; each shape is searched once."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._by_shape: dict[int, list[SeriesKey]] = {}
        latency = query.indicator in _LATENCIES
        self._metrics = {promql.BUCKETS, promql.COUNT} if latency else {promql.REQUESTS}
        if query.indicator is Indicator.AGREEMENT:
            self._metrics = {promql.COMPARED}
        if query.indicator is Indicator.REFUSED_RATE:
            self._metrics.add(promql.REFUSED)
        self._tenant = None if latency else query.tenant

    def __call__(self, shape: Shape) -> list[SeriesKey]:
        keys = self._by_shape.get(id(shape))
        if keys is None:
            keys = self._by_shape[id(shape)] = [key for key in shape.index if self._matches(key)]
        return keys

    def _matches(self, key: SeriesKey) -> bool:
        if key.name not in self._metrics or key.label("service") != self._query.service:
            return False
        if self._query.indicator is Indicator.REFUSED_RATE:
            is_of_limit = self._query.limit in (None, key.label("limit")) or key.name == promql.REQUESTS
            return is_of_limit and self._is_of_tenant(key)
        version = key.label("version")
        if self._query.version is None:
            return version != "" and self._is_of_tenant(key)
        return version == str(self._query.version) and self._is_of_tenant(key)

    def _is_of_tenant(self, key: SeriesKey) -> bool:
        return self._tenant is None or key.label("tenant") == self._tenant


class EmbeddedSource:
    """Answers from the counter stream; staleness and silence are NoData, an unreachable Redis is ProviderError."""

    name = "embedded"

    def __init__(self, redis_url: str, *, key: str = SAMPLES_KEY) -> None:
        client = redis.Redis.from_url(redis_url, socket_timeout=3, socket_connect_timeout=2)
        self._tape = Tape(client, key)

    def read(self, query: Query, *, at: float | None = None) -> Reading:
        at = clock.now().timestamp() if at is None else at
        try:
            self._tape.follow()
        except (redis.RedisError, OSError) as error:
            return ProviderError(
                f"the sample stream cannot be read: {error}"[:300], at, self.name, _text(query)
            )
        with self._tape.lock:
            return self._reading(query, _Selection(query), at)

    def ask(self, text: str, *, at: float | None = None) -> Sampling:
        at = clock.now().timestamp() if at is None else at
        return ProviderError("PromQL needs a Prometheus server; none is configured", at, self.name, text)

    def series(
        self, query: Query, *, start: float, end: float, step_seconds: float
    ) -> list[Point] | ProviderError:
        try:
            self._tape.follow()
        except (redis.RedisError, OSError) as error:
            return ProviderError(
                f"the sample stream cannot be read: {error}"[:300], end, self.name, _text(query)
            )
        selection = _Selection(query)
        count = min(MAX_POINTS, int((end - start) // step_seconds) + 1)
        points = []
        with self._tape.lock:
            for index in range(count):
                at = start + index * step_seconds
                reading = self._reading(query, selection, at)
                points.append(Point(at, reading.value if isinstance(reading, Value) else None))
        return points

    def growth(
        self, metric: str, service: str, *, by: str, window_seconds: float = 60.0, at: float | None = None
    ) -> Growth | NoData | ProviderError:
        at = clock.now().timestamp() if at is None else at
        text = f"growth of {metric}(service={service}){f' by {by}' if by else ''} over {window_seconds:g} s"
        try:
            self._tape.follow()
        except (redis.RedisError, OSError) as error:
            return ProviderError(f"the sample stream cannot be read: {error}"[:300], at, self.name, text)
        found: dict[str, float] = defaultdict(float)
        with self._tape.lock:
            newest = self._tape.newest_before(at)
            if newest is None or at - newest > STALE_SECONDS:
                return NoData("no node has reported", at, self.name, text)
            for key, grown in increases(self._tape, at - window_seconds, at, _counters_of(metric, service)):
                found[key.label(by) if by else ""] += grown
        if not found:
            return NoData(f"nothing was counted for {service}", at, self.name, text)
        return Growth(dict(found), at, self.name, text)

    def level(self, metric: str, service: str, *, at: float | None = None) -> float | NoData | ProviderError:
        at = clock.now().timestamp() if at is None else at
        text = f"highest {metric}(service={service})"
        try:
            self._tape.follow()
        except (redis.RedisError, OSError) as error:
            return ProviderError(f"the sample stream cannot be read: {error}"[:300], at, self.name, text)
        keys_of = _counters_of(metric, service)
        with self._tape.lock:
            newest = (timeline.around(at)[0] for timeline in self._tape.timelines())
            fresh = [frame for frame in newest if frame is not None and at - frame.at <= STALE_SECONDS]
            values = [frame.value(key) for frame in fresh for key in keys_of(frame.shape)]
        if not values:
            return NoData(f"no node has reported {metric} of {service}", at, self.name, text)
        return max(values)

    def _reading(
        self, query: Query, keys_of: Callable[[Shape], list[SeriesKey]], at: float
    ) -> Value | NoData:
        def no_data(reason: str) -> NoData:
            return NoData(reason, at, self.name, _text(query))

        newest = self._tape.newest_before(at)
        if newest is None:
            return no_data("no node has reported")
        if at - newest > STALE_SECONDS:
            return no_data(f"no node has reported for {at - newest:.0f} s")
        subject = query.service if query.version is None else f"{query.service} version {query.version}"
        grown = list(increases(self._tape, at - query.window_seconds, at, keys_of))
        if not grown:
            return no_data(f"nothing was counted for {subject}")
        value, requests_seen = _compute(query, grown)
        if math.isnan(value):
            return no_data(f"no requests in the last {query.window_seconds:g} s for {subject}")
        return Value(value, requests_seen, at, self.name, _text(query))


def _counters_of(metric: str, service: str) -> Callable[[Shape], list[SeriesKey]]:
    return lambda shape: [
        key for key in shape.index if key.name == metric and key.label("service") == service
    ]


def _compute(query: Query, grown: list[tuple[SeriesKey, float]]) -> tuple[float, float]:
    """(value, requests it rests on); the value is NaN when nothing was counted in the window."""
    match query.indicator:
        case Indicator.REQUESTS | Indicator.REQUEST_RATE:
            total = sum(growth for _, growth in grown)
            return (total if query.indicator is Indicator.REQUESTS else total / query.window_seconds), total
        case Indicator.REFUSED_RATE:
            # Requests are among the keys so that none refused is 0, and no counter at all is no data.
            refused = sum(growth for key, growth in grown if key.name == promql.REFUSED)
            return refused / query.window_seconds, refused
        case Indicator.ERROR_RATIO:
            answers = sum(growth for key, growth in grown if not key.label("code").startswith("4"))
            errors = sum(growth for key, growth in grown if key.label("code").startswith("5"))
            return (errors / answers if answers > 0 else math.nan), answers
        case Indicator.AGREEMENT:
            compared = sum(g for key, g in grown if key.label("agreement") in ("agree", "disagree"))
            agreed = sum(growth for key, growth in grown if key.label("agreement") == "agree")
            return (agreed / compared if compared > 0 else math.nan), compared
        case Indicator.SLOW_SHARE:
            bound = bound_of(query.objective_ms or 0.0)
            count = sum(growth for key, growth in grown if key.name == promql.COUNT)
            quick = sum(
                g for key, g in grown if key.name == promql.BUCKETS and float(key.label("le")) == bound
            )
            return (max(0.0, 1.0 - quick / count) if count > 0 else math.nan), count
        case _:
            return _latency(promql.QUANTILES[query.indicator], grown)


def _latency(quantile: float, grown: list[tuple[SeriesKey, float]]) -> tuple[float, float]:
    buckets: dict[float, float] = defaultdict(float)
    count = 0.0
    for key, growth in grown:
        if key.name == promql.COUNT:
            count += growth
        else:
            buckets[float(key.label("le"))] += growth
    return 1000 * histogram_quantile(quantile, buckets.items()), count


def _text(query: Query) -> str:
    """The query in a person's words; there is no query language here to paste it into."""
    labels = [f"service={query.service}"]
    if query.version is not None:
        labels.append(f"version={query.version}")
    if query.limit is not None:
        labels.append(f"limit={query.limit}")
    if query.tenant is not None:
        labels.append(f"tenant={query.tenant}")
    return f"{query.indicator.value}({', '.join(labels)}) over {query.window_seconds:g} s"
