"""What each app tells the frame and the overview: rail entries, what needs a person, what runs, what can be jumped to.

Pages stand below the apps they speak of, so each app registers one Section in its AppConfig.ready.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from console.tenants.permissions import Actor

# Worst first: a group shows its worst member. Unknown stands above busy: it may be anything.
ROLES = ("fail", "warn", "unknown", "chaos", "busy", "idle", "ok")


@dataclass(frozen=True, slots=True)
class Mark:
    """A state as a page shows it: shape and colour by role, and always a word."""

    role: str
    word: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the rail. key: also the section whose needs are counted there. letter: `g` and this opens it."""

    key: str
    label: str
    view: str
    letter: str
    order: int
    on_phone: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that needs a person, with the one next action."""

    section: str
    role: str
    word: str
    subject: str
    url: str
    since: datetime | None
    why: str
    action: str
    action_url: str


@dataclass(frozen=True, slots=True)
class Running:
    """Something under way on a service. done_percent: how far, None when it cannot be said."""

    role: str
    word: str
    subject: str
    url: str
    why: str
    done_percent: int | None
    service: str = ""


@dataclass(frozen=True, slots=True)
class Jump:
    """Somewhere to go or something to do. dialog: opens as a preview over the present page."""

    label: str
    kind: str
    url: str
    dialog: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """What is well, for the good news. noun: such as service."""

    noun: str
    healthy: int
    total: int


class Section:
    """What one app contributes. Everything is asked with the reader's own rights."""

    entries: Sequence[Entry] = ()

    def needs(self, reader: Actor) -> list[Need]:
        return []

    def running(self, reader: Actor) -> list[Running]:
        return []

    def health(self, reader: Actor) -> list[Health]:
        return []

    def jumps(self, reader: Actor, text: str) -> list[Jump]:
        """Matches for what was typed so far; text is folded to lower case."""
        return []

    def services(self, reader: Actor) -> list[str]:
        """Names of the services whose traffic the overview adds up."""
        return []


_sections: list[Section] = []


def register(section: Section) -> None:
    """Once for each app, in AppConfig.ready."""
    if not any(type(known) is type(section) for known in _sections):
        _sections.append(section)


def entries() -> list[Entry]:
    found = (entry for section in _sections for entry in section.entries)
    return sorted(found, key=lambda entry: entry.order)


def needs(reader: Actor) -> list[Need]:
    """Worst first, and among equals the oldest."""
    found = [need for section in _sections for need in section.needs(reader)]
    return sorted(
        found, key=lambda need: (ROLES.index(need.role), need.since.timestamp() if need.since else 0)
    )


def running(reader: Actor) -> list[Running]:
    return [one for section in _sections for one in section.running(reader)]


def health(reader: Actor) -> list[Health]:
    return [one for section in _sections for one in section.health(reader)]


def jumps(reader: Actor, text: str) -> list[Jump]:
    folded = " ".join(text.lower().split())
    return [jump for section in _sections for jump in section.jumps(reader, folded)]


def services(reader: Actor) -> list[str]:
    return [name for section in _sections for name in section.services(reader)]


def worst(roles: Iterable[str]) -> str:
    """The role that stands for all of them; ok when there is none."""
    return min(roles, key=ROLES.index, default="ok")


def matches(text: str, *words: str) -> bool:
    """Every typed word begins or is part of one of ours: `pau fra` finds `pause fraud-api`."""
    whole = " ".join(words).lower()
    return all(part in whole for part in text.split())
