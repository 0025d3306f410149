"""`/ws/live`: which of the reader's topics changed. Facts are pushed; the page fetches the HTML with its own rights.

In:  {"subscribe": ["rollout:42"]}, {"unsubscribe": ["rollout:42"]}
Out: {"topic": "rollout:42", "version": 17}, {"subscribed": [...], "refused": [...]}, {"alive": 1}, {"error": "..."}
"""

import asyncio
import contextlib
import time
from importlib import import_module
from typing import Any

import orjson
from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from console.kit import metrics
from console.kit.events import group_of
from console.live.topics import may_hear
from console.tenants.permissions import Actor, of_user

MOST_TOPICS = 64
MOST_BYTES = 8192
LEAST_SECONDS = 0.25  # between two messages of one topic: four a second, the last one wins
ALIVE_SECONDS = 8.0
RIGHTS_SECONDS = 60.0

NOBODY, TOO_MUCH = 4401, 4409  # close codes: sign in again; a client that does not keep to the bounds


class LiveConsumer(AsyncWebsocketConsumer):
    """One open page. Its rights are looked at when it subscribes and again every minute."""

    async def connect(self) -> None:
        self.topics: set[str] = set()
        self.sent_at: dict[str, float] = {}
        self.waiting: dict[str, int] = {}
        self.flushes: set[asyncio.Task[None]] = set()
        self.watch: asyncio.Task[None] | None = None
        actor = await _actor(self.scope)
        await self.accept()
        if actor is None:
            # Accepted first: a browser is not told the reason of a refused handshake, only of a close.
            await self.close(code=NOBODY)
            return
        metrics.LIVE_CONNECTIONS.inc()
        self.watch = asyncio.create_task(self._watch())

    async def disconnect(self, code: int) -> None:
        if self.watch is None:
            return
        metrics.LIVE_CONNECTIONS.dec()
        for task in (self.watch, *self.flushes):
            task.cancel()
        for topic in list(self.topics):
            # Redis may be the reason that we end; it forgets the group by itself.
            with contextlib.suppress(Exception):
                await self.channel_layer.group_discard(group_of(topic), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if text_data is None or len(text_data) > MOST_BYTES:
            await self._refuse("a message is JSON text of at most 8 KiB")
            return
        wanted = _read(text_data)
        if wanted is None:
            await self._refuse('send {"subscribe": ["rollout:42"]}')
            return
        subscribe, unsubscribe = wanted
        for topic in unsubscribe:
            await self._leave(topic)
        if subscribe:
            await self._subscribe(subscribe)

    async def _subscribe(self, wanted: list[Any]) -> None:
        new = [topic for topic in dict.fromkeys(wanted) if topic not in self.topics]
        if len(self.topics) + len(new) > MOST_TOPICS:
            await self._refuse(f"at most {MOST_TOPICS} topics for each connection")
            return
        actor = await _actor(self.scope)
        if actor is None:
            await self.close(code=NOBODY)
            return
        heard = await _audible(actor, new)
        for topic in heard:
            await self.channel_layer.group_add(group_of(topic), self.channel_name)
            self.topics.add(topic)
        refused = [topic for topic in new if topic not in self.topics]
        await self._say({"subscribed": sorted(heard), "refused": refused})

    async def _leave(self, topic: str) -> None:
        if topic in self.topics:
            self.topics.discard(topic)
            self.sent_at.pop(topic, None)
            self.waiting.pop(topic, None)
            await self.channel_layer.group_discard(group_of(topic), self.channel_name)

    async def topic_changed(self, event: dict[str, Any]) -> None:
        """From console.kit.events. Bursts are thinned here; the last version of a burst always arrives."""
        topic, version = event["topic"], event["version"]
        if topic not in self.topics:
            return
        if topic in self.waiting:
            self.waiting[topic] = max(self.waiting[topic], version)
            return
        wait = LEAST_SECONDS - (time.monotonic() - self.sent_at.get(topic, float("-inf")))
        if wait <= 0:
            await self._tell(topic, version)
            return
        self.waiting[topic] = version
        task = asyncio.create_task(self._flush(topic, wait))
        self.flushes.add(task)
        task.add_done_callback(self.flushes.discard)

    async def _flush(self, topic: str, wait: float) -> None:
        await asyncio.sleep(wait)
        version = self.waiting.pop(topic, None)
        if version is not None and topic in self.topics:
            await self._tell(topic, version)

    async def _tell(self, topic: str, version: int) -> None:
        self.sent_at[topic] = time.monotonic()
        await self._say({"topic": topic, "version": version})

    async def live_echo(self, event: dict[str, Any]) -> None:
        """Our own question came back, so what others announce would reach us too."""
        await self._say({"alive": 1})

    async def _watch(self) -> None:
        """Signs of life by way of Redis, and a regular look at whether the reader still may hear what they hear.

        An open socket proves nothing while Redis is away: without the echo the page goes over to polling.
        """
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            with contextlib.suppress(Exception):  # whatever the layer's client raises: silence is the message
                await self.channel_layer.send(self.channel_name, {"type": "live.echo"})
            if time.monotonic() - looked_at >= RIGHTS_SECONDS:
                looked_at = time.monotonic()
                await self._look_again()

    async def _look_again(self) -> None:
        actor = await _actor(self.scope)
        if actor is None:
            await self.close(code=NOBODY)
            return
        lost = self.topics - set(await _audible(actor, sorted(self.topics)))
        for topic in lost:
            await self._leave(topic)
        if lost:
            await self._say({"subscribed": [], "refused": sorted(lost)})

    async def _refuse(self, why: str) -> None:
        await self._say({"error": why})
        await self.close(code=TOO_MUCH)

    async def _say(self, message: dict[str, Any]) -> None:
        await self.send(text_data=orjson.dumps(message).decode())


def _read(text: str) -> tuple[list[Any], list[Any]] | None:
    """(subscribe, unsubscribe); None when it is not one of our messages."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(message, dict) or not message.keys() <= {"subscribe", "unsubscribe"}:
        return None
    subscribe, unsubscribe = message.get("subscribe", []), message.get("unsubscribe", [])
    for listed in (subscribe, unsubscribe):
        if not isinstance(listed, list) or not all(isinstance(topic, str) for topic in listed):
            return None
    return subscribe, unsubscribe


async def _actor(scope: dict[str, Any]) -> Actor | None:
    """Whoever the session belongs to now: read anew, since people sign out, change passwords and are switched off."""
    session = scope.get("session")
    if session is None or not session.session_key:
        return None
    # A fresh store: the one in the scope remembers what it read when the page was opened.
    fresh = import_module(settings.SESSION_ENGINE).SessionStore(session.session_key)
    user = await get_user({"session": fresh})
    return await _with_roles(user) if user.is_authenticated and user.is_active else None


@database_sync_to_async
def _with_roles(user: Any) -> Actor:
    return of_user(user)


@database_sync_to_async
def _audible(actor: Actor, topics: list[Any]) -> list[str]:
    return [topic for topic in topics if may_hear(actor, topic)]
