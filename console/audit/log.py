"""`record`: one immutable row for each change, written in the transaction of the change; it is the outbox as well."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

from django.db import transaction

from console.audit.models import Entry
from console.kit import clock, events

ACTIVITY = "activity"


class Named(Protocol):
    """Whoever acts: console.tenants.permissions.Actor, or anything else with a name."""

    @property
    def name(self) -> str: ...


def record(
    actor: Named | str,
    verb: str,
    target: str,
    *,
    tenant: str = "",
    reason: str = "",
    before: Any = None,
    after: Any = None,
    topics: Iterable[str] = (),
) -> Entry:
    """Write who did what to what, and announce `topics` (and `activity`) once the transaction commits.

    before, after: JSON of what changed, never a secret. tenant: slug, empty for the whole house.
    """
    entry = Entry.objects.create(
        actor=actor if isinstance(actor, str) else actor.name,
        verb=verb,
        target=target,
        tenant=tenant,
        reason=reason[:500],
        before=before,
        after=after,
        topics=[*dict.fromkeys([*topics, ACTIVITY])],
    )
    transaction.on_commit(partial(announce, entry), robust=True)
    return entry


def announce(entry: Entry) -> bool:
    """Push the entry's topics and note that it was done; False leaves it to console.live.tasks.sweep_outbox."""
    if not events.push_all(entry.topics, events.version_now()):
        return False
    entry.announced_at = clock.now()
    Entry.objects.filter(pk=entry.pk).update(announced_at=entry.announced_at)
    return True
