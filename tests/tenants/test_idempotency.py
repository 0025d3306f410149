"""A POST that is sent twice acts once: in sequence, at the same moment, and after the first sender's process died."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import override_settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from console.audit.models import Entry
from console.kit import clock
from console.kit.errors import Conflict
from console.tenants import idempotency
from console.tenants.models import IdempotencyRecord, Tenant, Token
from tests.cast import Cast, Person, make_cast
from tests.conftest import FrozenClock

TENANTS, TOKENS = "/api/v1/tenants", "/api/v1/tokens"


def send(who: Person, body: dict[str, Any], *, key: str = "k1", path: str = TENANTS) -> Any:
    return who.api().post(path, body, format="json", HTTP_IDEMPOTENCY_KEY=key)


def test_the_second_answer_is_the_first(cast: Cast) -> None:
    first, second = send(cast.root, {"slug": "hooli"}), send(cast.root, {"slug": "hooli"})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert (first["ETag"], second["ETag"]) == ('"1"', '"1"')
    assert "Idempotency-Replayed" not in first
    assert second["Idempotency-Replayed"] == "true"
    assert Tenant.objects.filter(slug="hooli").count() == Entry.objects.count() == 1


def test_order_of_names_and_spacing_do_not_make_another_request(cast: Cast) -> None:
    send(cast.root, {"slug": "hooli", "weight": 2})
    assert send(cast.root, {"weight": 2, "slug": "hooli"})["Idempotency-Replayed"] == "true"


def test_a_key_stands_for_one_request(cast: Cast) -> None:
    send(cast.root, {"slug": "hooli"})
    for again in (
        send(cast.root, {"slug": "pied-piper"}),
        send(cast.root, {"tenant": "acme", "name": "x", "scopes": ["read"]}, path=TOKENS),
    ):
        assert (again.status_code, again.json()["code"]) == (409, "key_reused")
        assert list(again.json()["fields"]) == ["Idempotency-Key"]
    assert not Tenant.objects.filter(slug="pied-piper").exists()


@pytest.mark.parametrize(
    "body",
    [
        '{"slug": "hooli", "weight": 1' + "0" * 400 + "}",
        '{"slug": "hooli", "name": "\\ud800"}',
        '{"slug": "hooli", "name": ' + "[" * 600 + "]" * 600 + "}",
        "[" * 600 + "]" * 600,
        '"hooli"',
        "null",
    ],
    ids=["number", "half a character", "depth", "a list", "text", "null"],
)
def test_a_key_changes_nothing_about_how_a_wrong_body_is_refused(cast: Cast, body: str) -> None:
    api = cast.root.api()
    plain = api.post(TENANTS, body, content_type="application/json")
    keyed = api.post(TENANTS, body, content_type="application/json", HTTP_IDEMPOTENCY_KEY="k1")
    assert plain.status_code == keyed.status_code == 400
    assert plain.json()["fields"] == keyed.json()["fields"]
    assert not IdempotencyRecord.objects.exists()


def test_keys_of_two_callers_never_meet(cast: Cast) -> None:
    body = {"tenant": "platform", "name": "ci", "scopes": ["read"]}
    ada, ida = send(cast.ada, body, path=TOKENS), send(cast.ida, body, path=TOKENS)
    assert ada.json()["secret"] != ida.json()["secret"]
    assert Token.objects.count() == 2


def test_a_secret_is_replayed_but_never_stored_in_clear(cast: Cast) -> None:
    body = {"tenant": "platform", "name": "ci", "scopes": ["read"]}
    first, second = (send(cast.ada, body, path=TOKENS).json() for _ in range(2))
    assert first == second
    record = IdempotencyRecord.objects.get()
    assert first["secret"] not in str(vars(record))
    assert first["hint"] not in record.answer


def test_an_answer_sealed_under_another_secret_key_is_said_to_be_lost(cast: Cast) -> None:
    send(cast.root, {"slug": "hooli"})
    with override_settings(SECRET_KEY="another one"):
        lost = send(cast.root, {"slug": "hooli"})
    assert lost.status_code in (401, 409)  # the session is signed with the old key as well
    record = IdempotencyRecord.objects.get()
    IdempotencyRecord.objects.update(answer="x" + record.answer)
    lost = send(cast.root, {"slug": "hooli"})
    assert (lost.status_code, lost.json()["code"]) == (409, "answer_lost")


def test_a_refusal_changes_nothing_and_frees_the_key(cast: Cast) -> None:
    assert send(cast.root, {"slug": "Not A Slug"}).status_code == 400
    assert send(cast.ada, {"slug": "hooli"}).status_code == 403
    assert not IdempotencyRecord.objects.exists()
    assert send(cast.root, {"slug": "hooli"}).status_code == 201


def test_a_dry_run_takes_no_key(cast: Cast) -> None:
    token = cast.token("read").token
    path = f"{TOKENS}/{token.pk}/revoke"
    assert send(cast.ida, {}, path=f"{path}?dry_run=true").json()["dry_run"] is True
    assert not IdempotencyRecord.objects.exists()
    assert send(cast.ida, {}, path=path).json()["state"] == "revoked"


@pytest.mark.parametrize("key", ["", "with space", "x" * 256, "ü"])
def test_a_wrong_key_is_refused(cast: Cast, key: str) -> None:
    answer = send(cast.root, {"slug": "hooli"}, key=key)
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["Idempotency-Key"])


def test_a_first_request_that_still_runs_is_waited_for(cast: Cast, frozen_clock: FrozenClock) -> None:
    send(cast.root, {"slug": "hooli"})
    IdempotencyRecord.objects.update(status=None, answer="")
    busy = send(cast.root, {"slug": "hooli"})
    assert (busy.status_code, busy.json()["code"], busy["Retry-After"]) == (409, "in_progress", "1")


def test_a_first_request_whose_process_died_is_taken_over(cast: Cast, frozen_clock: FrozenClock) -> None:
    send(cast.root, {"slug": "hooli"})
    IdempotencyRecord.objects.update(status=None, answer="")
    Tenant.objects.filter(slug="hooli").delete()  # the dead one had not committed
    frozen_clock.advance(60)
    again = send(cast.root, {"slug": "hooli"})
    assert (again.status_code, "Idempotency-Replayed" in again) == (201, False)
    assert send(cast.root, {"slug": "hooli"})["Idempotency-Replayed"] == "true"


def test_answers_are_forgotten_after_a_day(cast: Cast, frozen_clock: FrozenClock) -> None:
    send(cast.root, {"slug": "hooli"})
    frozen_clock.advance(timedelta(hours=24).total_seconds())
    assert send(cast.root, {"slug": "hooli"}).json()["code"] == "taken"  # acts again: the tenant is there
    send(cast.root, {"slug": "pied-piper"}, key="k2")
    frozen_clock.advance(timedelta(hours=24).total_seconds())
    assert idempotency.forget_old() == 1


class Uploads(APIView):
    """Stands for any view that takes files."""

    seen: list[bytes] = []

    @idempotency.idempotent(atomic=False)
    def post(self, request: Request) -> Response:
        data: Any = request.data
        self.seen.append(data["file"].read())
        return Response({"count": len(self.seen)}, status=201)


def test_uploads_are_the_same_when_their_content_is(cast: Cast, settings: Any) -> None:
    from rest_framework.parsers import MultiPartParser

    view, Uploads.seen = Uploads.as_view(parser_classes=[MultiPartParser]), []

    def upload(content: bytes, name: str = "model.onnx") -> Response:
        request = APIRequestFactory().post(
            "/upload", {"file": SimpleUploadedFile(name, content), "note": "n"}, HTTP_IDEMPOTENCY_KEY="k"
        )
        force_authenticate(request, cast.ada.user)
        return view(request)

    assert upload(b"graph").data == {"count": 1}
    assert upload(b"graph").data == {"count": 1}
    assert Uploads.seen == [b"graph"]
    assert upload(b"other").status_code == 409


# Races. Real connections, so real transactions.


@pytest.fixture
def at_once() -> Iterator[Callable[..., list[Any]]]:
    """at_once(function, times) -> its results, started together, one thread each."""

    def run(function: Callable[[], Any], times: int = 6) -> list[Any]:
        barrier, found = threading.Barrier(times), []

        def one() -> None:
            barrier.wait(10)
            try:
                found.append(function())
            finally:
                connection.close()

        threads = [threading.Thread(target=one) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return found

    yield run


@pytest.mark.django_db(transaction=True)
def test_many_at_once_act_once(at_once: Callable[..., list[Any]]) -> None:
    cast = make_cast()
    body = {"tenant": "platform", "name": "ci", "scopes": ["read"]}
    answers = at_once(lambda: send(cast.ada, body, path=TOKENS))
    assert len(answers) == 6
    assert Token.objects.count() == 1
    done = [answer for answer in answers if answer.status_code == 201]
    assert done
    assert len({answer.json()["secret"] for answer in done}) == 1
    assert sum("Idempotency-Replayed" not in answer for answer in done) == 1
    rest = [answer for answer in answers if answer.status_code != 201]
    assert {answer.json()["code"] for answer in rest} <= {"in_progress"}


@pytest.mark.django_db(transaction=True)
def test_many_who_take_over_at_once_act_once(at_once: Callable[..., list[Any]]) -> None:
    cast = make_cast()
    body = {"tenant": "platform", "name": "ci", "scopes": ["read"]}
    send(cast.ada, body, path=TOKENS)
    Token.objects.all().delete()
    IdempotencyRecord.objects.update(status=None, claimed_at=clock.now() - timedelta(minutes=2))
    answers = at_once(lambda: send(cast.ada, body, path=TOKENS))
    assert Token.objects.count() == 1
    assert [answer.status_code for answer in answers].count(500) == 0


@pytest.mark.django_db(transaction=True)
def test_who_was_taken_over_undoes_its_own_work() -> None:
    cast = make_cast()

    class Slow(APIView):
        @idempotency.idempotent()
        def post(self, request: Request) -> Response:
            Tenant.objects.create(slug="late", name="Late")
            # Meanwhile another process, sure that we are dead, takes the key.
            IdempotencyRecord.objects.update(claim="0" * 32)
            return Response({}, status=201)

    request = APIRequestFactory().post("/slow", {}, format="json", HTTP_IDEMPOTENCY_KEY="k")
    force_authenticate(request, cast.ada.user)
    answer = Slow.as_view()(request)
    assert (answer.status_code, answer.data["code"]) == (409, "in_progress")
    assert not Tenant.objects.filter(slug="late").exists()


@pytest.mark.django_db(transaction=True)
def test_an_action_that_fails_frees_the_key_and_leaves_nothing() -> None:
    cast = make_cast()

    class Broken(APIView):
        @idempotency.idempotent()
        def post(self, request: Request) -> Response:
            Tenant.objects.create(slug="half", name="Half")
            raise Conflict("no")

    request = APIRequestFactory().post("/broken", {}, format="json", HTTP_IDEMPOTENCY_KEY="k")
    force_authenticate(request, cast.ada.user)
    assert Broken.as_view()(request).status_code == 409
    assert not Tenant.objects.filter(slug="half").exists()
    assert not IdempotencyRecord.objects.exists()
