"""What to do next with a rollout: a pure function of its plan, its row, what was seen and the time.

Order is safety first: the end, then a canary that cannot answer, then the way to the wanted weight, then the step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rollouts.gates import Gate, Measured, Outcome, Standing, assess, worst
from rollouts.plan import Analysis, Pause, Plan, SetWeight
from rollouts.states import TERMINAL, Reason, State

DEADLINE = timedelta(seconds=600)
# A replica that crashes once while it loads may have been unlucky; one that cannot load crashes again within this.
LOAD_GRACE = timedelta(seconds=10)
# How long the end of a rollout waits for every live node to do it.
SETTLING = timedelta(seconds=30)
MAX_OUTAGES = 5


@dataclass(frozen=True, slots=True)
class Progress:
    """The row, as far as a decision needs it."""

    state: State
    reason: Reason
    from_version: int | None
    to_version: int
    step_index: int
    weight_percent: int
    moved_at: datetime
    step_started_at: datetime | None = None
    judged_from: datetime | None = None
    traffic_since: datetime | None = None
    outages: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the traffic target says now, and the measurements of this step.

    canary_weight: None when the canary has no placement. applied: every live node does what was last asked.
    """

    stable_version: int | None
    canary_version: int | None
    canary_weight: int | None
    wanted: int
    ready: int
    failed_detail: str
    applied: bool
    measured: tuple[Measured, ...] = ()


# Decisions


@dataclass(frozen=True, slots=True)
class Wait:
    """sentence: what for; empty when the row says it already."""

    sentence: str


KEEP_WAITING = Wait("")


@dataclass(frozen=True, slots=True)
class Start:
    sentence: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Take away a canary that nobody owns any more."""

    version: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Place:
    sentence: str


@dataclass(frozen=True, slots=True)
class Shift:
    """outage: the canary lost its last ready replica, so the weight is not a step's but 0."""

    to_percent: int
    sentence: str
    outage: bool = False


