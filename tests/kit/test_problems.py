"""One shape of refusal for every kind of error, and never a traceback."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404
from django.test import Client, RequestFactory
from rest_framework import exceptions, serializers
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from console.kit import errors, pages, problems, request_ids
from console.kit.middleware import RequestContext

SECRET = "the-database-password"


def answer_to(error: Exception) -> Any:
    class Failing(APIView):
        authentication_classes = ()
        permission_classes = ()

        def get(self, request: Request) -> Response:
            raise error

    return Failing.as_view()(APIRequestFactory().get("/api/v1/x")).render()


@pytest.mark.parametrize(
    ("error", "status", "code", "fields"),
    [
        (errors.Invalid("no", fields={"weight": "too small"}), 400, "invalid", {"weight": "too small"}),
        (errors.Unauthenticated("who?"), 401, "not_authenticated", {}),
        (errors.Forbidden("no"), 403, "forbidden", {}),
        (errors.Forbidden("no", code="scope_missing"), 403, "scope_missing", {}),
        (errors.NotFound("no"), 404, "not_found", {}),
        (errors.Conflict("no"), 409, "conflict", {}),
        (errors.Stale("no"), 409, "stale", {}),
        (errors.TooLarge("no"), 413, "too_large", {}),
        (errors.TooMany("no", retry_after_seconds=1.2), 429, "too_many_requests", {}),
        (errors.Unavailable("no"), 503, "unavailable", {}),
        (exceptions.ParseError("no"), 400, "malformed", {}),
        (exceptions.NotAuthenticated(), 403, "not_authenticated", {}),
        (exceptions.PermissionDenied(), 403, "forbidden", {}),
        (exceptions.PermissionDenied("CSRF Failed: no cookie"), 403, "csrf", {}),
        (exceptions.NotFound(), 404, "not_found", {}),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed", {}),
        (exceptions.NotAcceptable(), 406, "not_acceptable", {}),
        (exceptions.UnsupportedMediaType("text/x"), 415, "unsupported_media_type", {}),
        (exceptions.Throttled(wait=3), 429, "too_many_requests", {}),
        (exceptions.ValidationError({"name": ["too long", "odd"]}), 400, "invalid", {"name": "too long odd"}),
        (exceptions.ValidationError("whole"), 400, "invalid", {}),
        (Http404(), 404, "not_found", {}),
        (PermissionDenied(), 403, "forbidden", {}),
        (RequestDataTooBig(), 413, "too_large", {}),
        (SuspiciousOperation(SECRET), 400, "malformed", {}),
        (RecursionError(), 400, "malformed", {}),
        (OperationalError(SECRET), 503, "database", {}),
        (InterfaceError(SECRET), 503, "database", {}),
        (IntegrityError(SECRET), 409, "conflict", {}),
        (DataError(SECRET), 500, "internal", {}),
        (RuntimeError(SECRET), 500, "internal", {}),
        (KeyError(SECRET), 500, "internal", {}),
    ],
)
def test_every_error_is_a_problem_body(
    error: Exception, status: int, code: str, fields: dict[str, str]
) -> None:
    answer = answer_to(error)
    body = answer.data
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert (body["status"], body["code"], body["fields"]) == (status, code, fields)
    assert body["type"].endswith(f"/{code}")
    assert body["title"]
    assert body["detail"]
    assert SECRET not in answer.content.decode()
    assert "Traceback" not in answer.content.decode()


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (errors.TooMany("no", retry_after_seconds=1.2), "2"),
        (exceptions.Throttled(wait=3), "3"),
        (errors.Unavailable("no"), "1"),
        (OperationalError(), "1"),
    ],
)
def test_what_passes_says_when_to_come_back(error: Exception, seconds: str) -> None:
    assert answer_to(error)["Retry-After"] == seconds


def test_an_unknown_failure_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    request_ids.begin("r-1")
    with caplog.at_level(logging.ERROR):
        answer = answer_to(RuntimeError(SECRET))
    assert answer.data["request_id"] == "r-1"
    assert SECRET in caplog.text
    assert "GET /api/v1/x failed" in caplog.text


def test_nested_errors_are_named_by_their_path() -> None:
    detail: Any = {
        "steps": [{}, {"pause": {"duration": [exceptions.ErrorDetail("too short")]}}],
        "non_field_errors": [exceptions.ErrorDetail("The whole is odd.")],
    }
    assert problems.flatten(detail) == {"steps.1.pause.duration": "too short", "": "The whole is odd."}
    body, _ = problems.describe(exceptions.ValidationError(detail))
    assert body["detail"] == "The whole is odd. Wrong: steps.1.pause.duration."


@pytest.mark.parametrize(
    "raw", [b"{", b"[" * 100_000, b"\xff\xfe", b'{"a": NaN}', b'{"a": 1' + b"0" * 5000 + b"}", b""]
)
def test_broken_json_is_refused_not_failed(raw: bytes) -> None:
    class Reads(APIView):
        authentication_classes = ()
        permission_classes = ()
        parser_classes = (JSONParser,)

        def post(self, request: Request) -> Response:
            serializers.Serializer(data=request.data).is_valid(raise_exception=True)
            return Response({})

    request = APIRequestFactory().post("/api/v1/x", raw, content_type="application/json")
    answer = Reads.as_view()(request).render()
    assert answer.status_code == (200 if raw == b"" else 400), answer.content


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/v2/tenants", "/api/v1/tenants/", "/api/"])
def test_an_unknown_api_address_is_a_problem(client: Client, path: str) -> None:
    for method in (client.get, client.post):
        answer = method(path)
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
        assert answer.json()["code"] == "not_found"


@pytest.mark.django_db
def test_an_unknown_page_is_a_page(client: Client) -> None:
    answer = client.get("/nothing/<script>")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")
    assert b"<script>" not in answer.content


@pytest.mark.parametrize(("path", "kind"), [("/api/v1/x", "application/problem+json"), ("/x", "text/html")])
def test_a_failure_outside_of_rest_is_answered_in_the_callers_language(path: str, kind: str) -> None:
    request = RequestFactory().get(path)
    for view, status in (
        (pages.failed, 500),
        (pages.forbidden, 403),
        (pages.bad_request, 400),
        (pages.csrf_failed, 403),
    ):
        handler: Callable[..., Any] = view
        answer = handler(request)
        assert answer.status_code == status
        assert answer["Content-Type"].startswith(kind)


def test_a_refusal_that_no_view_caught_is_still_an_answer() -> None:
    layer = RequestContext(lambda request: Response({}))
    refused = layer.process_exception(RequestFactory().get("/api/v1/x"), errors.Conflict("busy"))
    assert refused is not None
    assert refused.status_code == 409
    page = layer.process_exception(RequestFactory().get("/x"), errors.NotFound("no"))
    assert page is not None
    assert page.status_code == 404
    assert layer.process_exception(RequestFactory().get("/x"), RuntimeError()) is None
