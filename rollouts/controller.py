"""One tick of a rollout. Safe to run twice, late, or to be killed anywhere: the next one ends the same.

The end of a rollout is an intent that is committed first and then made true: once the row says aborted or promoted,
every tick tells the fleet again until it obeys, whatever failed in between.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from console.kit import clock
from console.kit.errors import OperationError
from console.metrics.choose import source as chosen_source
from console.metrics.source import SignalSource
from console.services import leases
from console.tenants.permissions import process
from inference.models import Version
from rollouts import decisions as d
from rollouts.decide import decide
from rollouts.measure import measure
from rollouts.models import Rollout
from rollouts.observe import progress_of, seen_by
from rollouts.record import note, record
from rollouts.states import Reason, State
from rollouts.traffic.base import Standing, TrafficTarget
from rollouts.traffic.choose import target as chosen_target

log = logging.getLogger(__name__)

# Measurements are judged at once and an end is told to the fleet at once; nothing else moves twice in one tick.
_MOVES = 4


@dataclass(frozen=True, slots=True)
class World:
    """What a tick may touch besides the database."""

    target: TrafficTarget
    source: SignalSource


def tick(rollout_id: int, *, world: World | None = None) -> None:
    """Advance one rollout by at most one step."""
    rollout = _load(rollout_id)
    if rollout.is_settled or _is_behind_another(rollout):
        return
    if rollout.is_terminal and rollout.placed_at is None:
        _settle(rollout)  # it never touched the fleet, so it needs no lease to leave it
        return
    world = world or World(chosen_target(), chosen_source())
    try:
        lease = _enter(rollout)
        if lease is not None:
            _advance(_load(rollout_id), world, lease.fence)
    except leases.LeaseHeld as held:
        reason = Reason.WAITING_FOR_LEASE if rollout.state == State.QUEUED else rollout.reason
        note(rollout, f"Waiting: {held.detail}", reason=reason)
    except OperationError as error:
        # A lost race, or a target that refuses: the next tick looks again.
        level = logging.WARNING if rollout.is_terminal else logging.INFO
        log.log(level, "rollout %s (%s): %s", rollout_id, rollout.state, error.detail)


def _enter(rollout: Rollout) -> leases.Lease | None:
    """Take or renew the rollout's lease; None when it was settled meanwhile, whose lease nobody would give back."""
    with transaction.atomic():
        # The row first, then the lease, as in _settle: two ticks in different order would lock each other out.
        row = Rollout.objects.select_for_update().get(pk=rollout.pk)
        if row.is_settled:
            return None
        # Putting the fleet back into its safe state waits for nobody.
        return leases.take(rollout.target, rollout.owner, taking_over=row.is_terminal)


def _load(rollout_id: int) -> Rollout:
    return Rollout.objects.with_names().get(pk=rollout_id)


def _is_behind_another(rollout: Rollout) -> bool:
    if rollout.state != State.QUEUED:
        return False
    earlier = Rollout.objects.before(rollout).order_by("pk").first()
    if earlier is not None:
        note(rollout, f"Waiting for rollout {earlier.pk} of the same service to end")
    return earlier is not None


def _advance(rollout: Rollout, world: World, fence: int) -> None:
    for _ in range(_MOVES):
        if rollout.is_settled:
            return
        now = clock.now()
        standing = world.target.look(rollout.service, rollout.to_version)
        decision = decide(rollout.plan, progress_of(rollout), seen_by(rollout, standing), now)
        _apply(rollout, decision, standing, world, fence, now)
        if not isinstance(decision, d.Measure | d.Abort | d.Promote | d.Install | d.Withdraw):
            return


