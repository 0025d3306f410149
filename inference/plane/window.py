"""Shall an idle worker wait for company? Pure: seconds in, seconds out.

Waiting at low load only adds latency and at high load workers are busy anyway, so the answer is mostly no.
"""

from typing import Final

from inference.plane.costs import Curve

SAMPLE: Final = 16
# A timer of an event loop is late by about a tenth of this.
SHORTEST_SECONDS: Final = 0.0005
LONGEST_SECONDS: Final = 0.002
# Of the run that would begin now: the most that may be spent on waiting for it to be fuller.
PART: Final = 0.25
# Where one more row costs more than this part of a row alone, waiting to share a run gains nothing.
SHARED: Final = 0.5


class Window:
    """configured: seconds, the contract's own number; None: adaptive. delays: False where nobody ever waits.

    device: the model runs on an accelerator, where a run of few rows leaves most of it unused.
    """

    __slots__ = ("_arrived", "_since", "configured", "delays", "device", "most", "rate")

    def __init__(self, configured: float | None) -> None:
        self.device = False
        self.most = 0.0
        self.rate = 0.0
        self.delays = False
        self._arrived = 0
        self._since = 0.0
        self.configure(configured)

    def configure(self, configured: float | None) -> None:
        self.configured = configured
        self.delays = bool(configured)

    def study(self, curve: Curve, rows: int) -> None:
        """Decide from the cost of rows whether adaptive waiting can gain anything; rows: of the largest batch."""
        if self.configured is not None:
            return
        one, two = curve.typical(1), curve.typical(2)
        gains = rows > 1 and two - one < SHARED * one
        self.most = min(LONGEST_SECONDS, PART * one) if gains and self.device else 0.0
        self.delays = self.most >= SHORTEST_SECONDS

    def saw(self, arrived: int, now: float) -> None:
        """arrived: since the last call."""
        self._arrived += arrived
        if self._arrived >= SAMPLE:
            passed = now - self._since
            if passed > 0:
                self.rate = 0.5 * (self.rate + self._arrived / passed)
            self._arrived, self._since = 0, now

    def wait(self, now: float, rows: int, oldest: float, slack: float, curve: Curve) -> float:
        """Seconds from now that a batch of so many rows may wait; 0.0: go.

        oldest: arrival of its first request. slack: until the earliest deadline, less the run.
        """
        if self.configured is not None:
            return max(0.0, min(oldest + self.configured - now, slack))
        delta = min(self.most, slack, PART * curve.typical(rows))
        # An arrival rate of the past says little once it has been quiet for longer than a sample takes.
        recent = min(self.rate, (self._arrived + 2 * SAMPLE) / max(now - self._since, 1e-9))
        return delta if delta >= SHORTEST_SECONDS and recent * delta >= 1.0 else 0.0
