"""`/ws/live` over a real Redis: who hears what, bursts are thinned, bounds are kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from console.audit.log import record
from console.audit.models import Entry
from console.kit.events import push
from console.live import consumer
from console.live.tasks import sweep_outbox
from tests import factories
from tests.cast import Person, make_cast
from tests.services.redis import RedisServer
from tests.ui.sockets import Socket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_server")]


@asynccontextmanager
async def connected(person: Person | None) -> AsyncIterator[Socket]:
    socket = Socket(await sync_to_async(person.pages)() if person else Client())
    assert await socket.connect()
    yield socket
    await socket.leave()


async def subscribe(socket: Socket, *topics: str) -> Any:
    await socket.say({"subscribe": list(topics)})
    return await socket.hear()


async def everything(socket: Socket, seconds: float) -> list[dict[str, Any]]:
    """All that is said within that time."""
    heard: list[dict[str, Any]] = []
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        if not await socket.is_silent(0.05):
            heard.append(await socket.hear())
    return heard


async def test_a_change_reaches_who_listens_to_it() -> None:
    cast = await sync_to_async(make_cast)()
    rollout = await sync_to_async(factories.rollout)()
    async with connected(cast.ben) as socket:
        topic = f"rollout:{rollout.pk}"
        assert await subscribe(socket, topic, "rollouts") == {
            "subscribed": [topic, "rollouts"],
            "refused": [],
        }
        assert await sync_to_async(push)(topic, 17)
        assert await socket.hear() == {"topic": topic, "version": 17}
        await socket.say({"unsubscribe": [topic]})
        await asyncio.sleep(0.1)
        await sync_to_async(push)(topic, 18)
        assert await everything(socket, 0.4) == []


async def test_topics_of_another_tenant_are_refused_like_unknown_ones() -> None:
    cast = await sync_to_async(make_cast)()
    rollout = await sync_to_async(factories.rollout)()
    foreign = [
        f"rollout:{rollout.pk}",
        "service:file-type",
        "tenant:platform",
        "rollout:999",
        "nonsense",
        "a b",
        "x:",
    ]
    async with connected(cast.cleo) as socket:
        answer = await subscribe(socket, *foreign, "tenant:strange")
        assert answer == {"subscribed": ["tenant:strange"], "refused": foreign}


async def test_twenty_changes_in_a_burst_become_few_and_the_last_one_arrives() -> None:
    cast = await sync_to_async(make_cast)()
    async with connected(cast.ada) as socket:
        await subscribe(socket, "rollouts")

        def burst() -> None:
            for version in range(1, 21):
                push("rollouts", version)

        await sync_to_async(burst)()
        heard = await everything(socket, 1.0)
        assert heard[-1] == {"topic": "rollouts", "version": 20}
        assert len(heard) <= 5


async def test_nobody_is_told_to_sign_in() -> None:
    async with connected(None) as socket:
        assert await socket.close_code() == consumer.NOBODY


async def test_another_site_cannot_open_the_socket() -> None:
    cast = await sync_to_async(make_cast)()
    client = await sync_to_async(cast.ada.pages)()
    assert not await Socket(client, origin="http://evil.example").connect()


@pytest.mark.parametrize(
    "message",
    [
        "no json",
        '["subscribe"]',
        '{"subscribe": "rollouts"}',
        '{"subscribe": [1]}',
        '{"shout": []}',
        '{"subscribe": ["' + "x" * 9000 + '"]}',
    ],
)
async def test_who_does_not_keep_to_the_protocol_is_closed(message: str) -> None:
    cast = await sync_to_async(make_cast)()
    async with connected(cast.ada) as socket:
        await socket.say(message)
        assert "error" in await socket.hear()
        assert await socket.close_code() == consumer.TOO_MUCH


async def test_one_page_may_hear_only_so_many_topics() -> None:
    cast = await sync_to_async(make_cast)()
    async with connected(cast.ada) as socket:
        await socket.say({"subscribe": [f"rollout:{number}" for number in range(65)]})
        assert "at most 64" in (await socket.hear())["error"]


async def test_who_loses_the_right_loses_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(consumer, "RIGHTS_SECONDS", 0.1)
    cast = await sync_to_async(make_cast)()
    await sync_to_async(factories.stable)()
    async with connected(cast.ben) as socket:
        await subscribe(socket, "service:file-type")
        await sync_to_async(cast.ben.user.memberships.all().delete)()
        heard = await everything(socket, 0.6)
        assert {"subscribed": [], "refused": ["service:file-type"]} in heard
        await sync_to_async(push)("service:file-type", 5)
        assert all("topic" not in one for one in await everything(socket, 0.3))


async def test_who_is_switched_off_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(consumer, "RIGHTS_SECONDS", 0.1)
    cast = await sync_to_async(make_cast)()
    async with connected(cast.ben) as socket:
        await subscribe(socket, "rollouts")
        cast.ben.user.is_active = False
        await sync_to_async(cast.ben.user.save)()
        assert await socket.close_code() == consumer.NOBODY


async def test_signs_of_life_stop_with_redis_and_come_back_with_it(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "ALIVE_SECONDS", 0.1)
    cast = await sync_to_async(make_cast)()
    async with connected(cast.ben) as socket:
        assert await socket.hear() == {"alive": 1}
        await sync_to_async(redis_server.stop)()
        await everything(socket, 0.3)  # what was under way
        assert await everything(socket, 0.5) == []
        await sync_to_async(redis_server.start)()
        assert await socket.hear() == {"alive": 1}


async def test_what_was_committed_but_never_announced_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    cast = await sync_to_async(make_cast)()

    def crash_after_commit() -> Entry:
        with monkeypatch.context() as broken:
            broken.setattr("console.kit.events.push_all", lambda topics, version: False)
            return record("user:ada", "rollout.abort", "rollout:1", tenant="platform", topics=["rollouts"])

    entry = await sync_to_async(crash_after_commit)()
    assert entry.announced_at is None
    async with connected(cast.ada) as socket:
        await subscribe(socket, "rollouts", "activity")
        assert await sync_to_async(sweep_outbox)() == 0  # still in the hands of whoever committed it
        monkeypatch.setattr("console.live.tasks._LEFT_ALONE", timedelta(seconds=-1))
        assert await sync_to_async(sweep_outbox)() == 1
        assert {one["topic"] for one in await everything(socket, 0.5)} == {"rollouts", "activity"}
    assert await sync_to_async(sweep_outbox)() == 0
