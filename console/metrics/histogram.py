"""`histogram_quantile` as Prometheus computes it, so that both sources agree on a latency."""

import math
from bisect import bisect_left
from collections.abc import Iterable

# Upper bounds in seconds of pilothouse_request_duration_seconds, as inference.plane.metrics counts it.
BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


def bound_of(objective_ms: float) -> float:
    """The first bound at or above an objective; above the last one, the last."""
    return BOUNDS[min(bisect_left(BOUNDS, objective_ms / 1e3), len(BOUNDS) - 1)]


def histogram_quantile(quantile: float, buckets: Iterable[tuple[float, float]]) -> float:
    """The quantile, interpolated linearly inside its bucket; NaN when there is nothing to say.

    buckets: (upper bound, cumulative count). Source: prometheus/promql/quantile.go, bucketQuantile.
    """
    ordered = _monotonic(sorted(buckets))
    if len(ordered) < 2 or not math.isinf(ordered[-1][0]):
        return math.nan
    total = ordered[-1][1]
    if total == 0:
        return math.nan
    rank = quantile * total
    index = next(index for index, (_, count) in enumerate(ordered) if count >= rank)
    upper, count = ordered[index]
    if index == len(ordered) - 1:
        return ordered[-2][0]
    if index == 0 and upper <= 0:
        return upper
    lower, below = (0.0, 0.0) if index == 0 else ordered[index - 1]
    if count == below:
        return upper
    return lower + (upper - lower) * (rank - below) / (count - below)


def _monotonic(buckets: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Counts that never fall: buckets of one histogram may be read or extrapolated unevenly."""
    highest = 0.0
    result = []
    for upper, count in buckets:
        highest = max(highest, count)
        result.append((upper, highest))
    return result
