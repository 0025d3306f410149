"""Where the command line finds its server and token, and how refusals become sentences."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.cli.client import ApiError, Client, CliError, Unreachable


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PILOTHOUSE_URL", "PILOTHOUSE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PILOTHOUSE_HOME", str(tmp_path))


def leave_credentials(home: Path, content: Any) -> None:
    (home / "credentials.json").write_text(content if isinstance(content, str) else json.dumps(content))


def answering(
    status: int, body: Any = None, **kwargs: Any
) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, json=body, **kwargs) if body is not None else httpx.Response(status)

    return httpx.MockTransport(handle), seen


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_credentials(tmp_path, {"url": "http://127.0.0.1:9", "token": "pht_local"})
    monkeypatch.setenv("PILOTHOUSE_URL", "http://127.0.0.1:8/")
    monkeypatch.setenv("PILOTHOUSE_TOKEN", "pht_given")
    client = Client()
    assert (client.url, client.token) == ("http://127.0.0.1:8", "pht_given")


def test_a_local_home_serves_when_nothing_is_said(tmp_path: Path) -> None:
    leave_credentials(tmp_path, {"url": "http://127.0.0.1:9", "token": "pht_local"})
    assert (Client().url, Client().token) == ("http://127.0.0.1:9", "pht_local")


def test_a_local_secret_never_goes_to_an_address_that_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leave_credentials(tmp_path, {"url": "http://127.0.0.1:9", "token": "pht_local"})
    monkeypatch.setenv("PILOTHOUSE_URL", "https://elsewhere.example")
    assert Client().token == ""
    monkeypatch.setenv("PILOTHOUSE_URL", "http://127.0.0.1:9")
    assert Client().token == "pht_local"


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_broken_credentials_file_is_like_none(tmp_path: Path, content: str) -> None:
    leave_credentials(tmp_path, content)
    assert (Client().url, Client().token) == ("http://127.0.0.1:8000", "")


def test_a_console_that_is_away_is_named_with_the_remedy() -> None:
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1 is not reachable.*pilothouse up"):
        Client("http://127.0.0.1:1").get("me")


def test_a_slow_console_is_not_called_unreachable() -> None:
    def slow(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow", request=request)

    with pytest.raises(Unreachable, match="did not answer in time"):
        Client("http://x", transport=httpx.MockTransport(slow)).get("me")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(CliError, match=r"http://\[ is not an address"):
        Client("http://[")


def test_a_refusal_carries_the_problem_and_reads_as_sentences() -> None:
    problem = {"status": 400, "code": "invalid", "detail": "No.", "fields": {"slug": "taken"}}
    transport, _ = answering(400, problem)
    with pytest.raises(ApiError) as refused:
        Client("http://x", transport=transport).post("tenants", {"slug": "x"})
    error = refused.value
    assert (error.status, error.code, error.fields) == (400, "invalid", {"slug": "taken"})
    assert error.problem == problem
    assert str(error) == "No.\n  slug: taken"


def test_who_is_not_known_is_told_about_the_token() -> None:
    transport, _ = answering(401, {"status": 401, "code": "not_authenticated", "detail": "Who?"})
    with pytest.raises(ApiError, match="PILOTHOUSE_TOKEN"):
        Client("http://x", transport=transport).get("me")


def test_a_failure_names_its_request_id() -> None:
    transport, _ = answering(500, {"status": 500, "code": "internal", "detail": "Oh.", "request_id": "r1"})
    with pytest.raises(ApiError, match="request id: r1"):
        Client("http://x", transport=transport).get("me")


def test_what_does_not_speak_our_language_is_said_so() -> None:
    with pytest.raises(ApiError, match="answered 502 Bad Gateway"):
        Client("http://x", transport=httpx.MockTransport(lambda r: httpx.Response(502, text="<html>"))).get(
            "me"
        )
    with pytest.raises(CliError, match="is PILOTHOUSE_URL right"):
        Client("http://x", transport=httpx.MockTransport(lambda r: httpx.Response(200, text="<html>"))).get(
            "me"
        )


def test_requests_carry_token_key_revision_and_plain_parameters() -> None:
    transport, seen = answering(200, {})
    client = Client("http://x", "pht_t", transport=transport)
    client.post("a", {}, key="k", dry_run=True, none=None)
    client.post("a", {})
    client.put("b", {}, revision=3)
    assert str(seen[0].url) == "http://x/api/v1/a?dry_run=true"
    assert seen[0].headers["Authorization"] == "Bearer pht_t"
    assert (seen[0].headers["Idempotency-Key"], len(seen[1].headers["Idempotency-Key"])) == ("k", 32)
    assert seen[2].headers["If-Match"] == '"3"'


def test_lists_are_read_over_their_pages() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.params.get("cursor") == "c2":
            return httpx.Response(200, json={"results": [{"n": 3}], "next": None})
        more = "http://x/api/v1/rows?cursor=c2"
        return httpx.Response(200, json={"results": [{"n": 1}, {"n": 2}], "next": more})

    client = Client("http://x", transport=httpx.MockTransport(handle))
    assert [row["n"] for row in client.pages("rows", tenant="acme")] == [1, 2, 3]
    assert [row["n"] for row in client.pages("rows", most=2)] == [1, 2]


def test_an_empty_answer_is_none() -> None:
    transport, _ = answering(204)
    assert Client("http://x", transport=transport).delete("a") is None
