"""The sweep behind the outbox: what was committed but never announced, because a process or Redis was away."""

from datetime import timedelta

from celery import shared_task

from console.audit import log as audit
from console.audit.models import Entry
from console.kit import clock

# Younger rows are still in the hands of whoever committed them.
_LEFT_ALONE = timedelta(seconds=2)
_AT_ONCE = 200


@shared_task(queue="control", time_limit=30, ignore_result=True)
def sweep_outbox() -> int:
    """Announce forgotten audit rows, oldest first; stops at the first that still does not go out."""
    forgotten = Entry.objects.not_announced().filter(at__lte=clock.now() - _LEFT_ALONE).order_by("id")
    announced = 0
    for entry in forgotten[:_AT_ONCE]:
        if not audit.announce(entry):
            break
        announced += 1
    return announced
