"""Waiting for a rollout: the long poll of CI, and the stream of server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from rollouts.models import Rollout
from rollouts.present import decision_json, decisions_after, outcome_of, summary

LONGEST_WAIT_SECONDS = 120.0
# A rollout moves at the controller's pace, about once a second; asking faster only costs the database.
_LOOK_SECONDS = 0.5
_STREAM_LOOK_SECONDS = 1.0
_HEARTBEAT_SECONDS = 15.0
_LONGEST_STREAM_SECONDS = 3600.0  # then the client reconnects, with rights read anew


def wait(rollouts: QuerySet[Rollout], rollout_id: int, *, seconds: float) -> tuple[Rollout, bool]:
    """(the rollout, whether the time ran out): returns at an end the fleet obeys, or when a person is needed.

    rollouts: those the caller may see. Raises Rollout.DoesNotExist.
    """
    deadline = time.monotonic() + seconds
    while True:
        rollout = rollouts.get(pk=rollout_id)
        left = deadline - time.monotonic()
        if outcome_of(rollout) not in ("running", "settling"):
            return rollout, False
        if left <= 0:
            return rollout, True
        time.sleep(min(_LOOK_SECONDS, left))


async def events(rollouts: QuerySet[Rollout], rollout_id: int, *, after: int = 0) -> AsyncIterator[bytes]:
    """`rollout` when the row changed, `decision` for each one after `after`, `end` at last. Ids are decisions'."""
    seen: dict[str, Any] | None = None
    started = spoke = time.monotonic()
    yield b"retry: 2000\n\n"
    while time.monotonic() - started < _LONGEST_STREAM_SECONDS:
        rollout, fresh = await sync_to_async(_look)(rollouts, rollout_id, after)
        if rollout is None:
            return
        for decision in fresh:
            after = decision["id"]
            yield _event("decision", decision, after)
        now = summary(rollout)
        if now != seen:
            seen = now
            yield _event("rollout", now, after)
            spoke = time.monotonic()
        if rollout.is_settled:
            yield _event("end", {"outcome": outcome_of(rollout)}, after)
            return
        if time.monotonic() - spoke > _HEARTBEAT_SECONDS:
            yield b": still here\n\n"
            spoke = time.monotonic()
        await asyncio.sleep(_STREAM_LOOK_SECONDS)


def _look(
    rollouts: QuerySet[Rollout], rollout_id: int, after: int
) -> tuple[Rollout | None, list[dict[str, Any]]]:
    rollout = rollouts.filter(pk=rollout_id).first()
    if rollout is None:
        return None, []
    return rollout, [decision_json(row) for row in decisions_after(rollout, after)]


def _event(name: str, data: dict[str, Any], event_id: int) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event_id, name.encode(), orjson.dumps(data))
