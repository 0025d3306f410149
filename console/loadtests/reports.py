"""A load test's report: the figures that the load tool computes from a CSV, and what the page draws of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.loadtests import readings
from console.loadtests.plan import Threshold

# name -> as a page calls it, in the order of the mission: QPS, mean, P50, P95, P99, errors
FIGURES = {
    "qps": "Requests/s",
    "mean": "Mean",
    "p50": "p50",
    "p95": "p95",
    "p99": "p99",
    "max": "Slowest",
    "errors": "Errors",
}
COLUMNS = readings.COLUMNS
_OVER_TIME = ("p50", "p95", "p99", "qps", "errors")
SERIES = (*_OVER_TIME, "distribution")


@dataclass(frozen=True, slots=True)
class Judged:
    """A threshold beside what was measured. value None: nothing was answered, which meets no limit."""

    threshold: Threshold
    value: float | None
    is_met: bool

    @property
    def role(self) -> str:
        return "ok" if self.is_met else "fail"

    @property
    def word(self) -> str:
        return "met" if self.is_met else "missed"

    @property
    def name(self) -> str:
        return f"{self.threshold.figure} {'at least' if self.threshold.is_floor else 'at most'} {self.threshold.text}"

    @property
    def sentence(self) -> str:
        figure, shown = self.threshold.figure, shown_value(self.threshold.figure, self.value)
        if self.value is None:
            return f"{figure} is not known: no request was answered"
        side = "within" if self.is_met else "below" if self.threshold.is_floor else "above"
        return f"{figure} {shown} is {side} the limit {self.threshold.text}"


def of_csv(path: Path, *, columns: Mapping[str, str]) -> dict[str, Any]:
    """Raises Invalid that names the column or row that cannot be read."""
    return readings.report(path, columns)


def value_of(report: Mapping[str, Any], figure: str) -> float | None:
    """In the unit of its thresholds: requests/s, milliseconds, ratio 0..1."""
    if figure == "errors":
        return report["errors"] / report["requests"] if report["requests"] else None
    found = report["qps"] if figure == "qps" else report["latency_ms"].get(figure)
    return None if found is None else float(found)


def judge(report: Mapping[str, Any], limits: list[Threshold]) -> list[Judged]:
    found = []
    for limit in limits:
        value = value_of(report, limit.figure)
        found.append(Judged(limit, value, value is not None and limit.is_met(value)))
    return found


def points(report: Mapping[str, Any] | None, indicator: str) -> list[list[float | None]]:
    """[seconds since the start, value]; of the distribution [milliseconds, percent answered within them]."""
    if report is None:
        return []
    if indicator == "distribution":
        return [list(pair) for pair in report["distribution"]]
    over_time = report["over_time"]
    return [list(pair) for pair in zip(over_time["at"], over_time[indicator], strict=True)]


def shown_value(figure: str, value: float | None) -> str:
    if value is None:
        return "–"
    if figure == "errors":
        return f"{value * 100:.3g} %"
    return f"{value:.1f}/s" if figure == "qps" else f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"
