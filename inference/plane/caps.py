"""The largest batch of a version, by evidence: a little smaller when runs are late, a bucket larger when none is. Pure.

Additive increase, multiplicative decrease as in Clipper (NSDI 2017). Evidence is the run, not the wait before it: a
queue makes every request late, and smaller batches would then make it longer.
"""

from typing import Final

from inference.plane.costs import Curve

WINDOW: Final = 16
# One late run of a window is an accident (of 16 it would already be 6 %), two are more than 1 % of many windows.
LATE: Final = 2
FIRST_CALM: Final = 4
LAST_CALM: Final = 64
# A batch this much dearer for each row than the best one still counts as efficient.
EFFICIENT: Final = 1.1
# Whoever just missed a batch waits for it and then runs in the next one: each may take half of the objective.
SHARE: Final = 0.5
FLOOR_SECONDS: Final = 0.05
TIMES_ONE: Final = 10.0


class Cap:
    """most: rows that contract and memory allow. rows: the largest batch now."""

    __slots__ = ("_calm", "_full", "_late", "_ran", "_wanted", "most", "rows")

    def __init__(self, most: int) -> None:
        self.most = self.rows = max(1, most)
        self._ran = self._late = self._full = 0
        self._calm, self._wanted = 0, FIRST_CALM

    def bound(self, most: int) -> None:
        """Other limits hold now; a cap that was at its limit follows it up."""
        most = max(1, most)
        self.rows = most if self.rows == self.most else min(self.rows, most)
        self.most = most

    def begin(self, curve: Curve, seconds: float) -> None:
        """Start where the warm-up says that a run stays within `seconds`."""
        rows = self.most
        while rows > 1 and curve.worst(rows) > seconds:
            rows = smaller(rows)
        self.rows = rows

    def ran(self, *, late: bool, full: bool) -> bool:
        """full: more waited than the batch could take. Returns whether a window ended."""
        self._ran += 1
        if late:
            self._late += 1
        if full:
            self._full += 1
        if self._ran < WINDOW:
            return False
        if self._late >= LATE:
            self.rows = max(1, int(self.rows * 0.9))
            # Grown too early: wait longer the next time, or it would flap for ever.
            self._wanted = min(2 * self._wanted, LAST_CALM) if self._calm else self._wanted
            self._calm = 0
        elif not self._late:
            self._calm += 1
            if self._full and self._calm >= self._wanted:
                self.rows = min(self.most, larger(self.rows))
                self._calm = 1
        self._ran = self._late = self._full = 0
        return True


def objective(declared: float | None, curve: Curve) -> float:
    """Seconds from arrival to answer that are fine: the contract's, else ten runs of one row, at least 50 ms."""
    return declared if declared is not None else max(FLOOR_SECONDS, TIMES_ONE * curve.worst(1))


def efficient(curve: Curve, most: int) -> int:
    """The smallest batch that wastes no more than a tenth: it halves waits and keeps the throughput."""
    rows, best = most, curve.typical(most) / most
    while rows > 1 and curve.typical(smaller(rows)) / smaller(rows) <= EFFICIENT * best:
        rows = smaller(rows)
    return rows


def smaller(rows: int) -> int:
    """The next bucket down: 1, 2, 4, 8, ..."""
    return max(1, 1 << ((rows - 1).bit_length() - 1)) if rows > 1 else 1


def larger(rows: int) -> int:
    return 1 << rows.bit_length()
