"""The verbs of people and CI on rollouts. Each: may, state table, one transaction with decision, audit and events.

None of them takes the lease or waits for the fleet: they write what is wanted, and the controller makes it true.
So an abort works at any moment, whoever holds what.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from console.kit import clock
from console.kit.errors import Conflict, Forbidden, Invalid
from console.kit.etags import check_revision
from console.services.models import Service
from console.tenants.permissions import Actor, require
from inference.models import Placement, Version
from rollouts.controller import ended
from rollouts.models import Rollout, Strategy
from rollouts.plan import Plan, parse
from rollouts.record import record, record_request
from rollouts.states import FACES, Reason, State
from rollouts.strategies import DEFAULT, RETURN

RETURN_WINDOW = 3  # promotions
ON_NEW_VERSION = ("supersede", "queue", "reject")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A rollout as asked for. strategy: a name, or steps, or an object with steps and options.

    None: the short way for a version that lately carried all the traffic, else the default strategy.
    """

    service: Service
    version: Version
    strategy: str | list[Any] | dict[str, Any] | None = None
    on_new_version: str = "supersede"


@dataclass(frozen=True, slots=True)
class Draft:
    """A rollout that was checked and not begun. supersedes, behind: ids of rollouts it would end or wait for."""

    wanted: Wanted
    plan: Plan
    strategy_name: str
    stable: Version | None
    supersedes: list[Rollout] = field(default_factory=list)
    behind: list[Rollout] = field(default_factory=list)


def draft(wanted: Wanted, *, actor: Actor) -> Draft:
    """Check everything that `start` checks and change nothing; also the preview of a start."""
    service = wanted.service
    require(actor, "rollout.start", service.tenant, visible=True)
    if wanted.on_new_version not in ON_NEW_VERSION:
        raise Invalid(
            "The rollout cannot start.", fields={"on_new_version": f"one of {', '.join(ON_NEW_VERSION)}"}
        )
    if wanted.version.service_id != service.pk:
        raise Invalid("The rollout cannot start.", fields={"version": f"is not a version of {service}"})
    plan, name = _plan_of(wanted)
    check_weight(actor, plan, 0)
    others = list(Rollout.objects.unfinished().filter(service=service).with_names().order_by("pk"))
    stable = Placement.objects.of(service).stable().first()
    _check_others(wanted, others, stable.version if stable else None)
    return Draft(
        wanted,
        plan,
        name,
        stable.version if stable else None,
        supersedes=[other for other in others if other.on_new_version == "supersede"],
        behind=[other for other in others if other.on_new_version == "queue"],
    )


def _plan_of(wanted: Wanted) -> tuple[Plan, str]:
    match wanted.strategy:
        case list() | dict():
            return parse(wanted.strategy, path="strategy.steps"), ""
        case None if is_return(wanted.service, wanted.version):
            return parse(RETURN), "return"
        case None:
            name = DEFAULT
        case name:
            pass
    strategy = Strategy.objects.named(name, wanted.service.tenant)
    if strategy is None:
        raise Invalid("The rollout cannot start.", fields={"strategy": f"there is no strategy {name!r}"})
    return parse(strategy.steps, options=strategy.options), strategy.name


def check_weight(actor: Actor, plan: Plan, index: int) -> None:
    """Raises Forbidden for a token that may not let the version come as far as the plan does before a person looks."""
    reached = plan.most_weight_from(index)
    if reached > actor.most_weight_percent:
        raise Forbidden(
            f"{actor.name} may give a new version at most {actor.most_weight_percent} %; without a pause for a"
            f" person this would reach {reached} %.",
            code="weight_limited",
        )


def is_return(service: Service, version: Version) -> bool:
    """It was stable before one of the last promotions: it proved itself, and may still be loaded."""
    lately = Rollout.objects.filter(service=service, state=State.PROMOTED).order_by("-pk")[:RETURN_WINDOW]
    return any(version.pk in (one.from_version_id, one.to_version_id) for one in lately)


