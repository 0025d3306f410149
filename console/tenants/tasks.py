"""What the house forgets by itself."""

from celery import shared_task

from console.tenants import idempotency, logins


@shared_task(queue="control", time_limit=60, ignore_result=True)
def forget_answers() -> None:
    """Drop answers kept for `Idempotency-Key` longer than promised."""
    idempotency.forget_old()


@shared_task(queue="control", time_limit=60, ignore_result=True)
def forget_logins() -> None:
    """Drop login attempts that no longer count."""
    logins.forget_old()
