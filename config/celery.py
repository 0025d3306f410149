"""The Celery app: queues, routes and the beat table.

Who runs what: the controller consumes `control` and `notify`, a node's agent `node.<name>` and `jobs`.
"""

import os
from pathlib import Path

from celery import Celery, signals
from kombu import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("pilothouse")
# Current means of this thread only, and a server answers requests in many.
app.set_default()

from django.conf import settings  # noqa: E402  read after the settings module is named

CONTROL, NOTIFY, JOBS = "control", "notify", "jobs"

app.conf.update(
    broker_url=settings.REDIS_URL,
    result_backend=None,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    task_create_missing_queues=True,
    task_queues=[Queue(CONTROL), Queue(NOTIFY), Queue(JOBS)],
    task_default_queue=CONTROL,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    # A broker that is away must never end a process that supervises inference.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": 120,
        "socket_timeout": 5,
        "socket_connect_timeout": 2,
        "retry_on_timeout": True,
        # Else a publish with Redis away blocks for six seconds: a page's request, or an agent's report.
        "max_retries": 0,
        "interval_start": 0,
        "interval_step": 0.1,
        "interval_max": 0.1,
    },
    # Publishing fails fast: beat and reconciliation make a lost message only a delay.
    task_publish_retry=False,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    timezone="UTC",
    # `expires`: when the controller was away, one tick catches up; a backlog of ticks helps nobody.
    beat_schedule={
        "tick-rollouts": {"task": "rollouts.tasks.tick_due", "schedule": 1.0, "options": {"expires": 2}},
        "publish-snapshot": {
            "task": "inference.tasks.publish_snapshot",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "mark-silent-nodes": {
            "task": "inference.tasks.mark_silent_nodes",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "remove-expired-warm": {
            "task": "inference.tasks.remove_expired_warm",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "controller-seen": {
            "task": "console.kit.tasks.controller_seen",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "sweep-loadtests": {
            "task": "console.loadtests.tasks.sweep",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "forget-idempotency": {"task": "console.tenants.tasks.forget_answers", "schedule": 900.0},
        "forget-logins": {"task": "console.tenants.tasks.forget_logins", "schedule": 900.0},
        "sweep-outbox": {
            "task": "console.live.tasks.sweep_outbox",
            "schedule": 2.0,
            "options": {"expires": 2},
        },
    },
)
app.autodiscover_tasks(
    [
        "console.kit",
        "console.tenants",
        "console.live",
        "console.loadtests",
        "inference",
        "rollouts",
    ]
)

from inference import agent  # noqa: E402  imports settings

agent.install(app)


def _say_ready(**_: object) -> None:
    """Tell whoever started this process that it consumes (worker) or ticks (beat)."""
    path = os.environ.get("PILOTHOUSE_READY_FILE")
    if path:
        Path(path).touch()


signals.worker_ready.connect(_say_ready, weak=False)
signals.beat_init.connect(_say_ready, weak=False)
