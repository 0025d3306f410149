"""What to do next with a rollout: a pure function of its plan, its row, what was seen and the time.

Order is safety first: the end, then a canary that cannot answer, then the way to the wanted weight, then the step.
"""

from datetime import datetime, timedelta

from rollouts.decisions import (
    KEEP_WAITING,
    Abort,
    Clear,
    Decision,
    Install,
    Measure,
    NextStep,
    PauseNow,
    Place,
    Progress,
    Promote,
    Route,
    Scale,
    Seen,
    Settle,
    Shift,
    Start,
    Wait,
    Withdraw,
)
from rollouts.durations import text_of
from rollouts.judging import (
    analyse,
    before_promotion,
    beside_of,
    experiment,
    joined,
    measure_due,
    next_step,
    verdict_beside,
)
from rollouts.plan import Analysis, Experiment, Pause, Plan, Routing, SetWeight
from rollouts.states import TERMINAL, Reason, State
from rollouts.steps import SetCanaryScale
from rollouts.verdicts import Do

DEADLINE = timedelta(seconds=600)
# A replica that crashes once while it loads may have been unlucky; one that cannot load crashes again within this.
LOAD_GRACE = timedelta(seconds=10)
# How long the end of a rollout waits for every live node to do it.
SETTLING = timedelta(seconds=30)
MAX_OUTAGES = 5


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
    return _reach_weight(plan, at, seen, now) or _keep_time(plan, at, now) or _walk(plan, at, seen, now)


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
    return _reach_scale(plan, at, seen) or _reach_routing(plan, at, seen, now)


def _reach_scale(plan: Plan, at: Progress, seen: Seen) -> Decision | None:
    replicas = plan.replicas_at(at.step_index, seen.stable_replicas)
    if seen.canary_replicas == replicas:
        return None
    return Scale(replicas, f"Asked for {replicas} replicas of version {at.to_version}")


def _reach_routing(plan: Plan, at: Progress, seen: Seen, now: datetime) -> Decision | None:
    """Weight and routes of the step. More traffic only once the replicas for it are ready."""
    wanted = plan.weight_at(at.step_index)
    if wanted not in (at.weight_percent, seen.canary_weight) or at.weight_percent != seen.canary_weight:
        needed = -(-seen.stable_replicas * wanted // 100)
        if wanted > (seen.canary_weight or 0) and seen.ready < needed:
            if now - at.moved_at >= DEADLINE:
                late = f"{seen.ready} of the {needed} replicas that {wanted} % need are ready"
                return Abort(Reason.DEADLINE, f"{late} after {DEADLINE.total_seconds():.0f} s")
            return Wait(f"Waiting for room: {wanted} % need {needed} ready replicas, there are {seen.ready}")
        return Shift(wanted, f"Sent {wanted} % to version {at.to_version}")
    routing = plan.routing_at(at.step_index)
    if seen.routing != routing:
        return Route(routing, _routing_sentence(routing, at.to_version))
    return None


def _routing_sentence(routing: Routing, version: int) -> str:
    parts = [f"tenants {', '.join(routing.tenants)}"] if routing.tenants else []
    parts += [f"requests with {', '.join(dict.fromkeys(m.header for m in routing.matches))}"] * bool(
        routing.matches
    )
    parts += [f"{routing.mirror_percent} % in the shadow"] * bool(routing.mirror_percent)
    return (
        f"Routed {' and '.join(parts)} to version {version}"
        if parts
        else "Took all routes beside the weight away"
    )


def _keep_time(plan: Plan, at: Progress, now: datetime) -> Decision | None:
    """The plan's own deadlines. Time in which it waits for a person does not count against the step."""
    if at.state is State.PAUSED or plan.step(at.step_index) is None:
        return None
    limits = plan.deadlines
    for what, seconds, since in (
        (f"step {at.step_index + 1}", limits.step_seconds, at.step_started_at),
        ("the rollout", limits.rollout_seconds, at.started_at),
    ):
        if seconds is not None and since is not None and now - since >= timedelta(seconds=seconds):
            sentence = f"{what} took longer than {text_of(seconds)}"
            if limits.then is Do.PAUSE:
                return PauseNow(Reason.DEADLINE, f"Paused: {sentence}")
            return Abort(Reason.DEADLINE, sentence)
    return None


def _anything_sent(at: Progress, seen: Seen) -> bool:
    return at.weight_percent > 0 or (seen.canary_weight or 0) > 0 or seen.routing.sends


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
    beside = beside_of(plan, at, seen, now)
    found = verdict_beside(beside) if beside else None
    if found is not None and not (isinstance(found, PauseNow) and at.state is State.PAUSED):
        return found
    if at.state is State.PAUSED:
        return measure_due(beside, now) or KEEP_WAITING
    following = _step(plan, at, seen, now)
    if isinstance(following, Promote) and beside:
        following = before_promotion(plan, beside) or following
    if isinstance(following, Measure | Wait):
        return joined(following, measure_due(beside, now))
    return following


def _step(plan: Plan, at: Progress, seen: Seen, now: datetime) -> Decision:
    step = plan.step(at.step_index)
    if isinstance(step, Pause | Analysis | Experiment) and at.step_started_at is None:
        # The first step of all: its clock starts once the version is there.
        return (
            NextStep(at.step_index, f"Began: {step.sentence}")
            if seen.applied
            else Wait("Waiting for every node")
        )
    match step:
        case None:
            return Promote(f"Promoted version {at.to_version}: every step is done")
        case Pause():
            return _pause(plan, step, at, now)
        case Analysis():
            return analyse(plan, step.gates, at, seen.measured, now)
        case Experiment():
            return experiment(plan, step, at, seen, now)
        case SetCanaryScale() if seen.ready < seen.wanted:
            return _await_replicas(at, seen, now)
        case SetWeight():
            return _apply(plan, f"send {step.percent} %", at, seen, now)
    return _apply(plan, step.sentence, at, seen, now)


def _apply(plan: Plan, what: str, at: Progress, seen: Seen, now: datetime) -> Decision:
    """A step that is done once every node does it."""
    if seen.applied:
        return next_step(plan, at, f"Every node does it: {what}")
    if now - at.moved_at >= DEADLINE:
        return Abort(
            Reason.DEADLINE, f"not every node does it after {DEADLINE.total_seconds():.0f} s: {what}"
        )
    return Wait(f"Waiting for every node to {what}")


def _pause(plan: Plan, step: Pause, at: Progress, now: datetime) -> Decision:
    if step.duration_seconds is None:
        return PauseNow(Reason.PAUSE_STEP, "Paused by the plan until a person resumes")
    until = (at.step_started_at or now) + timedelta(seconds=step.duration_seconds)
    if now >= until:
        return next_step(plan, at, f"Paused for {step.duration_seconds:g} s")
    return Wait(f"Pausing until {until:%H:%M:%S} UTC")
