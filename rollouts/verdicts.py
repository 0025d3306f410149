"""What one measurement amounts to, and what follows where nothing is known."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollouts.durations import seconds_of, text_of
from rollouts.states import Reason


class Verdict(StrEnum):
    PASSED = "pass"
    FAILED = "fail"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"
    PROVIDER_ERROR = "provider_error"
    LOW_EVIDENCE = "low_evidence"
    CANCELLED = "cancelled"  # of a gate whose rollout ended before it did: never a pass


UNKNOWN = {
    Verdict.INCONCLUSIVE: Reason.INCONCLUSIVE,
    Verdict.NO_DATA: Reason.NO_DATA,
    Verdict.PROVIDER_ERROR: Reason.PROVIDER_ERROR,
    Verdict.LOW_EVIDENCE: Reason.LOW_EVIDENCE,
}


class Do(StrEnum):
    ABORT = "abort"
    PAUSE = "pause"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Policy:
    """What follows when a gate does not know: go on measuring for wait_seconds, then `then`."""

    wait_seconds: float
    then: Do

    def as_json(self) -> Any:
        if self.wait_seconds == 0:
            return self.then.value
        return {"wait": text_of(self.wait_seconds), "then": self.then.value}


DEFAULT_WAIT_SECONDS = 300.0
DEFAULT_POLICIES = {
    Verdict.NO_DATA: Policy(120.0, Do.PAUSE),
    Verdict.LOW_EVIDENCE: Policy(600.0, Do.PAUSE),
    Verdict.INCONCLUSIVE: Policy(0.0, Do.PAUSE),
    Verdict.PROVIDER_ERROR: Policy(120.0, Do.PAUSE),
}
POLICY_KEYS = {verdict: f"on_{verdict.value}" for verdict in DEFAULT_POLICIES}


def read_do(raw: Any) -> Do:
    if raw in tuple(Do):
        return Do(raw)
    raise ValueError(f"must be one of {', '.join(Do)}")


def read_policy(raw: Any) -> Policy:
    if raw in tuple(Do):
        return Policy(0.0, Do(raw))
    if raw == "wait":
        return Policy(DEFAULT_WAIT_SECONDS, Do.PAUSE)
    if isinstance(raw, dict) and raw.keys() <= {"wait", "then"} and raw.get("then", "pause") in tuple(Do):
        return Policy(seconds_of(raw.get("wait", DEFAULT_WAIT_SECONDS)), Do(raw.get("then", "pause")))
    raise ValueError('must be abort, pause, continue, wait or {"wait": "5m", "then": ...}')
