"""The load test's state table: state -> role and word for the page, and which verbs are allowed."""

from dataclasses import dataclass

from django.db import models


class State(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Verdict(models.TextChoices):
    """What the thresholds say; a fact beside the state. none: no threshold was set, or there is no report yet."""

    NONE = "none"
    MET = "met"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Face:
    """What the page shows. role: one of ok, busy, warn, fail, idle, chaos, unknown (ui.md 4.2)."""

    role: str
    word: str
    verbs: frozenset[str]


FACES = {
    State.QUEUED: Face("idle", "queued", frozenset({"cancel"})),
    State.RUNNING: Face("busy", "running", frozenset({"cancel"})),
    State.FINISHED: Face("ok", "finished", frozenset()),
    State.FAILED: Face("fail", "failed", frozenset()),
    State.CANCELLED: Face("idle", "cancelled", frozenset()),
}
STOPPING = Face("busy", "stopping", frozenset())

VERDICTS = {
    Verdict.NONE: Face("idle", "no threshold", frozenset()),
    Verdict.MET: Face("ok", "met", frozenset()),
    Verdict.MISSED: Face("fail", "missed", frozenset()),
}

TRANSITIONS = {
    State.QUEUED: frozenset({State.RUNNING, State.FAILED, State.CANCELLED}),
    State.RUNNING: frozenset({State.FINISHED, State.FAILED, State.CANCELLED}),
    State.FINISHED: frozenset[State](),
    State.FAILED: frozenset[State](),
    State.CANCELLED: frozenset[State](),
}

TERMINAL = frozenset({State.FINISHED, State.FAILED, State.CANCELLED})
UNFINISHED = frozenset({State.QUEUED, State.RUNNING})
