"""Refused requests for pages: how many a second, by which limit, and that limit as a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

from console.metrics.source import Growth, Indicator, NoData, ProviderError, Query, Value
from console.ui import signals
from console.ui.signals import Figure

METRIC = "pilothouse_refused_total"
WINDOW_SECONDS = 60.0
# The names of limits in refusals -> what they mean to whoever was refused.
LIMITS = {
    "rate": "over the request rate of a quota",
    "concurrency": "over the requests at once of a quota",
    "tokens": "over the tokens of a quota",
    "memory": "over the memory of a quota",
    "queue": "the queue was full",
    "worker": "no worker was ready",
    "deadline": "the deadline could not be met",
    "shed": "shed to protect more important requests",
    "connections": "too many connections",
}
_MOST_NAMED = 3
_MOST_LINES = 2  # beside the line of all


@dataclass(frozen=True, slots=True)
class Refused:
    """sentence: by which limits, the biggest first; empty when none was."""

    figure: Figure
    sentence: str
    role: str = ""


def refused_of(services: Sequence[str]) -> Refused:
    """The last minute of these services together."""
    queries = {name: Query(Indicator.REFUSED_RATE, name) for name in services}
    found = signals.readings(queries.values())
    figure = signals.added(found.values()) if queries else signals.in_words(Indicator.REFUSED_RATE, 0.0)
    if not figure.known or not figure.value:
        return Refused(figure, "")
    hit = [
        name
        for name, query in queries.items()
        if isinstance(reading := found[query], Value) and reading.value > 0
    ]
    rates: dict[str, float] = {}
    for one in signals.growths(
        [(METRIC, name, "limit") for name in hit], window_seconds=WINDOW_SECONDS
    ).values():
        if isinstance(one, Growth):
            for limit, count in one.by.items():
                rates[limit] = rates.get(limit, 0.0) + count / WINDOW_SECONDS
    return Refused(figure, in_words(rates), "warn")


def in_words(rates: dict[str, float]) -> str:
    """`rate 12/s (over the request rate of a quota), queue 0.40/s (the queue was full)`"""
    ranked = sorted(((rate, name) for name, rate in rates.items() if rate > 0), reverse=True)
    parts = []
    for rate, name in ranked[:_MOST_NAMED]:
        shown = signals.in_words(Indicator.REFUSED_RATE, rate)
        parts.append(f"{name} {shown.text}{shown.unit}: {LIMITS.get(name, 'a limit')}")
    if len(ranked) > _MOST_NAMED:
        parts.append(f"and {len(ranked) - _MOST_NAMED} more")
    return "; ".join(parts)


def lines_of(service: str, *, seconds: float) -> list[dict[str, str]]:
    """Lines of a chart: all together, then the limits that refused most in this time."""
    lines = [{"label": "all limits", "ink": "all"}]
    key = (METRIC, service, "limit")
    match signals.growths([key], window_seconds=seconds)[key]:
        case Growth(by=counts):
            ranked = sorted(
                (name for name, count in counts.items() if count > 0), key=lambda name: -counts[name]
            )
        case NoData() | ProviderError():
            ranked = []
    inks = ("canary", "stable")
    return lines + [
        {"label": name, "ink": ink, "limit": name}
        for name, ink in zip(ranked[:_MOST_LINES], inks, strict=False)
    ]
