"""The rollout's state table: state -> role and word for the page, and which verbs are allowed."""

from dataclasses import dataclass

from django.db import models


class State(models.TextChoices):
    QUEUED = "queued"
    PROGRESSING = "progressing"
    PAUSED = "paused"
    PROMOTED = "promoted"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"


class Reason(models.TextChoices):
    """Why it is in its state; a fact beside the state, never a second state."""

    NONE = ""
    PAUSE_STEP = "pause_step"
    MANUAL = "manual"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"
    LOW_EVIDENCE = "low_evidence"
    BREACH = "breach"
    PROVIDER_ERROR = "provider_error"
    DEADLINE = "deadline"
    LOAD_FAILED = "load_failed"
    NEWER_VERSION = "newer_version"
    WAITING_FOR_LEASE = "waiting_for_lease"


@dataclass(frozen=True, slots=True)
class Face:
    """What the page shows. role: one of ok, busy, warn, fail, idle, chaos, unknown (ui.md 4.2)."""

    role: str
    word: str
    verbs: frozenset[str]


FACES = {
    State.QUEUED: Face("idle", "queued", frozenset({"abort"})),
    State.PROGRESSING: Face("busy", "progressing", frozenset({"pause", "promote", "skip", "abort"})),
    State.PAUSED: Face("warn", "paused", frozenset({"resume", "promote", "skip", "abort"})),
    State.PROMOTED: Face("ok", "promoted", frozenset()),
    State.ABORTED: Face("fail", "aborted", frozenset({"retry"})),
    State.SUPERSEDED: Face("idle", "superseded", frozenset()),
}

TRANSITIONS = {
    # Straight to promoted: the way back to the stable version skips everything.
    State.QUEUED: frozenset({State.PROGRESSING, State.PROMOTED, State.ABORTED, State.SUPERSEDED}),
    State.PROGRESSING: frozenset({State.PAUSED, State.PROMOTED, State.ABORTED, State.SUPERSEDED}),
    State.PAUSED: frozenset({State.PROGRESSING, State.PROMOTED, State.ABORTED, State.SUPERSEDED}),
    State.PROMOTED: frozenset[State](),
    State.ABORTED: frozenset[State](),  # retry makes a new rollout: the old record stays as it ended
    State.SUPERSEDED: frozenset[State](),
}

TERMINAL = frozenset({State.PROMOTED, State.ABORTED, State.SUPERSEDED})
