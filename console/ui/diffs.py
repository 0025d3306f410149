"""The difference between the two JSON values of an audit row, as lines a person reads."""

import json
from dataclasses import dataclass
from typing import Any

MOST_LINES = 60
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Line:
    """before, after: None when the key is not there."""

    path: str
    before: str | None
    after: str | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def compare(before: Any, after: Any) -> list[Line]:
    """Changed lines first reading order kept; a creation has only `after`, a removal only `before`."""
    old, new = _flat(before), _flat(after)
    paths = [*new, *(path for path in old if path not in new)]
    lines = [Line(path or "value", old.get(path), new.get(path)) for path in paths]
    return lines[:MOST_LINES]


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if value is None and not prefix:
        return {}
    if isinstance(value, dict) and value:
        found: dict[str, str] = {}
        for key, item in value.items():
            found |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
        return found
    if isinstance(value, list) and value and isinstance(value[0], dict):
        found = {}
        for index, item in enumerate(value):
            found |= _flat(item, f"{prefix}[{index}]")
        return found
    return {prefix: _text(value)}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
