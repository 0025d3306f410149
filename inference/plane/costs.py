"""How long a run of n rows takes: median and spread of what was seen, so that one odd run moves nothing. Pure.

Mean and least squares wander with every page fault or garbage collection; median and MAD do not (Rousseeuw and Croux,
1993). A level that stays moves the median within about a dozen runs, because what came before it is then forgotten.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Final

from inference.plane.plans import Wire

KEPT: Final = 64
# A prediction is the median plus this many times the median absolute deviation: about the 98th percentile of a normal.
SPREADS: Final = 3.0
# So many strange runs, less the ordinary ones between them, are a new level and not an accident.
STRANGE: Final = 8
RECENT: Final = 12
MAX_CURVES: Final = 256


class Ring:
    """The last runs of one bucket. rows: of a typical run in it. Times in seconds."""

    __slots__ = ("_due", "_high", "_low", "_seen", "_strange", "median", "rows", "spread")

    def __init__(self, rows: float) -> None:
        self.rows = rows
        self.median = self.spread = 0.0
        self._seen: deque[float] = deque(maxlen=KEPT)
        self._due = 1
        self._strange = 0
        self._low, self._high = 0.0, float("inf")

    def add(self, rows: int, seconds: float) -> bool:
        """Whether the figures are other ones now."""
        self._seen.append(seconds)
        self.rows += 0.125 * (rows - self.rows)
        if self._low <= seconds <= self._high:
            if self._strange:
                self._strange -= 1
        else:
            self._strange += 1
            if self._strange >= STRANGE:
                self._seen = deque(list(self._seen)[-RECENT:], maxlen=KEPT)
                self._due = 0
        self._due -= 1
        if self._due > 0:
            return False
        self._study()
        return True

    def _study(self) -> None:
        values = sorted(self._seen)
        middle = (len(values) - 1) // 2  # the lower one of two: an accident is always too long
        median = self.median = values[middle]
        self.spread = sorted(abs(value - median) for value in values)[middle]
        band = max(2 * SPREADS * self.spread, 0.25 * median)
        self._low, self._high = median - band, median + band
        self._strange = 0
        self._due = min(len(values), KEPT)


class Curve:
    """Seconds by rows, for requests of one Wire: never falling, straight lines between the buckets 1, 2, 4, 8, ..."""

    __slots__ = ("_rings", "_rows", "_seeds", "_typical", "_worst")

    def __init__(self, seeds: Mapping[int, float]) -> None:
        self._seeds = dict(seeds)
        self._rings: dict[int, Ring] = {}
        self._rows: list[float] = []
        self._typical: list[float] = []
        self._worst: list[float] = []
        self._draw()

    @property
    def known(self) -> bool:
        return bool(self._rows)

    def reseed(self, seeds: Mapping[int, float]) -> None:
        self._seeds = dict(seeds)
        self._draw()

    def observe(self, rows: int, seconds: float) -> None:
        bucket = (rows - 1).bit_length()
        ring = self._rings.get(bucket)
        if ring is None:
            ring = self._rings[bucket] = Ring(rows)
        if ring.add(rows, seconds):
            self._draw()

    def typical(self, rows: float) -> float:
        """0.0 when nothing is known."""
        return self._at(rows, self._typical)

    def worst(self, rows: float) -> float:
        """What about 98 of 100 runs stay below; 0.0 when nothing is known."""
        # Beyond the last bucket the two lines may cross: there the spread is no longer known.
        return max(self._at(rows, self._worst), self._at(rows, self._typical))

    def _at(self, rows: float, times: list[float]) -> float:
        known = self._rows
        at = bisect_left(known, rows)
        if at < len(known):
            if at == 0 or known[at] == rows:
                return times[at]
            below, above = known[at - 1], known[at]
            return times[at - 1] + (times[at] - times[at - 1]) * (rows - below) / (above - below)
        if not known:
            return 0.0
        if len(known) == 1:
            return times[0] * rows / known[0]
        slope = (times[-1] - times[-2]) / (known[-1] - known[-2])
        return times[-1] + slope * (rows - known[-1])

    def _draw(self) -> None:
        """Seeds of buckets not seen yet are scaled to those that were: warm-up may have had other shapes."""
        points = [(ring.rows, ring.median, ring.spread) for ring in self._rings.values()]
        ratios = sorted(
            ring.median / self._seeds[1 << bucket]
            for bucket, ring in self._rings.items()
            if self._seeds.get(1 << bucket)
        )
        ratio = ratios[len(ratios) // 2] if ratios else 1.0
        for rows, seconds in self._seeds.items():
            if (rows - 1).bit_length() not in self._rings:
                points.append((float(rows), seconds * ratio, 0.0))
        points.sort()
        self._rows, self._typical, self._worst = [], [], []
        typical = worst = 0.0
        for at, median, spread in points:
            typical = max(typical, median)
            worst = max(worst, median + SPREADS * spread)
            self._rows.append(at)
            self._typical.append(typical)
            self._worst.append(worst)


class Costs:
    """The curves of one version. A new version begins with its own warm-up, never with another one's figures."""

    def __init__(self) -> None:
        self._seeds: dict[int, float] = {}
        self._curves: dict[Wire, Curve] = {}

    def seed(self, seconds_by_rows: Mapping[int, float]) -> None:
        """From a worker's warm-up. Curves that have seen requests keep what they saw."""
        self._seeds = {rows: seconds for rows, seconds in seconds_by_rows.items() if rows > 0 and seconds > 0}
        for curve in self._curves.values():
            curve.reseed(self._seeds)

    def curve(self, wire: Wire) -> Curve:
        found = self._curves.get(wire)
        if found is None:
            if len(self._curves) >= MAX_CURVES:
                self._curves.clear()
            found = self._curves[wire] = Curve(self._seeds)
        return found

    def any(self) -> Curve:
        """For questions that come before a request: the newest curve, else the warm-up's."""
        return next(reversed(self._curves.values()), None) or Curve(self._seeds)


def seeds_of(batch_seconds: Mapping[str, float], load_phases: Mapping[str, float]) -> dict[int, float]:
    """Seconds by rows from what a worker tells of its warm-up."""
    told = {int(rows): seconds for rows, seconds in batch_seconds.items() if rows.isdigit() and seconds > 0}
    first = load_phases.get("first", 0.0)
    return told or ({1: first} if first > 0 else {})
