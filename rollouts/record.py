"""The one place that writes a rollout: on condition of the revision that was read, with its decision, in one go.

Controller and people race for the same row; whoever read an old revision gets Stale and has changed nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from console.audit import log as audit
from console.kit.etags import stale
from console.kit.events import publish
from rollouts.models import Decision, Measurement, Rollout
from rollouts.states import TERMINAL, State


def record(
    rollout: Rollout,
    *,
    kind: str,
    sentence: str,
    actor: str,
    at: datetime,
    evidence: Mapping[str, Any] | None = None,
    given_reason: str = "",
    **changes: Any,
) -> None:
    """Write `changes`, the decision and, when the state moves, the audit row. Raises Stale, or Conflict by the table.

    given_reason: a person's words; `reason` among the changes is the rollout's own, of rollouts.states.Reason.
    """
    before = rollout.state
    to_state = State(changes.get("state", before))
    rollout.check_move(to_state)
    changes = {**changes, "message": sentence[:500], "moved_at": at, "revision": rollout.revision + 1}
    if to_state in TERMINAL:
        changes["finished_at"] = at
    with transaction.atomic():
        _write(rollout, changes)
        words = {"given_reason": given_reason} if given_reason else {}
        _decide(rollout, kind, sentence, actor, at, before, {**(evidence or {}), **words})
        announce(rollout)
        if to_state != before or actor != rollout.owner:
            _audit(rollout, kind, actor, before={"state": before}, reason=given_reason or sentence)


def record_request(rollout: Rollout, actor: str, *, given_reason: str = "") -> None:
    """The first decision of a rollout that was just made: who asked for what."""
    how = f" by {rollout.strategy_name}" if rollout.strategy_name else ""
    sentence = f"{actor} asked for version {rollout.to_version.number}{how}"
    words = {"given_reason": given_reason} if given_reason else {}
    _decide(rollout, "request", sentence, actor, rollout.created_at, rollout.state, words)
    announce(rollout)
    _audit(rollout, "start", actor, before=None, reason=given_reason or sentence)


def _decide(
    rollout: Rollout,
    kind: str,
    sentence: str,
    actor: str,
    at: datetime,
    from_state: str,
    evidence: Mapping[str, Any],
) -> None:
    Decision.objects.create(
        rollout=rollout,
        at=at,
        actor=actor,
        kind=kind,
        step_index=rollout.step_index,
        from_state=from_state,
        to_state=rollout.state,
        weight_percent=rollout.weight_percent,
        sentence=sentence[:500],
        evidence=dict(evidence),
        revision=rollout.revision,
    )


def note(rollout: Rollout, sentence: str, **changes: Any) -> None:
    """Write what is waited for. No decision and no new revision: a person's If-Match stays good.

    A lost race is nothing to tell: the winner's sentence is newer.
    """
    changes = {**changes, "message": sentence[:500]} if sentence else changes
    changes = {name: value for name, value in changes.items() if getattr(rollout, name) != value}
    if not changes:
        return
    with transaction.atomic():
        if Rollout.objects.filter(pk=rollout.pk, revision=rollout.revision).update(**changes):
            announce(rollout)
    for name, value in changes.items():
        setattr(rollout, name, value)


def add_measurements(rollout: Rollout, rows: list[Measurement]) -> None:
    """Raises Stale when another tick measured, or anybody moved the rollout, meanwhile."""
    with transaction.atomic():
        taken = Rollout.objects.filter(
            pk=rollout.pk, revision=rollout.revision, measured=rollout.measured
        ).update(measured=rollout.measured + len(rows))
        if not taken:
            raise stale(rollout.revision, rollout.revision)
        Measurement.objects.bulk_create(rows)
        announce(rollout)
    rollout.measured += len(rows)


def announce(rollout: Rollout) -> None:
    for topic in rollout.topics:
        publish(topic)


def _write(rollout: Rollout, changes: dict[str, Any]) -> None:
    seen = rollout.revision
    if not Rollout.objects.filter(pk=rollout.pk, revision=seen).update(**changes):
        found = Rollout.objects.values_list("revision", flat=True).get(pk=rollout.pk)
        raise stale(found, seen)
    for name, value in changes.items():
        setattr(rollout, name, value)


def _audit(rollout: Rollout, kind: str, actor: str, *, before: Any, reason: str) -> None:
    audit.record(
        actor,
        f"rollout.{kind}",
        f"rollout:{rollout.pk}",
        tenant=rollout.service.tenant.slug,
        reason=reason,
        before=before,
        after={
            "state": str(rollout.state),
            "reason": str(rollout.reason),
            "service": rollout.service.name,
            "version": rollout.to_version.number,
            "weight_percent": rollout.weight_percent,
        },
        topics=rollout.topics,
    )
