"""REST of rollouts: who may, what is refused, idempotency, previews, waiting and the event stream."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import AsyncClient
from rest_framework.test import APIClient

from console.audit.models import Entry
from console.tenants.permissions import SYSTEM
from inference.models import Version
from rollouts import actions
from rollouts.models import Rollout, Strategy
from rollouts.strategies import ensure_defaults
from tests import factories
from tests.cast import Cast, Person, cast

__all__ = ["cast"]

ROLLOUTS = "/api/v1/rollouts"
BODY: dict[str, Any] = {"service": "file-type", "version": 2, "strategy": "immediate"}


@pytest.fixture
def fleet(cast: Cast) -> Version:
    """Version 1 stable, version 2 registered, the strategies that come with the house."""
    ensure_defaults()
    factories.stable(1)
    return factories.version(2)


@pytest.fixture
def rollout(fleet: Version) -> Rollout:
    return actions.start(actions.Wanted(fleet.service, fleet, "canary"), actor=SYSTEM)


def post(api: APIClient, path: str, body: Any = None, **headers: str) -> Any:
    return api.post(path, body if body is not None else {}, format="json", headers=headers)


def test_ada_starts_a_rollout(cast: Cast, fleet: Version) -> None:
    answer = post(cast.ada.api(), ROLLOUTS, {**BODY, "reason": "release 7"})
    assert answer.status_code == 201
    body = answer.json()
    assert (body["state"], body["version"], body["from_version"]) == ("queued", 2, 1)
    assert body["url"] == answer["Location"] == f"{ROLLOUTS}/{body['id']}"
    assert answer["ETag"] == '"1"'
    entry = Entry.objects.get(verb="rollout.start")
    assert (entry.actor, entry.reason, entry.tenant) == ("user:ada", "release 7", "platform")


def test_who_may_do_what(cast: Cast, rollout: Rollout) -> None:
    address = f"{ROLLOUTS}/{rollout.pk}"
    anonymous = APIClient()
    for api, see, verb in (
        (cast.ada.api(), 200, 200),
        (cast.ben.api(), 200, 403),
        (cast.cleo.api(), 404, 404),
        (anonymous, 401, 401),
        (cast.token("read").api(), 200, 403),
        (cast.token("models:write").api(), 200, 403),
        (cast.token("rollouts:write", tenant=cast.strange).api(), 404, 404),
    ):
        for path in (address, f"{address}/wait?timeout=0", f"{address}/events"):
            if path.endswith("events") and see == 200:
                continue  # it would stream for as long as the rollout lives
            assert api.get(path).status_code == see, path
        for name in actions.VERBS:
            if verb != 200:
                assert post(api, f"{address}/{name}").status_code == verb, name
                assert post(api, f"{address}/{name}?dry_run=true").status_code == verb, name
        start = post(api, ROLLOUTS, BODY).status_code
        assert start == (409 if verb == 200 else verb)
    assert post(cast.ada.api(), f"{address}/abort").status_code == 200


def test_a_client_of_the_service_sees_its_rollouts_and_changes_none(cast: Cast, rollout: Rollout) -> None:
    factories.quota("strange", on="file-type")
    api = cast.cleo.api()
    assert api.get(f"{ROLLOUTS}/{rollout.pk}").status_code == 200
    assert post(api, f"{ROLLOUTS}/{rollout.pk}/abort").status_code == 403


def test_a_list_shows_only_what_may_be_seen_and_filters(
    cast: Cast, rollout: Rollout, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    other = factories.version(1, of=factories.service("secret", owner="strange"))
    factories.rollout(other)
    ben = cast.ben.api()
    with django_assert_max_num_queries(4):
        page = ben.get(ROLLOUTS).json()
    assert [row["service"] for row in page["results"]] == ["file-type"]
    api = cast.ada.api()
    assert api.get(ROLLOUTS, {"state": "queued"}).json()["results"]
    assert not api.get(ROLLOUTS, {"state": "aborted"}).json()["results"]
    assert not api.get(ROLLOUTS, {"service": "secret"}).json()["results"]
    assert api.get(ROLLOUTS, {"state": "odd"}).status_code == 400


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"service": "nobody"}, 404, None),
        ({"version": 9}, 400, "version"),
        ({"version": "2"}, 400, "version"),
        ({"version": 1}, 409, "version"),
        ({"strategy": "nope"}, 400, "strategy"),
        ({"strategy": {"step": []}}, 400, "strategy"),
        ({"strategy": [{"setWeight": 10}]}, 400, "strategy"),
        ({"strategy": {"steps": [{"setWeigth": 10}]}}, 400, "strategy.steps[0].setWeigth"),
        ({"strategy": {"steps": []}}, 400, "strategy.steps"),
        ({"on_new_version": "ignore"}, 400, "on_new_version"),
        ({"replicas": 3}, 400, "replicas"),
    ],
)
def test_a_wrong_start_names_the_field(
    cast: Cast, fleet: Version, change: dict[str, Any], status: int, field: str | None
) -> None:
    answer = post(cast.ada.api(), ROLLOUTS, {**BODY, **change})
    assert answer.status_code == status, answer.json()
    assert answer["Content-Type"] == "application/problem+json"
    if field is not None:
        assert field in answer.json()["fields"]
    assert not Rollout.objects.exists()


def test_the_same_key_starts_one_rollout(cast: Cast, fleet: Version) -> None:
    api = cast.token("rollouts:write").api()
    first = post(api, ROLLOUTS, BODY, **{"Idempotency-Key": "build-7"})
    again = post(api, ROLLOUTS, BODY, **{"Idempotency-Key": "build-7"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert Rollout.objects.count() == 1
    other = post(api, ROLLOUTS, {**BODY, "version": 1}, **{"Idempotency-Key": "build-7"})
    assert other.status_code == 409


def test_a_dry_run_of_a_start_shows_the_plan_and_changes_nothing(cast: Cast, fleet: Version) -> None:
    answer = post(cast.ada.api(), f"{ROLLOUTS}?dry_run=true", {**BODY, "strategy": "canary"})
    assert answer.status_code == 200
    body = answer.json()
    assert body["dry_run"] and body["estimated_minutes"] >= 1
    assert "from version 1 to version 2 in 6 steps" in body["effect"]
    assert [step["weight_percent"] for step in body["steps"]] == [10, 10, 10, 50, 50, 100]
    assert not Rollout.objects.exists()


@pytest.mark.parametrize("verb", ["pause", "promote", "skip", "abort"])
def test_a_dry_run_of_a_verb_says_what_it_would_do(cast: Cast, rollout: Rollout, verb: str) -> None:
    Rollout.objects.filter(pk=rollout.pk).update(state="progressing", weight_percent=10)
    answer = post(cast.ada.api(), f"{ROLLOUTS}/{rollout.pk}/{verb}?dry_run=true")
    assert answer.status_code == 200
    body = answer.json()
    assert body["effect"] and body["revision"] == 1
    rollout.refresh_from_db()
    assert (rollout.state, rollout.revision) == ("progressing", 1)


def test_a_verb_that_the_state_does_not_allow_is_a_conflict(cast: Cast, rollout: Rollout) -> None:
    for verb in ("resume", "retry", "pause", "promote", "skip"):
        assert post(cast.ada.api(), f"{ROLLOUTS}/{rollout.pk}/{verb}").status_code == 409, verb


def test_a_lost_race_is_refused_by_if_match(cast: Cast, rollout: Rollout) -> None:
    api = cast.ada.api()
    address = f"{ROLLOUTS}/{rollout.pk}/abort"
    stale = post(api, address, **{"If-Match": '"7"'})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale")
    assert post(api, address, **{"If-Match": '"1"'}).status_code == 200


def test_an_aborted_rollout_is_retried_as_a_new_one(cast: Cast, rollout: Rollout) -> None:
    actions.abort(rollout, actor=SYSTEM)
    answer = post(cast.ada.api(), f"{ROLLOUTS}/{rollout.pk}/retry")
    assert answer.status_code == 201
    assert answer.json()["retry_of"] == rollout.pk and answer.json()["id"] != rollout.pk


def test_the_detail_shows_steps_measurements_and_decisions(cast: Cast, rollout: Rollout) -> None:
    body = cast.ben.api().get(f"{ROLLOUTS}/{rollout.pk}").json()
    assert [step["status"] for step in body["steps"]] == ["next"] * 6
    assert body["steps"][0]["spec"] == {"setWeight": 10}
    assert [decision["kind"] for decision in body["decisions"]] == ["request"]
    assert body["measurements"] == []
    assert body["verbs"] == ["abort"]


def test_what_a_finished_rollout_never_did_is_cancelled_and_not_passed(cast: Cast, rollout: Rollout) -> None:
    Rollout.objects.filter(pk=rollout.pk).update(step_index=2)
    rollout.refresh_from_db()
    actions.abort(rollout, actor=SYSTEM)
    steps = cast.ben.api().get(f"{ROLLOUTS}/{rollout.pk}").json()["steps"]
    assert [step["status"] for step in steps] == ["done", "done"] + ["cancelled"] * 4
    assert {gate["verdict"] for gate in steps[2]["gates"]} == {"cancelled"}


# Waiting


def test_wait_answers_at_once_when_a_person_is_needed(cast: Cast, rollout: Rollout) -> None:
    Rollout.objects.filter(pk=rollout.pk).update(state="paused", reason="no_data")
    body = cast.ben.api().get(f"{ROLLOUTS}/{rollout.pk}/wait?timeout=60").json()
    assert (body["outcome"], body["timed_out"]) == ("needs_person", False)


def test_wait_gives_up_after_its_timeout(cast: Cast, rollout: Rollout) -> None:
    body = cast.ben.api().get(f"{ROLLOUTS}/{rollout.pk}/wait?timeout=0.1").json()
    assert (body["outcome"], body["timed_out"], body["state"]) == ("running", True, "queued")


@pytest.mark.parametrize("timeout", ["121", "-1", "soon", "nan"])
def test_wait_refuses_an_odd_timeout(cast: Cast, rollout: Rollout, timeout: str) -> None:
    answer = cast.ben.api().get(f"{ROLLOUTS}/{rollout.pk}/wait?timeout={timeout}")
    assert answer.status_code == 400 and "timeout" in answer.json()["fields"]


def test_wait_answers_only_when_the_fleet_obeys(
    cast: Cast, rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions.abort(rollout, actor=SYSTEM)
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            Rollout.objects.filter(pk=rollout.pk).update(settled_at=rollout.created_at)

    monkeypatch.setattr("rollouts.waiting.time.sleep", sleep)
    body = cast.ben.api().get(f"{ROLLOUTS}/{rollout.pk}/wait?timeout=60").json()
    assert (body["outcome"], body["settled"], len(looks)) == ("aborted", True, 3)
    assert min(looks) >= 0.4  # about two looks a second


async def stream(person: Person, rollout: Rollout, **headers: str) -> list[tuple[str, Any]]:
    """The whole stream, as an ASGI server would send it."""
    client = AsyncClient()
    await client.aforce_login(person.user)
    answer: Any = await client.get(f"{ROLLOUTS}/{rollout.pk}/events", headers=headers)
    assert answer.status_code == 200 and answer["Content-Type"] == "text/event-stream"
    return _events(b"".join([chunk async for chunk in answer]))


@pytest.mark.django_db(transaction=True)
async def test_the_event_stream_tells_decisions_and_ends(cast: Cast, rollout: Rollout) -> None:
    await sync_to_async(finish)(rollout)
    events = await stream(cast.ben, rollout, Accept="text/event-stream")
    assert [name for name, _ in events] == ["decision", "decision", "rollout", "end"]
    assert events[1][1]["sentence"] == "Aborted by system: enough"
    assert events[-1][1] == {"outcome": "aborted"}


@pytest.mark.django_db(transaction=True)
async def test_the_event_stream_goes_on_after_the_last_event_seen(cast: Cast, rollout: Rollout) -> None:
    await sync_to_async(finish)(rollout)
    first = await rollout.decisions.afirst()
    assert first is not None
    events = await stream(cast.ben, rollout, **{"Last-Event-ID": str(first.pk)})
    assert [name for name, _ in events] == ["decision", "rollout", "end"]


@pytest.mark.django_db(transaction=True)
async def test_the_event_stream_tells_what_happens_meanwhile(cast: Cast, rollout: Rollout) -> None:
    async def end_soon() -> None:
        await asyncio.sleep(0.3)
        await sync_to_async(finish)(rollout)

    ending = asyncio.create_task(end_soon())
    events = await asyncio.wait_for(stream(cast.ben, rollout), timeout=10)
    await ending
    names = [name for name, _ in events]
    assert names[:2] == ["decision", "rollout"] and names[-1] == "end"
    assert names.count("rollout") >= 2


def finish(rollout: Rollout) -> None:
    actions.abort(rollout, actor=SYSTEM, reason="enough")
    Rollout.objects.filter(pk=rollout.pk).update(settled_at=rollout.created_at)


def _events(raw: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in raw.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


# Strategies


def test_strategies_are_made_changed_and_removed(cast: Cast, fleet: Version) -> None:
    api = cast.ada.api()
    made = post(
        api, "/api/v1/strategies", {"name": "mine", "tenant": "platform", "steps": [{"setWeight": 100}]}
    )
    assert made.status_code == 201
    address = f"/api/v1/strategies/{made.json()['id']}"
    change = {"steps": [{"setWeight": 5}, {"pause": {"duration": 60}}, {"setWeight": 100}]}
    assert api.put(address, change, format="json", headers={"If-Match": '"9"'}).status_code == 409
    changed = api.put(address, change, format="json", headers={"If-Match": made["ETag"]})
    assert changed.status_code == 200
    assert changed.json()["steps"][1] == {"pause": {"duration": "1m"}}
    assert changed["ETag"] == '"2"'
    assert api.delete(address).status_code == 204
    assert not Strategy.objects.filter(name="mine").exists()
    verbs = set(Entry.objects.filter(verb__startswith="strategy").values_list("verb", flat=True))
    assert verbs == {"strategy.create", "strategy.edit", "strategy.delete"}


def test_who_may_change_strategies(cast: Cast, fleet: Version) -> None:
    body = {"name": "mine", "tenant": "platform", "steps": [{"setWeight": 100}]}
    assert post(cast.ben.api(), "/api/v1/strategies", body).status_code == 403
    assert post(cast.cleo.api(), "/api/v1/strategies", body).status_code == 400
    mine = Strategy.objects.create(name="ours", tenant=cast.platform, steps=[{"setWeight": 100}])
    assert cast.cleo.api().get(f"/api/v1/strategies/{mine.pk}").status_code == 404
    shared = Strategy.objects.get(tenant=None, name="canary")
    assert cast.cleo.api().get(f"/api/v1/strategies/{shared.pk}").status_code == 200
    change = {"steps": [{"setWeight": 100}]}
    assert cast.ada.api().put(f"/api/v1/strategies/{shared.pk}", change, format="json").status_code == 403
    assert cast.root.api().put(f"/api/v1/strategies/{shared.pk}", change, format="json").status_code == 200
    ensure_defaults()
    shared.refresh_from_db()
    assert shared.steps == [{"setWeight": 100}]  # what an operator changed stays


def test_a_wrong_strategy_is_refused_by_its_path(cast: Cast, fleet: Version) -> None:
    body = {"name": "mine", "tenant": "platform", "steps": [{"analysis": {"gates": [{}]}}]}
    answer = post(cast.ada.api(), "/api/v1/strategies", body)
    assert answer.status_code == 400
    assert "steps[0].analysis.gates[0].indicator" in answer.json()["fields"]


def test_a_name_of_the_tenant_wins_over_one_of_the_house(cast: Cast, fleet: Version) -> None:
    Strategy.objects.create(name="canary", tenant=cast.platform, steps=[{"setWeight": 100}])
    body = post(cast.ada.api(), ROLLOUTS, {**BODY, "strategy": "canary"}).json()
    assert body["step_count"] == 1


# Two at once


@pytest.mark.django_db(transaction=True)
def test_two_starts_at_once_leave_one_rollout_with_a_say(cast: Cast, fleet: Version) -> None:
    third = factories.version(3)
    wanted = [actions.Wanted(fleet.service, version, "immediate") for version in (fleet, third)]

    def start(one: actions.Wanted) -> None:
        try:
            actions.start(one, actor=SYSTEM)
        finally:
            connection.close()

    threads = [threading.Thread(target=start, args=[one]) for one in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Rollout.objects.unfinished().count() == 1
    assert Rollout.objects.filter(state="superseded").count() == 1


def test_a_missing_service_is_named(cast: Cast, fleet: Version) -> None:
    answer = post(cast.ada.api(), ROLLOUTS, {**BODY, "service": "file-tpye"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == "There is no service file-tpye here, or it is not yours to see."
    assert (
        post(cast.cleo.api(), ROLLOUTS, BODY)
        .json()["detail"]
        .startswith("There is no service file-type here")
    )
