"""What beat asks of the controller."""

from celery import shared_task

from rollouts import due


@shared_task(time_limit=60, soft_time_limit=50)
def tick_due() -> None:
    """Look at every rollout that is not settled."""
    due.tick_all()


@shared_task(time_limit=60, soft_time_limit=50)
def tick_one(rollout_id: int) -> None:
    """Look at one rollout now, since a person has just changed it."""
    due.tick_safely(rollout_id)
