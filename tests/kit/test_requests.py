"""Request ids, strict bodies, etags, pages of lists and bounds on bodies."""

import logging
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.http import HttpRequest
from django.test import AsyncClient, Client, RequestFactory
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.test import APIRequestFactory

from console.kit import crypto, etags, request_ids
from console.kit.asgi import BodyGuard
from console.kit.errors import Invalid, NotFound, Stale
from console.kit.serializers import StrictSerializer
from console.tenants.models import Tenant
from tests import factories
from tests.cast import Cast

# Request ids


@pytest.mark.parametrize(
    ("offered", "kept"),
    [
        ("a1-b2.c_d:e", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("", False),
        ("has space", False),
        ("new\nline", False),
        ("ünicode", False),
        ("<script>", False),
    ],
)
def test_an_id_is_kept_when_it_is_harmless(offered: str, kept: bool) -> None:
    found = request_ids.begin(offered)
    assert (found == offered) is kept
    assert request_ids.current() == found
    assert found


def test_the_id_goes_in_comes_out_and_is_on_every_log_line(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(request_ids.RequestIdFilter())
    with caplog.at_level(logging.INFO):
        answer = client.get("/api/v1/nothing?secret=1", headers={"x-request-id": "r-42"})
    assert answer["x-request-id"] == answer.json()["request_id"] == "r-42"
    line = next(record for record in caplog.records if record.name == "console.requests")
    assert vars(line)["request_id"] == "r-42"
    assert line.getMessage().startswith("GET /api/v1/nothing 404 ")
    assert "secret" not in caplog.text


async def test_the_asynchronous_path_keeps_the_id_too(async_client: AsyncClient) -> None:
    answer = await async_client.get("/healthz", headers={"x-request-id": "r-43"})
    assert (answer.status_code, answer["x-request-id"]) == (200, "r-43")


# Strict bodies


class Inner(StrictSerializer):
    weight = serializers.IntegerField()


class Body(StrictSerializer):
    name = serializers.CharField(max_length=10)
    size = serializers.IntegerField(required=False)
    ratio = serializers.FloatField(required=False)
    on = serializers.BooleanField(required=False)
    words = serializers.ListField(child=serializers.CharField(), required=False)
    options = serializers.DictField(required=False)
    at = serializers.DateTimeField(required=False)
    inner = Inner(required=False)
    rows = Inner(many=True, required=False)
    made = serializers.CharField(read_only=True)


def wrong(body: Any) -> dict[str, str]:
    reader = Body(data=body)
    with pytest.raises(ValidationError) as refused:
        reader.is_valid(raise_exception=True)
    from console.kit.problems import flatten

    return flatten(refused.value.detail)


@pytest.mark.parametrize(
    ("extra", "field", "sentence"),
    [
        ({"nmae": 1}, "nmae", "unknown field; did you mean name?"),
        ({"zzz": 1}, "zzz", "unknown field"),
        ({"made": "x"}, "made", "cannot be set"),
        ({"name": 3}, "name", "expected text, got a number"),
        ({"name": True}, "name", "expected text, got a truth value"),
        ({"size": "3"}, "size", "expected a whole number, got text"),
        ({"size": True}, "size", "expected a whole number, got a truth value"),
        ({"size": 3.0}, "size", "expected a whole number, got a number"),
        ({"size": 2**60}, "size", "the number is too large"),
        ({"ratio": "0.5"}, "ratio", "expected a number, got text"),
        ({"ratio": float("inf")}, "ratio", "the number is too large"),
        ({"on": "yes"}, "on", "expected true or false, got text"),
        ({"on": 1}, "on", "expected true or false, got a number"),
        ({"words": "a"}, "words", "expected a list, got text"),
        ({"words": ["a", 1]}, "words", "item 1: expected text, got a number"),
        ({"options": []}, "options", "expected an object, got a list"),
        ({"at": 5}, "at", "expected a time in ISO 8601, got a number"),
        ({"inner": 5}, "inner", "expected an object, got a number"),
        ({"inner": {"weight": "1"}}, "inner.weight", "expected a whole number, got text"),
        ({"inner": {"weight": 1, "x": 1}}, "inner.x", "unknown field"),
        ({"rows": [{"weight": 1}, {"weight": "1"}]}, "rows.1.weight", "expected a whole number, got text"),
        ({"rows": {}}, "rows", "expected a list, got an object"),
    ],
)
def test_what_is_not_meant_is_refused_by_name(extra: dict[str, Any], field: str, sentence: str) -> None:
    assert wrong({"name": "ok", **extra}) == {field: sentence}


def test_all_mistakes_are_told_at_once() -> None:
    assert set(wrong({"size": "3", "zzz": 1, "ratio": None})) == {"name", "size", "zzz", "ratio"}


@pytest.mark.parametrize("body", [[], "text", 3, None])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    assert wrong(body)


def test_a_form_may_carry_numbers_as_text() -> None:
    request = APIRequestFactory().post("/x", {"name": "ok", "size": "3"})
    reader = Body(data=request.POST)
    assert reader.is_valid()
    assert reader.validated_data["size"] == 3
    assert not Body(data=APIRequestFactory().post("/x", {"name": "ok", "zzz": "3"}).POST).is_valid()


# ETags


def carrying(value: str | None) -> HttpRequest:
    headers = {} if value is None else {"If-Match": value}
    return RequestFactory().get("/x", headers=headers)


@pytest.mark.parametrize(
    ("sent", "revision"),
    [
        (None, None),
        ("*", None),
        ('"7"', 7),
        ('W/"7"', 7),
        (' "7" ', 7),
        ("", 0),
        ('""', 0),
        ('W/""', 0),
    ],
)
def test_if_match_names_a_revision_or_none(sent: str | None, revision: int | None) -> None:
    assert etags.expected_revision(carrying(sent)) == revision


@pytest.mark.parametrize("sent", ["7", '"x"', '"7", "8"', '"-1"', '"' + "9" * 30 + '"'])
def test_anything_else_is_refused(sent: str) -> None:
    with pytest.raises(Invalid) as refused:
        etags.expected_revision(carrying(sent))
    assert list(refused.value.fields) == ["If-Match"]


@pytest.mark.django_db
def test_a_write_is_conditional_on_the_revision_seen() -> None:
    mine = factories.tenant("acme")
    theirs = Tenant.objects.get(pk=mine.pk)
    etags.write(theirs, expected=1, weight=2)
    with pytest.raises(Stale):
        etags.write(mine, expected=1, weight=3)
    assert etags.write(mine, expected=None, weight=4).revision == 3
    Tenant.objects.all().delete()
    with pytest.raises(NotFound):
        etags.write(mine, expected=3, weight=5)


# Pages of lists


def test_pages_follow_a_cursor_and_lose_nothing_when_rows_arrive(cast: Cast) -> None:
    api = cast.ada.api()
    for _ in range(5):
        cast.token("read")
    first = api.get("/api/v1/tokens?limit=2").json()
    cast.token("read")
    second = api.get(first["next"]).json()
    third = api.get(second["next"]).json()
    ids = [row["id"] for page in (first, second, third) for row in page["results"]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 5
    assert third["next"] is None


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1e3", "", "٣"])
def test_a_limit_is_bounded(cast: Cast, limit: str) -> None:
    answer = cast.ada.api().get("/api/v1/tokens", {"limit": limit})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["limit"])


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "cD0x", "cD1hYmM=", "another list's"])
def test_a_cursor_of_somebody_elses_making_is_refused(cast: Cast, cursor: str) -> None:
    cast.token("read")
    if cursor == "another list's":
        other = cast.ida.api().get("/api/v1/tenants/platform/members?limit=1").json()["next"]
        cursor = parse_qs(urlsplit(other).query)["cursor"][0]
    answer = cast.ada.api().get("/api/v1/tokens", {"cursor": cursor})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["cursor"])


