"""Rows of a CSV -> figures. Pure."""

import csv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from console.kit.errors import Invalid

COLUMNS = {
    "ts": "when the request was due or sent; seconds, milliseconds, microseconds or nanoseconds since any moment",
    "scenario": "optional; its name",
    "duration_ns": "how long it took, nanoseconds",
    "status": "HTTP or gRPC status, or a word such as ok or timeout",
}
_POINTS = 120


def report(path: Path, columns: Mapping[str, str]) -> dict[str, Any]:
    """The figures of a whole file."""
    times, durations, statuses = _read(path, columns)
    failed = np.array([not _is_good(status) for status in statuses])
    ok = durations[~failed]
    seconds = float((times + durations / 1000).max() - times.min())
    classes = Counter(status for status, bad in zip(statuses, failed, strict=True) if bad)
    return {
        "requests": len(statuses),
        "errors": int(failed.sum()),
        "seconds": seconds,
        "qps": len(ok) / seconds if seconds else 0.0,
        "latency_ms": _latency(ok),
        "error_classes": [{"name": name, "count": count} for name, count in classes.most_common(20)],
        "over_time": _over_time(times, durations, failed, seconds),
        "distribution": _distribution(ok),
    }


def _read(
    path: Path, columns: Mapping[str, str]
) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]", list[str]]:
    at, took, said = (columns.get(name, name) for name in ("ts", "duration_ns", "status"))
    times: list[float] = []
    durations: list[float] = []
    statuses: list[str] = []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.DictReader(file)
        missing = [name for name in (at, took, said) if name not in (rows.fieldnames or [])]
        if missing:
            raise Invalid(
                "The CSV cannot be read.", fields={"columns": f"there is no column {', '.join(missing)}"}
            )
        for number, row in enumerate(rows, start=2):
            try:
                times.append(float(row[at]))
                durations.append(float(row[took]) / 1e6)
            except (TypeError, ValueError):
                raise Invalid(
                    "The CSV cannot be read.", fields={"file": f"line {number} holds no numbers"}
                ) from None
            statuses.append(row[said] or "")
    if not statuses:
        raise Invalid("The CSV cannot be read.", fields={"file": "it has no rows"})
    return _in_seconds(np.array(times)), np.array(durations), statuses


def _in_seconds(times: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    top = times.max()
    unit = 1e9 if top > 1e17 else 1e6 if top > 1e14 else 1e3 if top > 1e11 else 1.0
    shifted: np.ndarray[Any, Any] = (times - times.min()) / unit
    return shifted


def _is_good(status: str) -> bool:
    return status.lower() in ("ok", "0", "true") or (status.isdigit() and 200 <= int(status) < 400)


def _latency(durations: "np.ndarray[Any, Any]") -> dict[str, float | None]:
    if not len(durations):
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    p50, p95, p99 = (float(one) for one in np.percentile(durations, (50, 95, 99)))
    return {
        "mean": float(durations.mean()),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": float(durations.max()),
    }


def _over_time(
    times: "np.ndarray[Any, Any]",
    durations: "np.ndarray[Any, Any]",
    failed: "np.ndarray[Any, Any]",
    seconds: float,
) -> dict[str, list[float | None]]:
    step = max(1.0, np.ceil(seconds / _POINTS))
    found: dict[str, list[float | None]] = {name: [] for name in ("at", "p50", "p95", "p99", "qps", "errors")}
    for begin in np.arange(0.0, max(seconds, step), step):
        inside = (times >= begin) & (times < begin + step)
        good = durations[inside & ~failed]
        found["at"].append(float(begin))
        found["qps"].append(len(good) / step)
        found["errors"].append(float((inside & failed).sum() / step))
        latency = _latency(good)
        for name in ("p50", "p95", "p99"):
            found[name].append(latency[name])
    return found


def _distribution(durations: "np.ndarray[Any, Any]") -> list[tuple[float, float]]:
    """(milliseconds, percent of the good answers within them), on one grid for every report, so that two can be laid
    over each other: each step is a twentieth of a decade, 12 %."""
    if not len(durations):
        return []
    low, high = (np.log10(max(float(end), 1e-3)) for end in (durations.min(), durations.max()))
    grid = 10.0 ** (np.arange(np.floor(low * 20), np.ceil(high * 20) + 1) / 20)
    within = np.searchsorted(np.sort(durations), grid, side="right")
    return [(float(at), 100 * float(count) / len(durations)) for at, count in zip(grid, within, strict=True)]
