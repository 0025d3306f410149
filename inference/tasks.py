"""Three-line tasks. Those without a queue of their own run on `control`; `node.<name>` ones run inside an agent."""

from celery import shared_task

from inference import actions, agent, fleet, snapshot
from inference.protocol import NodeReport, decode


@shared_task(name="inference.tasks.publish_snapshot", soft_time_limit=20, time_limit=30)
def publish_snapshot() -> None:
    """Beat's safety net: what was not published, because Redis was away or a process died, is published now."""
    snapshot.publish()


@shared_task(name="inference.tasks.record_report", soft_time_limit=10, time_limit=15, throws=(ValueError,))
def record_report(report_json: str) -> None:
    """One node's word about itself."""
    fleet.record(decode(report_json, NodeReport))


@shared_task(name="inference.tasks.mark_silent_nodes", soft_time_limit=10, time_limit=15)
def mark_silent_nodes() -> None:
    """Tell the pages when a node's reports have stopped."""
    fleet.mark_silent()


@shared_task(name="inference.tasks.remove_expired_warm", soft_time_limit=10, time_limit=15)
def remove_expired_warm() -> None:
    """End versions that were kept loaded for a quick return and were not needed."""
    actions.remove_expired_warm()


@shared_task(name="inference.tasks.apply_snapshot", acks_late=False)
def apply_snapshot(number: int) -> None:
    """In an agent: there is a newer snapshot to fetch. Lost or late it costs nothing, the agent looks by itself."""
    agent.here().nudge()


@shared_task(name="inference.tasks.restart_replica", acks_late=False)
def restart_replica(service: str, version: int, ordinal: int, pid: int) -> None:
    """In an agent: end this very process after its batch in hand. A repeat finds another pid and does nothing."""
    agent.here().supervisor.restart(service, version, ordinal, pid)
