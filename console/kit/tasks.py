"""The controller's sign of life."""

from celery import shared_task

from console.kit import broker, clock

_KEEP_SECONDS = 3600


@shared_task(queue="control", time_limit=10, ignore_result=True)
def controller_seen() -> None:
    """Proves that beat, broker and controller work together; /readyz reads it."""
    broker.client().set(broker.CONTROLLER_SEEN_KEY, clock.now().timestamp(), ex=_KEEP_SECONDS)