def _apply(
    rollout: Rollout, decision: d.Decision, standing: Standing, world: World, fence: int, now: datetime
) -> None:
    write = _Writer(rollout, now)
    service, version, actor = rollout.service, rollout.to_version, process(rollout.owner)
    match decision:
        case d.Wait(sentence):
            note(rollout, sentence)
        case d.Measure():
            measure(rollout, decision, world.source, now)
        case d.Start(sentence):
            # Whoever waited for another rollout replaces what that one left as stable.
            stable = Version.objects.filter(service=service, number=standing.stable_version or 0).first()
            begun = {"state": State.PROGRESSING, "reason": Reason.NONE, "from_version": stable}
            write("begin", sentence, begun_at=now, **begun)
        case d.Clear(number, sentence):
            left = Version.objects.get(service=service, number=number)
            world.target.withdraw(service, left, actor=actor, fence=fence)
            write("clear", sentence)
        case d.Place(sentence):
            # Written before it is done: whoever ends this rollout then knows that there is something to take away.
            if rollout.placed_at is None:
                write("place", sentence, placed_at=now)
            replicas = rollout.plan.replicas_at(rollout.step_index, standing.stable_replicas)
            world.target.place(service, version, replicas=replicas, actor=actor, fence=fence)
        case d.Shift(percent, sentence, outage):
            world.target.shift(service, version, weight_percent=percent, actor=actor, fence=fence)
            outages = rollout.outages + outage
            write("shift", sentence, weight_percent=percent, outages=outages)
        case d.Scale(replicas, sentence):
            world.target.place(service, version, replicas=replicas, actor=actor, fence=fence)
            write("scale", sentence)
        case d.Route(routing, sentence):
            world.target.route(service, version, routing=routing, actor=actor, fence=fence)
            write("route", sentence)
        case d.NextStep(index, sentence, evidence):
            write("next_step", sentence, evidence, **_entering(rollout, index, now))
        case d.PauseNow(reason, sentence, evidence):
            write("pause", sentence, evidence, state=State.PAUSED, reason=reason, paused_at=now)
        case d.Abort(reason, sentence, evidence):
            write("abort", f"Aborted: {sentence}", evidence, **ended(State.ABORTED, reason))
        case d.Promote(sentence):
            write("promote", sentence, **ended(State.PROMOTED))
        case d.Install():
            watch = rollout.plan.watch
            warm = watch.seconds if watch else 0.0
            world.target.install(service, version, warm_seconds=warm, actor=actor, fence=fence)
        case d.Withdraw():
            world.target.withdraw(service, version, actor=actor, fence=fence)
        case d.Settle():
            _settle(rollout)


def ended(state: State, reason: Reason = Reason.NONE) -> dict[str, Any]:
    """The columns of a rollout that ends in `state`; also for people's verbs."""
    weight = 100 if state is State.PROMOTED else 0
    return {"state": state, "reason": reason, "weight_percent": weight}


def _entering(rollout: Rollout, index: int, now: datetime) -> dict[str, Any]:
    """The columns of a rollout that enters step `index`, whose clock starts now."""
    changes: dict[str, Any] = {"step_index": index, "step_started_at": now, "judged_from": now}
    plan, left = rollout.plan, rollout.step_index
    reached = plan.weight_at(left) > 0 or plan.routing_at(left).sends
    if rollout.traffic_since is None and index > left and reached:
        changes["traffic_since"] = now
    return changes


def _settle(rollout: Rollout) -> None:
    now = clock.now()
    changes: dict[str, Any] = {"settled_at": now}
    if rollout.state == State.PROMOTED and (watch := rollout.plan.watch) is not None:
        changes["watch_until"] = now + timedelta(seconds=watch.seconds)
    with transaction.atomic():
        # Together: a lease given back by a rollout that still thinks it has to act would be taken over again.
        note(rollout, "", **changes)
        leases.release(rollout.target, rollout.owner)


class _Writer:
    """`record` with what is the same for every decision of one tick."""

    def __init__(self, rollout: Rollout, now: datetime) -> None:
        self._rollout = rollout
        self._now = now

    def __call__(self, kind: str, sentence: str, evidence: Any = None, **changes: Any) -> None:
        record(
            self._rollout,
            kind=kind,
            sentence=sentence,
            actor=self._rollout.owner,
            at=self._now,
            evidence=evidence,
            **changes,
        )
