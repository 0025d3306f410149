"""The degradation ladder of a node's versions: one step at a time under overload, and back when it is over. Pure.

0 as usual, 1 no waiting for fuller batches, 2 smaller batches, 3 the least important tenants are turned away, 4 whoever
would wait too long is. Versions of a lower class climb before those of a higher one, whose workers need the same cores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

RANKS: Final = {"best_effort": 0, "burstable": 1, "guaranteed": 2}
# Expected wait over what is bearable, at which steps 1 to 4 begin.
UP: Final = (0.5, 1.0, 1.5, 2.0)
# A step ends when pressure has been below this part of its beginning for so many looks.
DOWN: Final = 0.5
CALM: Final = 3


@dataclass(frozen=True, slots=True)
class Rung:
    """step and calm: as `climb` gave them the last time. forced: up here for the sake of a higher class."""

    rank: int
    pressure: float
    step: int = 0
    calm: int = 0
    forced: bool = False


def climb(rungs: Sequence[Rung]) -> list[Rung]:
    """One look, about a second after the last one: everybody's next rung, in the same order."""
    return [_next(rung, _above(rung, rungs)) for rung in rungs]


def _above(rung: Rung, rungs: Sequence[Rung]) -> float:
    """The worst overload of a higher class, which is felt one step earlier below it."""
    worst = max((other.pressure for other in rungs if other.rank > rung.rank), default=0.0)
    return worst + 1.0 if worst >= UP[1] else 0.0


def _next(rung: Rung, above: float) -> Rung:
    pressure = max(rung.pressure, above)
    forced = above > rung.pressure
    if rung.step < len(UP) and pressure >= UP[rung.step]:
        return Rung(rung.rank, rung.pressure, rung.step + 1, 0, forced)
    if rung.step and pressure < DOWN * UP[rung.step - 1]:
        if rung.calm + 1 >= CALM:
            return Rung(rung.rank, rung.pressure, rung.step - 1, 0, forced)
        return Rung(rung.rank, rung.pressure, rung.step, rung.calm + 1, forced)
    return Rung(rung.rank, rung.pressure, rung.step, 0, forced)