def _check_others(wanted: Wanted, others: list[Rollout], stable: Version | None) -> None:
    for other in others:
        if other.to_version_id == wanted.version.pk and other.on_new_version != "queue":
            raise Conflict(
                f"Rollout {other.pk} is bringing version {wanted.version.number} already.",
                fields={"version": f"rollout {other.pk} is {other.state}"},
            )
        if other.on_new_version == "reject":
            raise Conflict(
                f"Rollout {other.pk} to version {other.to_version.number} is {other.state} and lets no other begin.",
                fields={"service": f"rollout {other.pk} has on_new_version: reject"},
            )
    if stable is not None and stable.pk == wanted.version.pk and not others:
        raise Conflict(
            f"Version {stable.number} is the stable version of {wanted.service} already.",
            fields={"version": "already stable"},
        )


def start(wanted: Wanted, *, actor: Actor, reason: str = "", retry_of: Rollout | None = None) -> Rollout:
    """Begin a rollout: what runs on the service is superseded, waited for, or refuses, as it was told when it began."""
    with transaction.atomic():
        # One start at a time for each service, so that two of them see each other.
        Service.objects.select_for_update().get(pk=wanted.service.pk)
        ready = draft(wanted, actor=actor)
        now = clock.now()
        rollout = Rollout.objects.create(
            service=wanted.service,
            # The stable version, not the canary that may run now: the middle one was never proven.
            from_version=ready.stable,
            to_version=wanted.version,
            strategy_name=ready.strategy_name,
            steps=ready.plan.as_json(),
            options=ready.plan.options_as_json(),
            on_new_version=wanted.on_new_version,
            message="Waiting for the controller",
            retry_of=retry_of,
            created_by=actor.name,
            created_at=now,
            moved_at=now,
        )
        for other in ready.supersedes:
            sentence = f"Superseded by rollout {rollout.pk} to version {wanted.version.number}"
            record(
                other,
                kind="supersede",
                sentence=sentence,
                actor=actor.name,
                at=now,
                **ended(State.SUPERSEDED, Reason.NEWER_VERSION),
            )
        record_request(rollout, actor.name, given_reason=reason)
        _nudge([other.pk for other in ready.supersedes] + [rollout.pk])
    return rollout


def pause(rollout: Rollout, *, actor: Actor, reason: str = "", revision: int | None = None) -> Rollout:
    """Hold every step where it is; traffic stays as it is."""

    def change(row: Rollout) -> dict[str, Any]:
        return {"state": State.PAUSED, "reason": Reason.MANUAL, "paused_at": clock.now()}

    return _act(rollout, "pause", "Paused by {actor}", change, actor=actor, reason=reason, revision=revision)


def resume(rollout: Rollout, *, actor: Actor, reason: str = "", revision: int | None = None) -> Rollout:
    """Go on: past a pause that waited for a person, into a fresh analysis where it did not know, else where it was."""
    return _act(
        rollout, "resume", "Resumed by {actor}", _resumed, actor=actor, reason=reason, revision=revision
    )


def _resumed(row: Rollout) -> dict[str, Any]:
    now = clock.now()
    going = {"state": State.PROGRESSING, "reason": Reason.NONE, "paused_at": None}
    match Reason(row.reason):
        case Reason.PAUSE_STEP:
            return going | _at_step(row.step_index + 1)
        case Reason.MANUAL:
            # The time it was held does not count: a pause of 5 minutes still lasts 5 minutes of progress.
            held = now - (row.paused_at or now)
            started = row.step_started_at
            return going | {"judged_from": now} | ({"step_started_at": started + held} if started else {})
        case _:
            return going | {"step_started_at": now, "judged_from": now, "beside_from": now}


def skip(rollout: Rollout, *, actor: Actor, reason: str = "", revision: int | None = None) -> Rollout:
    """Leave the present step undone and go to the next one."""

    def change(row: Rollout) -> dict[str, Any]:
        index = min(row.step_index + 1, len(row.plan.steps))
        return {"state": State.PROGRESSING, "reason": Reason.NONE, "paused_at": None} | _at_step(index)

    sentence = "Step {step} was skipped by {actor}"
    return _act(rollout, "skip", sentence, change, actor=actor, reason=reason, revision=revision)


def promote(rollout: Rollout, *, actor: Actor, reason: str = "", revision: int | None = None) -> Rollout:
    """Leave all remaining steps undone; the version becomes stable once its replicas are ready."""

    def change(row: Rollout) -> dict[str, Any]:
        end = _at_step(len(row.plan.steps))
        return {"state": State.PROGRESSING, "reason": Reason.NONE, "paused_at": None} | end

    sentence = "Every remaining step was skipped by {actor}"
    return _act(rollout, "promote", sentence, change, actor=actor, reason=reason, revision=revision)


