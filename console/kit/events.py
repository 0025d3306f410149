"""`publish`: tell open pages that something changed. `changed`: tell other parts of the house. Both after the commit.

Facts are pushed, HTML is pulled: a message is a topic and a version, and the page refetches with its reader's rights.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

log = logging.getLogger(__name__)

_listeners: dict[str, list[Callable[[], object]]] = defaultdict(list)


def group_of(topic: str) -> str:
    """Channel-layer group of a topic such as `rollout:42`; group names may hold no colon."""
    return "topic." + topic.replace(":", ".")


def version_now() -> int:
    """A growing version for a topic that has none of its own: milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def publish(topic: str, version: int | None = None) -> None:
    """Announce `topic` once the current transaction commits. version: growing; default milliseconds since the epoch."""
    transaction.on_commit(lambda: push(topic, version if version is not None else version_now()))


def push(topic: str, version: int) -> bool:
    """Announce now. False: the broker is away, which costs freshness, never the change itself."""
    return push_all([topic], version)


def push_all(topics: Iterable[str], version: int) -> bool:
    """Announce several topics over one connection; False when not all of them went out."""
    layer = get_channel_layer()
    if layer is None:
        return False
    wanted = list(topics)

    async def send() -> None:
        for topic in wanted:
            await layer.group_send(
                group_of(topic), {"type": "topic.changed", "topic": topic, "version": version}
            )

    try:
        async_to_sync(send)()
    except Exception as error:  # redis, OS and event-loop errors alike: pages fall back to polling
        log.warning("live events %s not sent: %s", wanted, error)
        return False
    return True


def on_change(kind: str, listener: Callable[[], object]) -> None:
    """Call `listener` after each commit that changed `kind`. Registered once, in an AppConfig.ready.

    This is how a lower layer reaches a higher one without importing it: console.tenants says changed("identity"),
    inference answers with on_change("identity", snapshot.publish).
    """
    if listener not in _listeners[kind]:
        _listeners[kind].append(listener)


def changed(kind: str) -> None:
    """Run the listeners of `kind` once the current transaction commits."""
    for listener in _listeners[kind]:
        # robust: a listener that fails must not turn a committed change into an error for the caller.
        transaction.on_commit(listener, robust=True)
