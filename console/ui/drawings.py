"""Small drawings as data for inline SVG: sparkline, health strip, shares. Pure geometry; templates only print it."""

from collections.abc import Sequence
from dataclasses import dataclass

from console.metrics.source import Point

WIDTH, HEIGHT = 112.0, 24.0
# An error ratio from here on colours a cell of the health strip.
WARN_RATIO, FAIL_RATIO = 0.01, 0.05


@dataclass(frozen=True, slots=True)
class Spark:
    """lines, areas: SVG paths, one for each stretch without a gap. summary: the same in words."""

    lines: tuple[str, ...]
    areas: tuple[str, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Cell:
    x: float
    width: float
    role: str


@dataclass(frozen=True, slots=True)
class Strip:
    cells: tuple[Cell, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bar, in percent from the left."""

    part: str
    x: float
    width: float
    label: str


def spark(points: Sequence[Point], *, unit: str = "", span: str = "") -> Spark:
    values = [point.value for point in points if point.value is not None]
    if not values:
        return Spark((), (), f"No data {span}".strip())
    top = max(values) or 1.0
    step = WIDTH / max(len(points) - 1, 1)
    lines, areas = [], []
    for stretch in _stretches(points):
        dots = [(index * step, HEIGHT - 1 - (value / top) * (HEIGHT - 2)) for index, value in stretch]
        if len(dots) == 1:  # a lone point is drawn as a short dash, else it would not be seen
            dots = [
                (max(dots[0][0] - step / 2, 0.0), dots[0][1]),
                (min(dots[0][0] + step / 2, WIDTH), dots[0][1]),
            ]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in dots)
        lines.append(path)
        areas.append(f"{path}L{dots[-1][0]:.1f} {HEIGHT}L{dots[0][0]:.1f} {HEIGHT}Z")
    summary = (
        f"Now {values[-1]:.3g}{unit}, highest {max(values):.3g}{unit}, lowest {min(values):.3g}{unit} {span}"
    )
    return Spark(tuple(lines), tuple(areas), summary.strip())


def _stretches(points: Sequence[Point]) -> list[list[tuple[int, float]]]:
    """Gaps stay gaps: neither joined nor zero."""
    found: list[list[tuple[int, float]]] = [[]]
    for index, point in enumerate(points):
        if point.value is None:
            found.append([])
        else:
            found[-1].append((index, point.value))
    return [stretch for stretch in found if stretch]


def strip(points: Sequence[Point], *, span: str = "") -> Strip:
    """One cell for each step of an error-ratio history."""
    if not points:
        return Strip((), "No health history")
    width = 160.0 / len(points)
    roles = [role_of_ratio(point.value) for point in points]
    cells = tuple(
        Cell(round(index * width, 2), round(width - 1, 2), role) for index, role in enumerate(roles)
    )
    bad, known = sum(role in ("warn", "fail") for role in roles), sum(role != "idle" for role in roles)
    summary = f"{bad} of {known} intervals with errors {span}" if known else f"No traffic {span}"
    return Strip(cells, summary.strip())


def role_of_ratio(ratio: float | None) -> str:
    if ratio is None:
        return "idle"
    return "fail" if ratio >= FAIL_RATIO else "warn" if ratio >= WARN_RATIO else "ok"


def shares(parts: Sequence[tuple[str, float, str]]) -> list[Share]:
    """parts: (kind, percent, label), laid side by side."""
    found, x = [], 0.0
    for kind, percent, label in parts:
        if percent > 0:
            found.append(Share(kind, x, percent, label))
        x += percent
    return found
