"""The replica's state table: what each state looks like on a page and which verbs it allows.

States are facts reported by nodes, so there are no transitions to refuse here; what a page shows also depends on how
old the report is and how often the replica had to be started.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from inference.protocol import ReplicaState

SILENT_AFTER = timedelta(seconds=30)  # an older report says nothing about now
LIVE_WITHIN = timedelta(seconds=15)  # what a decision may rest on
OFTEN_RESTARTED = 3
_SETTLED_AFTER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Face:
    """What the page shows. role: one of ok, busy, warn, fail, idle, chaos, unknown (ui.md 4.2)."""

    role: str
    word: str
    verbs: frozenset[str] = frozenset()


_RESTART = frozenset({"restart"})

FACES: dict[ReplicaState, Face] = {
    ReplicaState.STARTING: Face("busy", "loading", _RESTART),
    ReplicaState.READY: Face("ok", "ready", _RESTART),
    ReplicaState.DRAINING: Face("busy", "draining"),
    ReplicaState.STOPPED: Face("idle", "stopped"),
    ReplicaState.CRASHED: Face("fail", "crashed", _RESTART),
}
RESTARTING_OFTEN = Face("warn", "restarting often", _RESTART)
UNKNOWN = Face("unknown", "no report for 30 s")

# Worst first: a group shows its worst member. Unknown stands above busy: it may be anything.
SEVERITY = ("fail", "warn", "unknown", "chaos", "busy", "idle", "ok")


def face_of(
    state: str, *, restarts: int, since: datetime, reported_at: datetime | None, now: datetime
) -> Face:
    """The face of a replica or plane. reported_at: when its node last spoke."""
    if reported_at is None or now - reported_at > SILENT_AFTER:
        return UNKNOWN
    try:
        known = ReplicaState(state)
    except ValueError:
        return UNKNOWN
    if known is ReplicaState.READY and restarts >= OFTEN_RESTARTED and now - since < _SETTLED_AFTER:
        return RESTARTING_OFTEN
    return FACES[known]


def worst(faces: Iterable[Face]) -> Face | None:
    return min(faces, key=lambda face: SEVERITY.index(face.role), default=None)
