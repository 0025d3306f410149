"""`publish`: tell open pages that something changed, after the commit that changed it.

Facts are pushed, HTML is pulled: a message is a topic and a version, and the page refetches with its reader's own rights.
"""

import logging
import time

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

log = logging.getLogger(__name__)


def group_of(topic: str) -> str:
    """Channel-layer group of a topic such as `rollout:42`; group names may hold no colon."""
    return "topic." + topic.replace(":", ".")


def publish(topic: str, version: int | None = None) -> None:
    """Announce `topic` once the current transaction commits. version: growing; default milliseconds since the epoch."""
    transaction.on_commit(lambda: push(topic, version if version is not None else time.time_ns() // 1_000_000))


def push(topic: str, version: int) -> None:
    """Announce now. A broker that is away costs freshness, never the change itself."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(layer.group_send)(group_of(topic), {"type": "topic.changed", "topic": topic, "version": version})
    except Exception as error:  # redis, OS and event-loop errors alike: pages fall back to polling
        log.warning("live event %s not sent: %s", topic, error)
