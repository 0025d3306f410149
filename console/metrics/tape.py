"""The nodes' counter samples, as recorded in a Redis stream and remembered by this process.

The stream is read once and then followed, so a gate that asks every second costs one short read. Each entry's time is
the one Redis gave it: nodes with skewed clocks would each shift the same window.
"""

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import msgspec
import redis

SAMPLES_KEY = "ph:samples"  # the same name in inference.protocol, which stands above this module
KEEP_SECONDS = 24 * 3600.0
STALE_SECONDS = 15.0
_KEPT_METRICS = frozenset(
    {
        "pilothouse_requests_total",
        "pilothouse_request_duration_seconds_bucket",
        "pilothouse_request_duration_seconds_count",
        "pilothouse_shadow_compared_total",
        "pilothouse_refused_total",
        "pilothouse_degradation_step",  # a gauge; read by EmbeddedSource.level alone
        "pilothouse_batch_size_bucket",
        "pilothouse_batch_dispatch_total",
        "pilothouse_queue_duration_seconds_sum",
        "pilothouse_queue_duration_seconds_count",
        "pilothouse_inference_duration_seconds_sum",
        "pilothouse_inference_duration_seconds_count",
    }
)
_PAGE = 500


class _WireSeries(msgspec.Struct):
    name: str
    labels: dict[str, str]
    value: float


class _WireSample(msgspec.Struct):
    """What inference.protocol.CounterSample is on the wire; unknown fields are ignored."""

    node: str
    instance: str
    series: list[_WireSeries]


class SeriesKey(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]

    def label(self, name: str) -> str:
        return next((value for key, value in self.labels if key == name), "")


@dataclass(frozen=True, slots=True)
class Shape:
    """Which series a frame holds; frames of one instance share it until a series is born."""

    index: dict[SeriesKey, int]


@dataclass(frozen=True, slots=True)
class Frame:
    at: float
    shape: Shape
    values: "array[float]"

    def value(self, key: SeriesKey) -> float:
        """A counter that does not exist yet has counted nothing."""
        position = self.shape.index.get(key)
        return 0.0 if position is None else self.values[position]


@dataclass(slots=True)
class Timeline:
    """All frames of one plane process, oldest first."""

    times: list[float] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    def add(self, frame: Frame) -> None:
        self.times.append(frame.at)
        self.frames.append(frame)

    def forget_before(self, at: float) -> None:
        cut = bisect_right(self.times, at)
        del self.times[:cut], self.frames[:cut]

    def around(self, at: float) -> tuple[Frame | None, Frame | None]:
        """The last frame not after `at` and the first one after it."""
        position = bisect_right(self.times, at)
        before = self.frames[position - 1] if position else None
        after = self.frames[position] if position < len(self.frames) else None
        return before, after


class Tape:
    """Follows the stream. `follow` raises redis.RedisError when Redis is away; read under `lock`."""

    def __init__(self, client: "redis.Redis", key: str = SAMPLES_KEY) -> None:
        self._client = client
        self._key = key
        self.lock = threading.RLock()
        self._last_id = "0-0"
        self._shapes: dict[tuple[SeriesKey, ...], Shape] = {}
        self._keys: dict[SeriesKey, SeriesKey] = {}
        self._timelines: dict[tuple[str, str], Timeline] = {}
        self._first_at = float("inf")
        self._decoder = msgspec.json.Decoder(_WireSample)

    def follow(self) -> None:
        """Read what was added since the last call."""
        with self.lock:
            while True:
                entries: list[tuple[bytes, dict[bytes, bytes]]]
                # The client types every answer it might ever give; without decode_responses it is this one.
                entries = cast(Any, self._client).xrange(self._key, min=f"({self._last_id}", count=_PAGE)
                for entry_id, fields in entries:
                    self._take(entry_id.decode(), fields.get(b"sample", b""))
                if len(entries) < _PAGE:
                    return

    def timelines(self) -> list[Timeline]:
        return list(self._timelines.values())

    def covers(self, at: float) -> bool:
        """Was anything recorded by then? If not, what happened before is unknown."""
        return self._first_at <= at

    def newest_before(self, at: float) -> float | None:
        """Time of the newest frame of any node, not after `at`."""
        frames = (timeline.around(at)[0] for timeline in self.timelines())
        return max((frame.at for frame in frames if frame is not None), default=None)

    def _take(self, entry_id: str, raw: bytes) -> None:
        self._last_id = entry_id
        try:
            sample = self._decoder.decode(raw)
        except msgspec.MsgspecError:
            return  # another release's entry: skipping it is a gap, and gaps are visible
        at = int(entry_id.split("-")[0]) / 1000
        kept = [series for series in sample.series if series.name in _KEPT_METRICS]
        keys = tuple(self._intern(SeriesKey(s.name, tuple(sorted(s.labels.items())))) for s in kept)
        shape = self._shapes.get(keys)
        if shape is None:
            shape = self._shapes[keys] = Shape({key: position for position, key in enumerate(keys)})
        timeline = self._timelines.setdefault((sample.node, sample.instance), Timeline())
        timeline.add(Frame(at, shape, array("d", (series.value for series in kept))))
        self._first_at = min(self._first_at, at)
        self._forget(at - KEEP_SECONDS)

    def _intern(self, key: SeriesKey) -> SeriesKey:
        return self._keys.setdefault(key, key)

    def _forget(self, before: float) -> None:
        if self._first_at >= before:
            return
        for name in list(self._timelines):
            self._timelines[name].forget_before(before)
            if not self._timelines[name].frames:
                del self._timelines[name]
        self._first_at = min(
            (timeline.times[0] for timeline in self._timelines.values()), default=float("inf")
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """One process's counters at one time: as last reported, or on a straight line across a gap in reporting.

    Being a function of the time alone, it makes neighbouring windows add up.
    """

    before: Frame
    after: Frame | None
    share: float

    def value(self, key: SeriesKey) -> float:
        low = self.before.value(key)
        return low if self.after is None else low + (self.after.value(key) - low) * self.share


def moment(timeline: Timeline, at: float) -> Moment | None:
    """None: the process had not reported by then."""
    before, after = timeline.around(at)
    if before is None:
        return None
    if after is None or after.at - before.at <= STALE_SECONDS:
        return Moment(before, None, 0.0)
    return Moment(before, after, (at - before.at) / (after.at - before.at))


def increases(
    tape: Tape, start: float, end: float, keys_of: Callable[[Shape], list[SeriesKey]]
) -> Iterator[tuple[SeriesKey, float]]:
    """How much each chosen counter of each plane process grew; processes are never mixed, so no reset is guessed.

    A process first seen inside the window counts from 0, unless the tape itself begins there: then its first frame may
    hold hours.
    """
    covered = tape.covers(start)
    for timeline in tape.timelines():
        last = moment(timeline, end)
        if last is None:
            continue
        first = moment(timeline, start)
        if first is None and not covered:
            first = Moment(timeline.frames[0], None, 0.0)
        for key in keys_of(last.before.shape):
            now = last.value(key)
            grown = now - (first.value(key) if first is not None else 0.0)
            # Falling inside one process can only be a reporter's defect; Prometheus' rule, count from 0, is harmless.
            yield key, grown if grown >= 0 else now
