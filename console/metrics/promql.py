"""PromQL for each indicator, in the one shape that agrees with the embedded source.

Plain `increase()` misses the first value of a series that is born inside the window, which is exactly where a canary's
first errors are. So every increase here counts a newborn series from 0, as long as its target was scraped before the
window began (else the first value may be hours old).
"""

import json

from console.metrics.histogram import bound_of
from console.metrics.source import Indicator, Query

QUANTILES = {Indicator.LATENCY_P50: 0.5, Indicator.LATENCY_P95: 0.95, Indicator.LATENCY_P99: 0.99}

REQUESTS = "pilothouse_requests_total"
BUCKETS = "pilothouse_request_duration_seconds_bucket"
COUNT = "pilothouse_request_duration_seconds_count"
COMPARED = "pilothouse_shadow_compared_total"
REFUSED = "pilothouse_refused_total"

# How far back a series may have been silent and still be the same one: longer than any gap in scraping we expect.
_MEMORY = "1h"
_SEEN_TARGETS = '{__name__=~"pilothouse_requests_total|pilothouse_worker_up"}'

# Is anything scraped at all right now? A failed scrape marks its series stale at once.
ALIVE = "count(pilothouse_requests_total) or count(pilothouse_worker_up)"


def quote(value: str) -> str:
    """A PromQL string literal. Go's escapes are JSON's, but for surrogate pairs, so those are never written."""
    return json.dumps(value, ensure_ascii=False)


def value_expression(query: Query) -> str:
    """One number, or nothing when the metric does not exist, or NaN when nothing was counted in the window."""
    window = _duration(query.window_seconds)
    match query.indicator:
        case Indicator.REQUESTS:
            return _total(query)
        case Indicator.REQUEST_RATE:
            return f"{_total(query)} / {query.window_seconds:g}"
        case Indicator.REFUSED_RATE:
            return f"{_refused(query)} / {query.window_seconds:g}"
        case Indicator.ERROR_RATIO:
            errors = _increase(REQUESTS, [*_matchers(query), 'code=~"5.."'], window)
            answers = requests_expression(query)
            return f"(sum({errors}) or 0 * {answers}) / {answers}"
        case Indicator.SLOW_SHARE:
            bound = f'le="{bound_of(query.objective_ms or 0.0):g}"'
            quick = _increase(BUCKETS, [*_matchers(query, with_tenant=False), bound], window)
            return f"clamp_min(1 - sum({quick}) / {requests_expression(query)}, 0)"
        case Indicator.AGREEMENT:
            agreed = _increase(COMPARED, [*_matchers(query), 'agreement="agree"'], window)
            compared = requests_expression(query)
            return f"(sum({agreed}) or 0 * {compared}) / {compared}"
        case _:
            buckets = _increase(BUCKETS, _matchers(query, with_tenant=False), window)
            quantile = QUANTILES[query.indicator]
            return f"1000 * histogram_quantile({quantile}, sum by (le) ({buckets}))"


def requests_expression(query: Query) -> str:
    """How many requests the value rests on."""
    window = _duration(query.window_seconds)
    match query.indicator:
        case Indicator.REQUESTS | Indicator.REQUEST_RATE:
            return _total(query)
        case Indicator.REFUSED_RATE:
            return _refused(query)
        case Indicator.ERROR_RATIO:
            answers = _increase(REQUESTS, [*_matchers(query), 'code!~"4.."'], window)
            return f"sum({answers})"
        case Indicator.AGREEMENT:
            compared = _increase(COMPARED, [*_matchers(query), 'agreement=~"agree|disagree"'], window)
            return f"sum({compared})"
        case _:
            return f"sum({_increase(COUNT, _matchers(query, with_tenant=False), window)})"


def _total(query: Query) -> str:
    return f"sum({_increase(REQUESTS, _matchers(query), _duration(query.window_seconds))})"


def _refused(query: Query) -> str:
    """0 where requests are counted and none was refused: a counter is born with its first refusal."""
    window = _duration(query.window_seconds)
    service = [f"service={quote(query.service)}"]
    if query.tenant is not None:
        service.append(f"tenant={quote(query.tenant)}")
    limit = [] if query.limit is None else [f"limit={quote(query.limit)}"]
    refused = _increase(REFUSED, [*service, *limit], window)
    return f"(sum({refused}) or 0 * sum({_increase(REQUESTS, service, window)}))"


def growth_expression(metric: str, service: str, *, by: str, window_seconds: float) -> str:
    grown = _increase(metric, [f"service={quote(service)}"], _duration(window_seconds))
    return f"sum by ({by}) ({grown})" if by else f"sum({grown})"


def _matchers(query: Query, *, with_tenant: bool = True) -> list[str]:
    version = 'version!=""' if query.version is None else f"version={quote(str(query.version))}"
    matchers = [f"service={quote(query.service)}", version]
    if with_tenant and query.tenant is not None:
        matchers.append(f"tenant={quote(query.tenant)}")
    return matchers


def _increase(metric: str, matchers: list[str], window: str) -> str:
    series = f"{metric}{{{','.join(matchers)}}}"
    zero = f"0 * last_over_time({series}[{window}])"
    grown = f"(increase({series}[{window}]) or {zero})"
    newborn = (
        f"(min_over_time({series}[{window}]) unless last_over_time({series}[{_MEMORY}] offset {window}))"
    )
    known_target = f"last_over_time({_SEEN_TARGETS}[{_MEMORY}] offset {window})"
    return f"{grown} + (({newborn} and on (job, instance) {known_target}) or {zero})"


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"
