"""Which version answers a request: smooth weighted round robin, exact over every 100 requests."""

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Wheel(Generic[T]):
    """nginx's smooth weighted round robin: weights 90 and 10 give exactly 90 and 10 in each 100, evenly spread."""

    def __init__(self, weighted: Sequence[tuple[T, int]]) -> None:
        self._choices = [choice for choice, weight in weighted if weight > 0]
        self._weights = [weight for _, weight in weighted if weight > 0]
        self._current = [0] * len(self._choices)
        self._total = sum(self._weights)

    def next(self) -> T | None:
        """None when no choice has a weight."""
        choices, current = self._choices, self._current
        if len(choices) < 2:
            return choices[0] if choices else None
        best = 0
        for index, weight in enumerate(self._weights):
            current[index] += weight
            if current[index] > current[best]:
                best = index
        current[best] -= self._total
        return choices[best]
