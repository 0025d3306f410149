"""When requests came, of whom and how large: enough to replay them, nothing of what they said."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from inference.plane.batcher import Job
from inference.plane.plans import Wire

KEPT: Final = 8192
# What a busy plane keeps of each second; recording every request would cost it more than it tells.
A_SECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Arrival:
    """at: seconds on any clock. key: requests of one key may be joined. allowed: seconds until its deadline."""

    at: float
    tenant: str
    key: str
    rows: int
    allowed: float = 10.0


class Arrivals:
    """open: there is room for more in this second. skipped: since the beginning."""

    __slots__ = ("_kept", "_left", "open", "skipped")

    def __init__(self) -> None:
        self._kept: deque[tuple[float, str, Wire, int, float]] = deque(maxlen=KEPT)
        self._left = A_SECOND
        self.open = True
        self.skipped = 0

    def record(self, jobs: list[Job]) -> None:
        self._kept.extend(
            [(job.arrived, job.tenant, job.wire, job.cost, job.deadline - job.arrived) for job in jobs]
        )
        self._left -= len(jobs)
        self.open = self._left > 0

    def tick(self) -> None:
        """Once a second."""
        self._left = A_SECOND
        self.open = True

    def told(self) -> list[dict[str, Any]]:
        """Oldest first, as `replay` reads them."""
        names: dict[Wire, str] = {}
        told = []
        for at, tenant, wire, rows, allowed in sorted(self._kept, key=lambda one: one[0]):
            key = names.setdefault(wire, f"{len(names)}:{_form(wire)}")
            told.append({"at": at, "tenant": tenant, "key": key, "rows": rows, "allowed": allowed})
        return told


def _form(wire: Wire) -> str:
    return ",".join(f"{datatype.name}{list(dims)}" for _, datatype, dims in wire.inputs)[:200]
