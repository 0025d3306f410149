"""What beat asks of the controller, and what an agent does."""

from celery import shared_task

from console.loadtests import actions, runner


@shared_task(name="console.loadtests.tasks.run", acks_late=False)
def run(loadtest_id: int) -> None:
    """In an agent: run it on a thread of its own, so that the node's other tasks do not wait for minutes."""
    runner.begin(loadtest_id)


@shared_task(name="console.loadtests.tasks.sweep", soft_time_limit=20, time_limit=30)
def sweep() -> None:
    """End what lost its agent, and ask for what none has taken."""
    actions.sweep()
