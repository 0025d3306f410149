"""The only lock: one disturbing operation per target, with owner, expiry and fence.

A lease belongs to an operation (`rollout:42`), not to a process: it stays after the block ends, so that nobody else
disturbs the target between two ticks, and lapses by itself when nothing renews it. Each `hold` gets a higher fence;
whatever writes on behalf of the lease carries it, so a tick that was frozen for a minute cannot undo a later one.

Who may pre-empt whom: nobody, but `taking_over=True`, which is for putting a target back into its safe state.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Q
from django.db.models.functions import Now

from console.kit.errors import Conflict
from console.services.models import Lease as Row

SECONDS = 30.0


class LeaseHeld(Conflict):
    """Somebody else disturbs the target. by: the owner; until: when it lapses unless renewed."""

    code = "lease_held"

    def __init__(self, target: str, by: str, until: datetime | None) -> None:
        when = f" until {until:%H:%M:%S} UTC" if until is not None else ""
        super().__init__(f"{target} is held by {by}{when}.", fields={"target": target, "by": by})
        self.target = target
        self.by = by
        self.until = until


@dataclass(frozen=True, slots=True)
class Lease:
    """What the holder carries into every write."""

    target: str
    owner: str
    fence: int


@contextmanager
def hold(target: str, owner: str, *, seconds: float = SECONDS, taking_over: bool = False) -> Iterator[Lease]:
    """Take or renew the lease on `target`; raises LeaseHeld when another owner has it.

    It is not given back at the end of the block; `release` does that when the operation is over.
    """
    yield take(target, owner, seconds=seconds, taking_over=taking_over)


def take(target: str, owner: str, *, seconds: float = SECONDS, taking_over: bool = False) -> Lease:
    """As `hold`, for callers that have no block."""
    if not owner:
        raise ValueError("a lease needs an owner")
    _ensure_row(target)
    free = (
        Q(pk=target) if taking_over else Q(pk=target) & (Q(owner__in=["", owner]) | Q(expires_at__lte=Now()))
    )
    # The database's clock alone decides: console and controller may run on machines that disagree.
    until = ExpressionWrapper(Now() + timedelta(seconds=seconds), output_field=DateTimeField())
    with transaction.atomic():
        taken = Row.objects.filter(free).update(owner=owner, fence=F("fence") + 1, expires_at=until)
        # Read inside the transaction: the row is ours to the commit, so this is the fence just written.
        row = Row.objects.get(pk=target)
    if not taken:
        raise LeaseHeld(target, row.owner, row.expires_at)
    return Lease(target, owner, row.fence)


def release(target: str, owner: str) -> bool:
    """Give the lease back; False when `owner` no longer had it."""
    return bool(Row.objects.filter(pk=target, owner=owner).update(owner="", expires_at=None))


def holder(target: str) -> str:
    """Who may disturb the target now; empty: nobody."""
    owner = Row.objects.filter(pk=target, expires_at__gt=Now()).values_list("owner", flat=True).first()
    return owner or ""


def _ensure_row(target: str) -> None:
    if Row.objects.filter(pk=target).exists():
        return
    try:
        with transaction.atomic():
            Row.objects.create(target=target)
    except IntegrityError:
        pass  # another process made it between the two statements
