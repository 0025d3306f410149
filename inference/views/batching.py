"""The batching panel of a service: sizes of its batches, why they were sent, and where its time went."""

from dataclasses import dataclass

from console.metrics.choose import counters
from console.metrics.source import Growth, NoData, ProviderError
from console.ui import signals
from console.ui.board import Mark
from console.ui.signals import Figure

WINDOW_SECONDS = 300.0
_SIZES = ("pilothouse_batch_size_bucket", "le")
_REASONS = ("pilothouse_batch_dispatch_total", "reason")
_TIMES = {
    name: (f"pilothouse_{name}_duration_seconds_sum", f"pilothouse_{name}_duration_seconds_count")
    for name in ("queue", "inference")
}
# As the batcher counts them -> as a page says it.
WORDS = {
    "idle": "a worker was idle",
    "full": "the batch was full",
    "timer": "the wait was over",
    "deadline": "a deadline came near",
    "key_change": "the next request did not fit beside it",
    "drain": "the version was draining",
}
# Steps of the overload ladder (inference.plane.governor), each with those below it.
STEPS = (
    ("ok", "as usual"),
    ("warn", "overloaded: no waiting for a fuller batch"),
    ("warn", "overloaded: smaller batches"),
    ("warn", "overloaded: sheds what matters least"),
    ("fail", "overloaded: refuses what it cannot answer in time"),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a histogram. percent: of all; width: of the longest bar, for drawing."""

    label: str
    count: float
    percent: float
    width: float


@dataclass(frozen=True, slots=True)
class Batching:
    """why: empty, or why there is nothing to show. queue_percent: of the mean time of one request and its run."""

    sizes: list[Bar]
    reasons: list[Bar]
    queue: Figure
    inference: Figure
    queue_percent: int | None
    step: Mark
    why: str = ""


def batching_of(service: str) -> Batching:
    """Of the last five minutes, all versions and workers together."""
    keys = [(metric, service, label) for metric, label in (_SIZES, _REASONS)]
    keys += [(metric, service, "") for pair in _TIMES.values() for metric in pair]
    found = signals.growths(keys, window_seconds=WINDOW_SECONDS)
    sizes = _sizes(found[keys[0]])
    times = {name: _mean(*(found[metric, service, ""] for metric in pair)) for name, pair in _TIMES.items()}
    queue, inference = times["queue"], times["inference"]
    share = None
    if queue is not None and inference is not None and queue + inference > 0:
        share = round(100 * queue / (queue + inference))
    return Batching(
        sizes,
        _reasons(found[keys[1]]),
        _milliseconds(queue),
        _milliseconds(inference),
        share,
        step_of(counters().level("pilothouse_degradation_step", service)),
        "" if sizes else _why(found[keys[0]]),
    )


def step_of(level: float | NoData | ProviderError) -> Mark:
    """How far the overload ladder is climbed, at its worst place."""
    if not isinstance(level, float):
        return Mark("unknown", "not reported")
    role, words = STEPS[min(max(int(level), 0), len(STEPS) - 1)]
    return Mark(role, words if int(level) == 0 else f"step {int(level)} of {len(STEPS) - 1}, {words}")


def _sizes(found: Growth | NoData | ProviderError) -> list[Bar]:
    """Buckets are cumulative; each bar is what lies between two bounds."""
    if not isinstance(found, Growth):
        return []
    bounds = sorted(found.by, key=float)
    counts, below, lower = [], 0.0, 0
    for bound in bounds:
        here = max(found.by[bound] - below, 0.0)
        below = found.by[bound]
        top = float(bound)
        if top == float("inf"):
            label = f"over {lower}"
        else:
            label = f"{top:g}" if top - lower <= 1 else f"{lower + 1} to {top:g}"
            lower = int(top)
        counts.append((label, here))
    return _bars([(label, count) for label, count in counts if count > 0])


def _reasons(found: Growth | NoData | ProviderError) -> list[Bar]:
    if not isinstance(found, Growth):
        return []
    ranked = sorted(found.by.items(), key=lambda item: -item[1])
    return _bars([(WORDS.get(name, name.replace("_", " ")), count) for name, count in ranked if count > 0])


def _bars(counts: list[tuple[str, float]]) -> list[Bar]:
    total, top = sum(count for _, count in counts), max((count for _, count in counts), default=0.0)
    return [Bar(label, count, 100 * count / total, round(100 * count / top, 1)) for label, count in counts]


def _mean(total: Growth | NoData | ProviderError, count: Growth | NoData | ProviderError) -> float | None:
    """Seconds for each; None when nothing was counted."""
    if not (isinstance(total, Growth) and isinstance(count, Growth)):
        return None
    times = sum(count.by.values())
    return sum(total.by.values()) / times if times > 0 else None


def _milliseconds(seconds: float | None) -> Figure:
    if seconds is None:
        return Figure("–", known=False, why="no batch in the last 5 min")
    value = seconds * 1000
    return Figure(f"{value:.2f}" if value < 10 else f"{value:.0f}", "ms", value=value)


def _why(found: Growth | NoData | ProviderError) -> str:
    if isinstance(found, ProviderError):
        return f"No answer from {found.source}: {found.reason}."
    return "No batch was run in the last 5 min."
