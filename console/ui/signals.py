"""Numbers for pages: readings of many services at once, shared for a moment between readers, with unit and doubt.

A page asks for what it shows in one call; the source is asked in parallel and at most once in HOLD_SECONDS.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from console.kit import clock
from console.metrics.choose import counters, source
from console.metrics.source import Growth, Indicator, NoData, Point, ProviderError, Query, Reading, Value
from console.ui.words import percent

HOLD_SECONDS = 2.0
_KEPT = 4000
_MISSING = "–"

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as a page prints it. known False: there is none now; `why` says the reason, `detail` the error."""

    text: str
    unit: str = ""
    known: bool = True
    failed: bool = False
    why: str = ""
    detail: str = ""
    value: float | None = None


class Span(NamedTuple):
    """The last `seconds` in `points` equal steps."""

    seconds: float
    points: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """at: the end of the window, in seconds since the epoch; None is now."""

    query: Query
    span: Span | None
    at: float | None = None


class _Shelf:
    """Answers held for a moment. Two readers of one page cost one question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, object], tuple[float, object]] = {}
        self._failed: dict[str, tuple[float, ProviderError]] = {}

    def get(self, key: tuple[str, object]) -> object | None:
        with self._lock:
            at, answer = self._held.get(key, (-math.inf, None))
        return answer if time.monotonic() - at < HOLD_SECONDS else None

    def put(self, key: tuple[str, object], answer: object) -> None:
        with self._lock:
            if len(self._held) >= _KEPT:
                self._held.clear()
            self._held[key] = (time.monotonic(), answer)
            if isinstance(answer, ProviderError):
                self._failed[key[0]] = (time.monotonic(), answer)

    def failure(self, source_id: str) -> ProviderError | None:
        """What the source last failed with, while that is news; asking again at once would only wait again."""
        with self._lock:
            at, answer = self._failed.get(source_id, (-math.inf, None))
        return answer if time.monotonic() - at < HOLD_SECONDS else None

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._failed.clear()


shelf = _Shelf()
_pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="signals")


def readings(queries: Iterable[Query], *, at: float | None = None) -> dict[Query, Reading]:
    """at: as it was then."""
    asked = [_Asked(query, None, at) for query in queries]
    return {one.query: answer for one, answer in zip(asked, _all(_read, asked), strict=True)}


def histories(queries: Iterable[Query], span: Span) -> dict[Query, list[Point]]:
    """Points of each query, empty when the source gives no answer."""
    asked = [_Asked(query, span) for query in queries]
    return {one.query: answer for one, answer in zip(asked, _all(_history, asked), strict=True)}


# metric, service, label to add up by ("" for all)
Counted = tuple[str, str, str]


def growths(
    keys: Iterable[Counted], *, window_seconds: float
) -> dict[Counted, Growth | NoData | ProviderError]:
    """How plain counters grew until now, asked in parallel and held for a moment as the others are."""
    wanted = list(keys)
    return dict(zip(wanted, _all(lambda key: _growth(key, window_seconds), wanted), strict=True))


def _growth(key: Counted, window_seconds: float) -> Growth | NoData | ProviderError:
    chosen = counters()
    held_as = (_identity(chosen), (key, window_seconds))
    held = shelf.get(held_as)
    if isinstance(held, Growth | NoData | ProviderError):
        return held
    if failure := shelf.failure(held_as[0]):
        return failure
    metric, service, by = key
    answer = chosen.growth(metric, service, by=by, window_seconds=window_seconds)
    shelf.put(held_as, answer)
    return answer


def _all(ask: Callable[[A], T], asked: list[A]) -> list[T]:
    """The first alone: when the source is away, the page waits for one attempt and not for each."""
    return [ask(asked[0]), *_pool.map(ask, asked[1:])] if asked else []


def _read(asked: _Asked) -> Reading:
    chosen = source()
    key = (_identity(chosen), asked)
    held = shelf.get(key)
    if isinstance(held, Value | NoData | ProviderError):
        return held
    if failure := shelf.failure(key[0]):
        return failure
    answer = chosen.read(asked.query, at=asked.at)
    shelf.put(key, answer)
    return answer


def _history(asked: _Asked) -> list[Point]:
    assert asked.span is not None
    chosen = source()
    key = (_identity(chosen), asked)
    held = shelf.get(key)
    if isinstance(held, list):
        return held
    if shelf.failure(key[0]):
        return []
    step = asked.span.seconds / asked.span.points
    # Whole steps, so that the bars of a strip do not wander between two looks.
    end = math.floor(clock.now().timestamp() / step) * step
    start = end - (asked.span.points - 1) * step
    answer = chosen.series(asked.query, start=start, end=end, step_seconds=step)
    shelf.put(key, answer)
    return answer if isinstance(answer, list) else []


def _identity(chosen: object) -> str:
    return f"{type(chosen).__name__}:{id(chosen)}"


def figure(indicator: Indicator, reading: Reading | None) -> Figure:
    match reading:
        case Value():
            return in_words(indicator, reading.value)
        case NoData():
            return Figure(_MISSING, known=False, why=reading.reason)
        case ProviderError():
            return Figure(
                "?", known=False, failed=True, why=f"no answer from {reading.source}", detail=reading.reason
            )
        case None:
            return Figure(_MISSING, known=False, why="not measured")


def in_words(indicator: Indicator, value: float) -> Figure:
    """The value with the unit people read: ms, %, per second."""
    match indicator:
        case Indicator.ERROR_RATIO:
            return Figure(percent(value), "%", value=value)
        case Indicator.REQUEST_RATE | Indicator.REFUSED_RATE:
            text = (
                f"{value:.0f}"
                if value >= 100
                else f"{value:.1f}"
                if value >= 1 or value == 0
                else f"{value:.2f}"
            )
            return Figure(text, "/s", value=value)
        case Indicator.REQUESTS:
            return Figure(f"{value:,.0f}", value=value)
        case _:
            return Figure(f"{value:.0f}" if value >= 10 else f"{value:.1f}", "ms", value=value)


def added(found: Iterable[Reading]) -> Figure:
    """Rates of several services together; unknown when any part failed, for a sum with a hole is a lie."""
    total, known = 0.0, False
    for reading in found:
        if isinstance(reading, ProviderError):
            return figure(Indicator.REQUEST_RATE, reading)
        if isinstance(reading, Value):
            total, known = total + reading.value, True
    if not known:
        return Figure(_MISSING, known=False, why="no requests were counted")
    return in_words(Indicator.REQUEST_RATE, total)


def error_ratio_of(found: Iterable[Reading]) -> Figure:
    """Error ratios of several services, each weighed by its requests."""
    errors = requests = 0.0
    for reading in found:
        if isinstance(reading, ProviderError):
            return figure(Indicator.ERROR_RATIO, reading)
        if isinstance(reading, Value):
            errors, requests = errors + reading.value * reading.requests, requests + reading.requests
    if requests == 0:
        return Figure(_MISSING, known=False, why="no requests were counted")
    return in_words(Indicator.ERROR_RATIO, errors / requests)


def slowest(found: dict[str, Reading]) -> tuple[Figure, str]:
    """The highest p95 and whose it is: percentiles of several services cannot be averaged."""
    known = {name: reading for name, reading in found.items() if isinstance(reading, Value)}
    if not known:
        failed = next((reading for reading in found.values() if isinstance(reading, ProviderError)), None)
        return figure(Indicator.LATENCY_P95, failed), ""
    name = max(known, key=lambda one: known[one].value)
    return in_words(Indicator.LATENCY_P95, known[name].value), name
