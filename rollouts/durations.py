"""Durations as people and Argo write them: 90, "90", "90s", "5m", "1h30m"."""

import re

_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_SECONDS = 30 * 86400.0


def seconds_of(raw: object) -> float:
    """Raises ValueError with a sentence for a person."""
    seconds = _parse(raw)
    if seconds is None:
        raise ValueError('must be seconds or a duration such as "90s", "5m" or "1h30m"')
    if seconds > LONGEST_SECONDS:
        raise ValueError("must be at most 30 days")
    return seconds


def text_of(seconds: float) -> str:
    """The shortest spelling that `seconds_of` reads back exactly."""
    for unit in ("h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    if seconds == int(seconds):
        return f"{int(seconds)}s"
    return f"{round(seconds * 1000)}ms"


def _parse(raw: object) -> float | None:
    if isinstance(raw, bool):
        return None
    if isinstance(raw, int | float):
        return float(raw) if raw >= 0 else None
    if not isinstance(raw, str):
        return None
    if re.fullmatch(r"\d{1,9}", raw):
        return float(raw)
    if not raw or len(raw) > 40 or re.fullmatch(f"(?:{_PARTS.pattern})+", raw) is None:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(raw))
