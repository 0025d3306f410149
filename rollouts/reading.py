"""Strict reading of JSON objects: every problem is named by its path, unknown keys are refused.

A misspelt key that is silently dropped turns a gate into "always passes": the one error that may not happen here.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from console.kit.errors import Invalid
from rollouts.durations import seconds_of

T = TypeVar("T")


class Problems:
    """Collects what is wrong, by path, so that a person sees everything at once."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, path: str, sentence: str) -> None:
        self.found.setdefault(path, sentence)

    def raise_if_any(self, what: str) -> None:
        if self.found:
            path, sentence = next(iter(self.found.items()))
            raise Invalid(f"{what}: {path} {sentence}.", fields=self.found)


class Fields:
    """One JSON object being read. Each reader returns its default when the value is missing or wrong."""

    def __init__(self, raw: Any, path: str, problems: Problems, *, known: frozenset[str]) -> None:
        self.path = path
        self.problems = problems
        self.raw: dict[str, Any] = raw if isinstance(raw, dict) else {}
        if not isinstance(raw, dict):
            problems.add(path, "must be an object")
        for key in self.raw.keys() - known:
            problems.add(f"{path}.{key}", f"is unknown; known are {', '.join(sorted(known))}")

    def has(self, key: str) -> bool:
        return key in self.raw

    def at(self, key: str) -> str:
        return f"{self.path}.{key}"

    def wrong(self, key: str, sentence: str) -> None:
        self.problems.add(self.at(key), sentence)

    def number(
        self, key: str, *, least: float = 0.0, most: float = math.inf, above: float | None = None
    ) -> float | None:
        raw = self.raw.get(key)
        if key not in self.raw:
            return None
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
            self.wrong(key, "must be a number")
        elif raw < least or (above is not None and raw <= above):
            self.wrong(
                key,
                f"must be {'at least' if above is None else 'above'} {least if above is None else above:g}",
            )
        elif raw > most:
            self.wrong(key, f"must be at most {most:g}")
        else:
            return float(raw)
        return None

    def whole(self, key: str, default: int, *, least: int = 0, most: int = 1_000_000) -> int:
        raw = self.raw.get(key, default)
        if isinstance(raw, bool) or not isinstance(raw, int):
            self.wrong(key, "must be a whole number")
        elif not least <= raw <= most:
            self.wrong(key, f"must be between {least} and {most}")
        else:
            return raw
        return default

    def duration(self, key: str, default: float, *, least: float = 0.0) -> float:
        return self.read(key, default, lambda raw: _at_least(seconds_of(raw), least))

    def text(self, key: str, default: str, *, most: int = 63) -> str:
        raw = self.raw.get(key, default)
        if not isinstance(raw, str) or not raw.strip() or len(raw) > most:
            self.wrong(key, f"must be a text of 1 to {most} characters")
            return default
        return raw

    def read(self, key: str, default: T, parse: Callable[[Any], T]) -> T:
        """parse raises ValueError with a sentence."""
        if key not in self.raw:
            return default
        try:
            return parse(self.raw[key])
        except ValueError as error:
            self.wrong(key, str(error))
            return default


def _at_least(seconds: float, least: float) -> float:
    if seconds < least:
        raise ValueError(f"must be at least {least:g} s")
    return seconds
