"""What became of each field of an import. A misspelt key is refused by name; Kubernetes would silently drop it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import yaml

MAX_BYTES, MAX_DOCUMENTS = 256 << 10, 50


class Fate(StrEnum):
    HONOURED = "honoured"
    CHANGED = "changed"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Line:
    path: str
    fate: Fate
    why: str = ""


@dataclass(slots=True)
class Report:
    """lines in the order in which the fields were met."""

    lines: list[Line] = field(default_factory=list)

    def honoured(self, path: str, why: str = "") -> None:
        self.lines.append(Line(path, Fate.HONOURED, why))

    def changed(self, path: str, why: str) -> None:
        self.lines.append(Line(path, Fate.CHANGED, why))

    def ignored(self, path: str, why: str) -> None:
        self.lines.append(Line(path, Fate.IGNORED, why))

    def refused(self, path: str, why: str) -> None:
        self.lines.append(Line(path, Fate.REFUSED, why))

    @property
    def is_refused(self) -> bool:
        return any(line.fate is Fate.REFUSED for line in self.lines)

    def as_json(self) -> list[dict[str, str]]:
        return [{"path": one.path, "fate": one.fate.value, "why": one.why} for one in self.lines]


@dataclass(frozen=True, slots=True)
class Imported:
    """strategy: steps and options as rollouts.plan reads them; None when something was refused."""

    kind: str
    name: str
    strategy: dict[str, Any] | None
    report: Report


class Reader:
    """One object of a foreign text. Every key is taken, or named when the object is left."""

    def __init__(self, raw: Any, path: str, report: Report) -> None:
        self.path = path
        self.report = report
        self.raw: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
        self.taken: set[str] = set()
        if raw is not None and not isinstance(raw, dict):
            report.refused(path, "must be an object")

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        return self.raw.get(key) is not None

    def get(self, key: str, default: Any = None) -> Any:
        self.taken.add(key)
        value = self.raw.get(key)
        return default if value is None else value

    def inner(self, key: str) -> "Reader":
        return Reader(self.get(key), self.at(key), self.report)

    def listed(self, key: str) -> list["Reader"]:
        found = self.get(key, [])
        if not isinstance(found, list):
            self.report.refused(self.at(key), "must be a list")
            return []
        return [Reader(one, f"{self.at(key)}[{index}]", self.report) for index, one in enumerate(found)]

    def ignore(self, why: str, *keys: str) -> None:
        for key in keys:
            if self.has(key):
                self.report.ignored(self.at(key), why)
            self.taken.add(key)

    def refuse(self, why: str, *keys: str) -> None:
        for key in keys:
            if self.has(key):
                self.report.refused(self.at(key), why)
            self.taken.add(key)

    def whole(self, key: str, default: int | None) -> int | None:
        """An integer, or a text that is one."""
        raw = self.get(key)
        if raw is None:
            return default
        if isinstance(raw, int) and not isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.strip().lstrip("-").isdigit():
            return int(raw)
        self.report.refused(self.at(key), f"{raw!r} is no whole number")
        return default

    def leave(self, kind: str) -> None:
        """Name every key that nobody took."""
        for key in self.raw.keys() - self.taken:
            self.report.refused(
                self.at(key), f"is no field of {kind}; Kubernetes would drop it without a word"
            )


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a YAML text. Raises ValueError with a sentence."""
    if len(text.encode()) > MAX_BYTES:
        raise ValueError(f"is above {MAX_BYTES} bytes")
    if "&" in text and "*" in text and any(isinstance(one, yaml.AliasToken) for one in _tokens(text)):
        raise ValueError("uses YAML aliases, which are not read here")
    try:
        found = [one for one in yaml.safe_load_all(text) if one is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"is no YAML: {' '.join(str(error).split())[:300]}") from None
    if not found or len(found) > MAX_DOCUMENTS or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"must hold 1 to {MAX_DOCUMENTS} objects")
    return found


def _tokens(text: str) -> Any:
    try:
        yield from yaml.scan(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return