def abort(rollout: Rollout, *, actor: Actor, reason: str = "", revision: int | None = None) -> Rollout:
    """Give up: stable gets all the traffic. Works in every state but a finished one, whoever holds the lease."""

    def change(row: Rollout) -> dict[str, Any]:
        return ended(State.ABORTED, Reason.MANUAL)

    return _act(rollout, "abort", "Aborted by {actor}", change, actor=actor, reason=reason, revision=revision)


def retry(rollout: Rollout, *, actor: Actor, reason: str = "", revision: int | None = None) -> Rollout:
    """A new rollout with the same plan; the old record stays as it ended."""
    check(rollout, "retry", actor=actor)
    check_revision(rollout, revision)
    strategy = {"steps": rollout.steps, **rollout.options}
    wanted = Wanted(rollout.service, rollout.to_version, strategy, rollout.on_new_version)
    return start(wanted, actor=actor, reason=reason, retry_of=rollout)


def go_back(rollout: Rollout, *, actor: Actor, reason: str) -> Rollout:
    """After a promotion that turned out badly: the version before takes over again, at once."""
    if rollout.from_version is None:
        raise Conflict(f"Rollout {rollout.pk} replaced nothing; there is no version to go back to.")
    wanted = Wanted(rollout.service, rollout.from_version, RETURN)
    return start(wanted, actor=actor, reason=reason)


VERBS: dict[str, Callable[..., Rollout]] = {
    "pause": pause,
    "resume": resume,
    "skip": skip,
    "promote": promote,
    "abort": abort,
    "retry": retry,
}


def check(rollout: Rollout, verb: str, *, actor: Actor) -> None:
    """Raises unless the actor may and the state allows the verb; also for previews and buttons."""
    require(actor, f"rollout.{verb}", rollout.service.tenant, visible=True)
    if verb not in FACES[State(rollout.state)].verbs:
        raise Conflict(
            f"Rollout {rollout.pk} is {rollout.state}; {verb} is not possible now.",
            fields={"state": rollout.state},
        )
    if verb in _ONWARD:
        check_weight(actor, rollout.plan, _ONWARD[verb](rollout))


# Verbs that move a version on, and the step from which they do.
_ONWARD: dict[str, Callable[[Rollout], int]] = {
    "resume": lambda rollout: rollout.step_index + (rollout.reason == Reason.PAUSE_STEP),
    "skip": lambda rollout: rollout.step_index + 1,
    "promote": lambda rollout: len(rollout.steps),
}


def _act(
    rollout: Rollout,
    verb: str,
    sentence: str,
    change: Callable[[Rollout], dict[str, Any]],
    *,
    actor: Actor,
    reason: str,
    revision: int | None,
) -> Rollout:
    """Apply `change` to the newest row: the controller's own steps in between are no reason to refuse a person."""
    with transaction.atomic():
        # Locked on PostgreSQL; on SQLite the transaction itself is the lock. A tick that decided before then loses.
        row = Rollout.objects.with_names().select_for_update(of=("self",)).get(pk=rollout.pk)
        check(row, verb, actor=actor)
        check_revision(row, revision)
        said = sentence.format(actor=actor.name, step=row.step_index + 1)
        said = f"{said}: {reason}" if reason else said
        changes = change(row)
        record(
            row, kind=verb, sentence=said, actor=actor.name, at=clock.now(), given_reason=reason, **changes
        )
        _nudge([row.pk])
    return row


def _at_step(index: int) -> dict[str, Any]:
    now = clock.now()
    return {"step_index": index, "step_started_at": now, "judged_from": now}


def _nudge(rollout_ids: list[int]) -> None:
    """Have the controller look now instead of at its next tick. Lost: it looks within a second or two anyway."""

    def send() -> None:
        try:
            for rollout_id in rollout_ids:
                current_app.send_task(
                    "rollouts.tasks.tick_one", args=[rollout_id], queue="control", expires=10
                )
        except (OperationalError, OSError):
            pass

    transaction.on_commit(send, robust=True)
