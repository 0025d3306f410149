"""The one clock. Tests freeze it; nothing else asks the system for the time of a decision."""

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)