# Bounds on bodies


async def through_guard(headers: dict[str, str]) -> list[dict[str, Any]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        raise AssertionError("the guard reads nothing")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await BodyGuard(app, body_bytes=100, upload_bytes=1000)(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"content-length": "100"}, 200),
        ({"content-length": "101"}, 413),
        ({"content-length": "-1"}, 413),
        ({"content-length": "1000", "content-type": "multipart/form-data; boundary=x"}, 200),
        ({"content-length": "1001", "content-type": "multipart/form-data; boundary=x"}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
async def test_a_body_is_bounded_before_it_is_read(headers: dict[str, str], status: int) -> None:
    sent = await through_guard(headers)
    assert sent[0]["status"] == status
    if status != 200:
        sent_headers = dict(sent[0]["headers"])
        assert sent_headers[b"content-type"] == b"application/problem+json"
        assert sent_headers[b"x-request-id"].decode() in sent[1]["body"].decode()


# Sealing


def test_what_is_sealed_opens_only_for_its_purpose(settings: Any) -> None:
    sealed = crypto.seal("a", b"secret")
    assert b"secret" not in sealed.encode()
    assert crypto.unseal("a", sealed) == b"secret"
    assert crypto.seal("a", b"secret") != sealed
    with pytest.raises(crypto.SealBroken):
        crypto.unseal("b", sealed)
    settings.SECRET_KEY = "another"
    with pytest.raises(crypto.SealBroken):
        crypto.unseal("a", sealed)