@dataclass(frozen=True, slots=True)
class NextStep:
    index: int
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    gates: tuple[Gate, ...]
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class PauseNow:
    reason: Reason
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Abort:
    reason: Reason
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Promote:
    """The rollout succeeded. The fleet is told after this is recorded, and told again until it obeys."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Install:
    """After the end: make the new version the stable one."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """After the end: take the canary away, stable gets everything."""


@dataclass(frozen=True, slots=True)
class Settle:
    """After the end: the fleet does what the state says."""


Decision = (
    Wait | Start | Clear | Place | Shift | NextStep | Measure | PauseNow | Abort | Promote | Install | Withdraw
    | Settle
)  # fmt: skip


def decide(plan: Plan, at: Progress, seen: Seen, now: datetime) -> Decision:
    if at.state in TERMINAL:
        return _after_the_end(at, seen, now)
    if at.state is State.QUEUED:
        return _begin(at, seen)
    if seen.stable_version not in (at.from_version, at.to_version):
        return Abort(
            Reason.NEWER_VERSION,
            f"version {seen.stable_version} became stable meanwhile, this rollout was to replace {at.from_version}",
        )
    if seen.stable_version == at.to_version != at.from_version:
        return Promote(f"Version {at.to_version} was made stable meanwhile")
    if seen.canary_version not in (None, at.to_version):
        return Clear(
            seen.canary_version, f"Took away version {seen.canary_version}, left by an earlier rollout"
        )
    if seen.canary_version is None:
        return Place(f"Asked for the replicas of version {at.to_version}")
    return _reach_weight(plan, at, seen, now) or _walk(plan, at, seen, now)


def _after_the_end(at: Progress, seen: Seen, now: datetime) -> Decision:
    if at.state is State.PROMOTED and seen.stable_version != at.to_version:
        return Install()
    if at.state is not State.PROMOTED and seen.canary_version == at.to_version:
        return Withdraw()
    # Whoever waits for the end may then rely on it; a node that never answers must not keep the lease for ever.
    told = seen.applied or at.state is State.SUPERSEDED or now - at.moved_at >= SETTLING
    return Settle() if told else Wait("")


def _begin(at: Progress, seen: Seen) -> Decision:
    if seen.stable_version == at.to_version:
        return Promote(f"Version {at.to_version} is the stable version already; every step was skipped")
    return Start(f"Started the rollout from version {seen.stable_version} to {at.to_version}")


def _reach_weight(plan: Plan, at: Progress, seen: Seen, now: datetime) -> Decision | None:
    """Get the canary fit and its weight to where the step wants it; None when both are so."""
    if seen.ready == 0 and _anything_sent(at, seen):
        return Shift(0, "Sent nothing to the new version: it has no ready replica", outage=True)
    if seen.ready == 0 or (at.traffic_since is None and seen.ready < seen.wanted):
        return KEEP_WAITING if at.state is State.PAUSED else _await_replicas(at, seen, now)
    if plan.step(at.step_index) is None:
        return None  # past the end, where the promotion itself moves all the traffic
    wanted = plan.weight_at(at.step_index)
    if wanted not in (at.weight_percent, seen.canary_weight) or at.weight_percent != seen.canary_weight:
        return Shift(wanted, f"Sent {wanted} % to version {at.to_version}")
    return None


def _anything_sent(at: Progress, seen: Seen) -> bool:
    return at.weight_percent > 0 or (seen.canary_weight or 0) > 0


def _await_replicas(at: Progress, seen: Seen, now: datetime) -> Decision:
    standing = f"{seen.ready} of {seen.wanted} replicas of version {at.to_version} are ready"
    since = now - at.moved_at
    if at.outages > MAX_OUTAGES:
        return Abort(Reason.LOAD_FAILED, f"version {at.to_version} lost all its replicas {at.outages} times")
    if seen.failed_detail and at.traffic_since is None and since >= LOAD_GRACE:
        return Abort(Reason.LOAD_FAILED, f"version {at.to_version} does not load: {seen.failed_detail}")
    if since >= DEADLINE:
        cause = f", the last error was: {seen.failed_detail}" if seen.failed_detail else ""
        return Abort(Reason.LOAD_FAILED, f"{standing} after {DEADLINE.total_seconds():.0f} s{cause}")
    return Wait(f"Waiting: {standing}")


def _walk(plan: Plan, at: Progress, seen: Seen, now: datetime) -> Decision:
    if at.state is State.PAUSED:
        return KEEP_WAITING
    step = plan.step(at.step_index)
    match step:
        case None:
            return Promote(f"Promoted version {at.to_version}: every step is done")
        case SetWeight():
            return _set_weight(plan, step, at, seen, now)
        case Pause():
            return _pause(plan, step, at, now)
        case Analysis():
            return _analyse(plan, step, at, seen.measured, now)


def _set_weight(plan: Plan, step: SetWeight, at: Progress, seen: Seen, now: datetime) -> Decision:
    if seen.applied:
        return _next(plan, at, f"Every node sends {step.percent} % to version {at.to_version}")
    if now - at.moved_at >= DEADLINE:
        return Abort(
            Reason.DEADLINE, f"not every node sends {step.percent} % after {DEADLINE.total_seconds():.0f} s"
        )
    return Wait(f"Waiting for every node to send {step.percent} %")


def _pause(plan: Plan, step: Pause, at: Progress, now: datetime) -> Decision:
    if step.duration_seconds is None:
        return PauseNow(Reason.PAUSE_STEP, "Paused by the plan until a person resumes")
    until = (at.step_started_at or now) + timedelta(seconds=step.duration_seconds)
    if now >= until:
        return _next(plan, at, f"Paused for {step.duration_seconds:g} s")
    return Wait(f"Pausing until {until:%H:%M:%S} UTC")


def _analyse(
    plan: Plan, step: Analysis, at: Progress, measured: Sequence[Measured], now: datetime
) -> Decision:
    started = at.judged_from or at.step_started_at or now
    standings = [assess(gate, measured, started_at=started, now=now) for gate in step.gates]
    deciding = worst(standings)
    match deciding.outcome:
        case Outcome.ABORT:
            assert deciding.deciding is not None
            return Abort(deciding.reason, deciding.deciding.sentence, dict(deciding.deciding.evidence))
        case Outcome.PAUSE:
            assert deciding.deciding is not None
            return PauseNow(
                deciding.reason, f"Paused: {deciding.deciding.sentence}", dict(deciding.deciding.evidence)
            )
        case Outcome.PASSED:
            return _next(plan, at, f"Passed: {_passed_sentence(standings, measured)}", _summary(standings))
    due = tuple(standing.gate for standing in standings if standing.next_at <= now)
    return Measure(due, tuple(standings)) if due else Wait(_running_sentence(standings))


def _next(plan: Plan, at: Progress, sentence: str, evidence: Mapping[str, Any] | None = None) -> NextStep:
    following = plan.step(at.step_index + 1)
    then = "promote" if following is None else following.sentence
    return NextStep(at.step_index + 1, f"{sentence}; next: {then}", evidence or {})


def _passed_sentence(standings: Sequence[Standing], measured: Sequence[Measured]) -> str:
    """The last word of each gate."""
    last = {one.gate: one.sentence for one in measured}
    return "; ".join(last[standing.gate.name] for standing in standings)


def _running_sentence(standings: Sequence[Standing]) -> str:
    parts = []
    for standing in standings:
        text = f"{standing.gate.name} {min(standing.passes, standing.gate.count)} of {standing.gate.count} passed"
        if standing.deciding is not None and standing.unknown_since is not None:
            text = f"{text}, {standing.deciding.sentence}"
        parts.append(text)
    return f"Judging: {'; '.join(parts)}"


def _summary(standings: Sequence[Standing]) -> dict[str, Any]:
    return {
        standing.gate.name: {"passes": standing.passes, "fails": standing.fails, "count": standing.gate.count}
        for standing in standings
    }
